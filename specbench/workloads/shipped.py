"""The prompt sets that come with specbench, by name.

They lie in ``datasets/`` of a checkout and in ``specbench/_datasets`` of an installed wheel;
``index.yaml`` beside them names each set and its JSONL files.
"""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

import msgspec

_PACKAGE = Path(__file__).resolve().parent.parent


class UnknownDataset(ValueError):
    """No shipped dataset has this name."""


class ShippedDataset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the index: the JSONL files, in reading order, and what they are."""

    files: tuple[str, ...]
    description: str


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    licence: str
    datasets: dict[str, ShippedDataset]


def datasets_folder() -> Path:
    """Where the shipped prompt sets lie."""
    installed = _PACKAGE / "_datasets"
    return installed if installed.is_dir() else _PACKAGE.parent / "datasets"


def shipped_datasets() -> dict[str, ShippedDataset]:
    """Every shipped dataset by name, in the order of the index."""
    return dict(_index().datasets)


def dataset_names() -> tuple[str, ...]:
    """The names that `dataset_files` knows, in the order of the index."""
    return tuple(_index().datasets)


def dataset_files(name: str) -> list[Path]:
    """The JSONL files of a shipped dataset, in reading order.

    Raises:
        UnknownDataset: there is no such name; the message lists them and guesses the one that was meant.
    """
    known = _index().datasets
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UnknownDataset(
            f"no shipped dataset is called {name!r}{hint} "
            f"(there are {', '.join(known)}; a path to a JSONL file starts with ./ ../ / or ~)"
        )
    folder = datasets_folder()
    return [folder / file for file in known[name].files]


@cache
def _index() -> _Index:
    return msgspec.yaml.decode((datasets_folder() / "index.yaml").read_bytes(), type=_Index)
