"""Public request files, fetched when asked for: their place, their licence, and whether they came whole."""

from __future__ import annotations

import difflib
import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import msgspec

from specbench.workloads.readers.specbench_requests import sha256
from specbench.workloads.shipped import datasets_folder

TIMEOUT_S: Final = 60.0
_CHUNK: Final = 1 << 20


class FetchError(Exception):
    """A file could not be had; the message says why and the mend. Nothing is left behind."""


class PublicSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of ``datasets/public.yaml``."""

    title: str
    url: str
    page: str
    licence: str
    sha256: str | None = None
    caution: str | None = None

    @property
    def file(self) -> str:
        """The file's own name."""
        return PurePosixPath(urlsplit(self.url).path).name


@cache
def public_sets() -> dict[str, PublicSet]:
    """Every known public set by name."""
    return msgspec.yaml.decode((datasets_folder() / "public.yaml").read_bytes(), type=dict[str, PublicSet])


def public_set(name: str) -> PublicSet:
    """One of them.

    Raises:
        FetchError: no such name; the message lists them and guesses the one that was meant.
    """
    known = public_sets()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FetchError(f"no public set is called {name!r}{hint} (there are {', '.join(known)})")
    return known[name]


def fetch(entry: PublicSet, out: Path, *, on_bytes: Callable[[int], None] | None = None) -> str:
    """Bring the file to ``out``, whole and checked or not at all; an equal one that is there is kept.

    Args:
        on_bytes: called with the bytes so far.

    Returns:
        Hex SHA-256 of the file.

    Raises:
        FetchError: no connection, another status than 200, a broken transfer, or another checksum.
    """
    if urlsplit(entry.url).scheme not in {"http", "https"}:
        raise FetchError(f"{entry.url} is no web address")
    if out.is_file() and entry.sha256 is not None and sha256(out) == entry.sha256:
        return entry.sha256
    partial = out.with_name(out.name + ".partial")
    try:
        found = _download(entry.url, partial, on_bytes)
        if entry.sha256 is not None and found != entry.sha256:
            raise FetchError(
                f"{entry.url} is not the file that specbench knows: its SHA-256 is {found}, expected "
                f"{entry.sha256}: it changed or was tampered with; look at {entry.page}"
            )
        partial.replace(out)
    except OSError as error:
        raise FetchError(f"{out}: cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return found


def _download(url: str, partial: Path, on_bytes: Callable[[int], None] | None) -> str:
    digest, so_far = hashlib.sha256(), 0
    request = urllib.request.Request(url, headers={"User-Agent": "specbench"})  # noqa: S310 - http(s), checked
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            expected = response.headers.get("Content-Length")
            with partial.open("wb") as file:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    so_far += len(chunk)
                    if on_bytes is not None:
                        on_bytes(so_far)
    except urllib.error.HTTPError as error:
        raise FetchError(f"{url}: HTTP {error.code} {error.reason}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FetchError(f"{url}: no file came: {reason}: check the network or a proxy") from None
    if expected is not None and expected.isdecimal() and int(expected) != so_far:
        raise FetchError(f"{url}: the transfer broke off after {so_far} of {expected} bytes: try again")
    return digest.hexdigest()
