"""Which GPUs a launch uses, from what can be seen; a guess is never made.

In this order: GPUs on which a process of the launch computes; where process ids mean nothing (a container has
numbers of its own), those whose memory filled since the launch began, among the ones that
``CUDA_VISIBLE_DEVICES`` names; where memory cannot be read either, all that it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from specbench.observe.nvml import Device

MIN_TAKEN_BYTES: Final = 256 << 20
"""A CUDA context alone takes more than this on a GPU that an engine uses."""

_FIRST_NAMESPACE: Final = "pid:[4026531836]"
"""The kernel's fixed number of the first process namespace, PROC_PID_INIT_INO: the one whose ids NVML tells."""

_VARIABLE: Final = re.compile(r"(?:--env=|-e=?)?(CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch is told about GPUs.

    Attributes:
        visible: ``CUDA_VISIBLE_DEVICES``; null when it is not set.
        order: ``CUDA_DEVICE_ORDER``; null when it is not set.
        container: whether it runs in a container of its own, which numbers GPUs anew.
        own_ids: whether our process ids are the driver's.
    """

    visible: str | None = None
    order: str | None = None
    container: bool = False
    own_ids: bool = True

    @classmethod
    def of(
        cls, argv: Sequence[str], env: Mapping[str, str], inherited: Mapping[str, str], *, container: bool
    ) -> Launched:
        """From a launch's command line, its own variables and those that it inherits.

        A container inherits nothing. Words such as ``env CUDA_VISIBLE_DEVICES=1`` count most.
        """
        known = {**({} if container else inherited), **env}
        known.update({m[1]: m[2] for word in argv if (m := _VARIABLE.fullmatch(word))})
        return cls(
            visible=known.get("CUDA_VISIBLE_DEVICES"),
            order=known.get("CUDA_DEVICE_ORDER"),
            container=container,
            own_ids=in_first_namespace(),
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What NVML showed during a launch, by device uuid.

    ``on`` are devices on which a process of the launch computed; ``lists`` says whether a device's process
    list could be read; ``taken_bytes`` is by how much its memory in use rose since the launch began, null when
    it cannot be read.
    """

    on: frozenset[str] = frozenset()
    lists: dict[str, bool] = field(default_factory=dict)
    taken_bytes: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """The devices of a launch and how they were told, or why there are none."""

    devices: tuple[Device, ...] = ()
    basis: str | None = None
    why_null: str | None = None


def choose(devices: Sequence[Device], seen: Seen, launched: Launched) -> Choice:
    """The devices that a launch uses."""
    if not devices:
        return Choice(why_null="NVML shows no GPU")
    on = tuple(d for d in devices if d.uuid in seen.on)
    if on:
        return Choice(on, "processes of the engine on it")
    if launched.own_ids and not launched.container and all(seen.lists.get(d.uuid) for d in devices):
        return Choice(why_null="no process of the engine is on a GPU")
    named = visible(devices, launched)
    among = tuple(devices) if named is None else named
    if not among:
        return Choice(why_null=f"CUDA_VISIBLE_DEVICES={launched.visible} names no GPU that NVML shows")
    taken = tuple(d for d in among if (seen.taken_bytes.get(d.uuid) or 0) >= MIN_TAKEN_BYTES)
    if taken:
        where = "" if named is None else ", among those in CUDA_VISIBLE_DEVICES"
        return Choice(taken, f"memory taken on it since the launch began{where}")
    if named is not None and any(seen.taken_bytes.get(d.uuid) is None for d in named):
        return Choice(named, "named in CUDA_VISIBLE_DEVICES")
    return Choice(
        why_null="it cannot be told which GPUs the engine uses: its processes cannot be seen, and no GPU's memory "
        "filled since the launch began"
    )


def visible(devices: Sequence[Device], launched: Launched) -> tuple[Device, ...] | None:
    """The devices that ``CUDA_VISIBLE_DEVICES`` names; null when it does not tell.

    Numbers, uuids (``GPU-…``, ``MIG-…``) and their unique beginnings, as CUDA reads them: the list ends at the
    first entry that names none. Numbers tell nothing inside a container, which counts its own GPUs, nor between
    unlike GPUs, which CUDA orders by speed unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``.
    """
    if launched.visible is None:
        return None
    found: list[Device] = []
    for entry in (text.strip() for text in launched.visible.split(",")):
        if entry.isdecimal():
            unlike = len({d.name for d in devices}) > 1 and launched.order != "PCI_BUS_ID"
            if launched.container or unlike:
                return None
            named = [d for d in devices if d.index == int(entry)]
        else:
            named = [d for d in devices if d.uuid.startswith(entry)] if entry else []
            named = named if len(named) == 1 else []
        if not named:
            break
        found += [d for d in named if d not in found]
    return tuple(found)


def in_first_namespace() -> bool:
    """Whether our process ids are those that the driver tells: not in a container; True where that is unknown."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return True
