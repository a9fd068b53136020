"""Shipped datasets by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.workloads import shipped


def test_quickstart_is_chat_and_edit() -> None:
    assert [file.name for file in shipped.dataset_files("quickstart")] == ["chat.jsonl", "edit.jsonl"]
    assert all(file.is_file() for file in shipped.dataset_files("quickstart"))


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(shipped.UnknownDataset, match=r"'sumarise'; did you mean 'summarise'\?.*quickstart"):
        shipped.dataset_files("sumarise")


def test_a_name_unlike_any_other_gets_no_guess() -> None:
    with pytest.raises(shipped.UnknownDataset) as caught:
        shipped.dataset_files("zzzzzz")
    assert "did you mean" not in str(caught.value)


def test_an_installed_package_reads_its_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "specbench")
    assert shipped.datasets_folder() == tmp_path / "datasets"
    (tmp_path / "specbench" / "_datasets").mkdir(parents=True)
    assert shipped.datasets_folder() == tmp_path / "specbench" / "_datasets"
