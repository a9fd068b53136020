"""Which GPUs a launch uses: by processes, by memory, by CUDA_VISIBLE_DEVICES, or not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.observe import gpu_choice
from specbench.observe.gpu_choice import Launched, Seen, choose, visible
from specbench.observe.nvml import Device

GIB = 1 << 30
FOUR = tuple(Device(None, i, "H200", f"GPU-{i}{i}{i}{i}-{i}") for i in range(4))
READABLE = {d.uuid: True for d in FOUR}


def uuids(devices: tuple[Device, ...] | None) -> list[str] | None:
    return None if devices is None else [d.uuid[4] for d in devices]


def test_processes_of_the_engine_tell_first() -> None:
    seen = Seen(frozenset({"GPU-2222-2"}), READABLE, {"GPU-0000-0": 9 * GIB})
    found = choose(FOUR, seen, Launched(visible="0"))
    assert uuids(found.devices) == ["2"]
    assert found.basis == "processes of the engine on it"


def test_an_engine_without_a_process_on_a_gpu_uses_none() -> None:
    # A CPU build beside somebody else who fills GPU 0.
    found = choose(FOUR, Seen(lists=READABLE, taken_bytes={"GPU-0000-0": 9 * GIB}), Launched(visible="0"))
    assert found.devices == ()
    assert found.why_null == "no process of the engine is on a GPU"


@pytest.mark.parametrize(
    "launched", [Launched(own_ids=False), Launched(container=True), Launched(container=True, visible="0")]
)
def test_in_a_container_filled_memory_tells(launched: Launched) -> None:
    seen = Seen(
        lists=READABLE, taken_bytes={"GPU-1111-1": 70 * GIB, "GPU-3333-3": 300 << 20, "GPU-0000-0": 0}
    )
    found = choose(FOUR, seen, launched)
    # Inside a container number 0 is whichever GPU it was given first.
    assert uuids(found.devices) == ["1", "3"]
    assert found.basis == "memory taken on it since the launch began"


def test_named_gpus_narrow_what_memory_tells() -> None:
    seen = Seen(taken_bytes={d.uuid: 70 * GIB for d in FOUR})
    found = choose(FOUR, seen, Launched(visible="1,GPU-2222", own_ids=False))
    assert uuids(found.devices) == ["1", "2"]
    assert found.basis is not None
    assert "CUDA_VISIBLE_DEVICES" in found.basis


def test_named_gpus_are_taken_when_memory_cannot_be_read() -> None:
    found = choose(FOUR, Seen(taken_bytes=dict.fromkeys(READABLE)), Launched(visible="3", own_ids=False))
    assert uuids(found.devices) == ["3"]
    assert found.basis == "named in CUDA_VISIBLE_DEVICES"


def test_what_cannot_be_told_is_not_guessed() -> None:
    flat: dict[str, int | None] = {d.uuid: 0 for d in FOUR}
    for launched in (Launched(own_ids=False), Launched(own_ids=False, visible="0")):
        found = choose(FOUR, Seen(taken_bytes=flat), launched)
        assert found.devices == ()
        assert found.why_null is not None
        assert "cannot be told" in found.why_null
    hidden = choose(FOUR, Seen(), Launched(own_ids=False, visible=""))
    assert hidden.why_null == "CUDA_VISIBLE_DEVICES= names no GPU that NVML shows"
    assert choose((), Seen(), Launched()).why_null == "NVML shows no GPU"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, None),
        ("0", ["0"]),
        (" 2 , 0 ", ["2", "0"]),
        ("GPU-3333-3,1", ["3", "1"]),
        ("GPU-33", ["3"]),
        ("GPU-", []),  # not unique
        ("1,9,2", ["1"]),  # CUDA stops at the first that is not there
        ("1,-1,2", ["1"]),
        ("-1", []),
        ("", []),
        ("1,1", ["1"]),
        ("NoDevFiles", []),
    ],
)
def test_the_list_is_read_as_cuda_does(text: str | None, found: list[str] | None) -> None:
    assert uuids(visible(FOUR, Launched(visible=text))) == found


def test_numbers_do_not_tell_between_unlike_gpus() -> None:
    mixed = (Device(None, 0, "L4", "GPU-0000-0"), Device(None, 1, "H200", "GPU-1111-1"))
    assert visible(mixed, Launched(visible="0")) is None  # CUDA counts the faster one first
    assert uuids(visible(mixed, Launched(visible="0", order="PCI_BUS_ID"))) == ["0"]
    assert uuids(visible(mixed, Launched(visible="GPU-1111-1"))) == ["1"]


def test_slices_have_uuids_of_their_own() -> None:
    slices = tuple(Device(None, 0, "H200 MIG 1g", f"MIG-{c}8a1-0", mig=True) for c in "ab")
    assert visible(slices, Launched(visible="MIG-b8a1-0")) == slices[1:]
    old = (Device(None, 0, "A100 MIG", "MIG-GPU-77/1/0", mig=True),)
    assert visible(old, Launched(visible="MIG-GPU-77/1/0", container=True)) == old


def test_what_a_launch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(argv: list[str], env: dict[str, str], *, container: bool = False) -> str | None:
        inherited = {"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return Launched.of(argv, env, inherited, container=container).visible

    assert told(["vllm", "serve"], {}) == "7"
    assert told(["vllm", "serve"], {"CUDA_VISIBLE_DEVICES": "1"}) == "1"
    assert told(["env", "CUDA_VISIBLE_DEVICES=2,3", "vllm"], {"CUDA_VISIBLE_DEVICES": "1"}) == "2,3"
    assert told(["docker", "run", "image"], {}, container=True) is None
    assert told(["docker", "run", "--env=CUDA_VISIBLE_DEVICES=GPU-1", "image"], {}, container=True) == "GPU-1"
    assert Launched.of([], {}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, container=False).order == "PCI_BUS_ID"
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[4026532999]"))
    assert not gpu_choice.in_first_namespace()
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[4026531836]"))
    assert gpu_choice.in_first_namespace()
