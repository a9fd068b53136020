"""The arms may differ in speculation only: compare what the engine says it resolved.

Known side effects of speculation are explained and shown; a difference that the config asked for is shown;
anything else blocks the verdict of that arm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.runs.records import ArmRecord, LaunchRecord, Manifest

SIDE_EFFECTS: Final[tuple[tuple[str, str], ...]] = (
    (r"async_scheduling", "some drafters need the scheduler to wait for each step's tokens"),
    (r"cuda_?graph|capture_sizes", "verification steps have other shapes, so other CUDA graphs are captured"),
    (
        r"num_(gpu|cpu)_blocks|kv_cache_size_tokens|kv_cache_max_concurrency",
        "the draft takes part of the KV memory",
    ),
    (r"max_num_scheduled_tokens|max_num_encoder_input", "slots are kept free for draft tokens"),
    (
        r"max_running_requests|max_total_num_tokens|max_num_reqs",
        "the engine admits fewer requests when it speculates",
    ),
    (r"chunked_prefill|mixed_chunk", "chunked prefill is limited while speculating"),
    (r"overlap_schedule", "overlapped scheduling is off while speculating"),
    (r"compile_(sizes|ranges)", "verification steps have other shapes"),
)
"""Pattern of the setting's name, and why speculation changes it. Sources: the engines' own code and logs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A resolved setting that is not the same in an arm and in the baseline."""

    arm: str
    setting: str
    baseline: Any
    value: Any
    kind: Literal["side effect", "asked for", "unexplained"]
    why: str


def settings_differences(manifest: Manifest, launches: Sequence[LaunchRecord]) -> tuple[Difference, ...]:
    """All differences between each arm's first ready launch and the baseline's."""
    first: dict[str, LaunchRecord] = {}
    for launch in launches:
        if launch.status != "failed" and launch.version is not None:
            first.setdefault(launch.arm, launch)
    found: list[Difference] = []
    for arm in manifest.arms:
        if arm.id not in first or arm.baseline not in first:
            continue
        launch, base = first[arm.id], first[arm.baseline]
        if arm.method is None:
            if base.speculating:
                why = "the baseline speculates"
                found.append(Difference(arm.id, "speculation", None, base.speculation, "unexplained", why))
            if not arm.matched:
                continue
        elif launch.speculating is False:
            found.append(
                Difference(
                    arm.id,
                    "speculation",
                    None,
                    None,
                    "unexplained",
                    "the engine says that it does not speculate",
                )
            )
        if launch.version != base.version:
            found.append(
                Difference(
                    arm.id, "version", base.version, launch.version, "unexplained", "another engine version"
                )
            )
        for name in sorted(set(base.settings) | set(launch.settings)):
            a, b = base.settings.get(name), launch.settings.get(name)
            if a != b:
                kind, why = _explain(name, arm)
                found.append(Difference(arm.id, name, a, b, kind, why))
    return tuple(found)


def is_side_effect(name: str) -> bool:
    """Whether speculation is known to change a setting."""
    return any(re.search(pattern, name) for pattern, _ in SIDE_EFFECTS)


def _explain(name: str, arm: ArmRecord) -> tuple[Literal["side effect", "asked for", "unexplained"], str]:
    tail = name.rsplit(".", 1)[-1].replace("_", "-")
    if any(tail == flag.replace("_", "-").removeprefix("no-") for flag in arm.args):
        return "asked for", "set by this arm's own args"
    for pattern, why in SIDE_EFFECTS:
        if re.search(pattern, name):
            return "side effect", why
    return "unexplained", "not a known effect of speculation"
