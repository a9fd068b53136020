"""Whether two runs may be compared at all, and what differs between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from specbench.config.identity import differences

_DIGEST: Final = re.compile(r"\b[0-9a-f]{64}\b")

if TYPE_CHECKING:
    from specbench.analysis.run import RunAnalysis
    from specbench.runs.records import LaunchRecord, Manifest


def incomparable(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Why no figure of the two runs may be compared; empty when they may be."""
    found = []
    if before.run_id == after.run_id:
        found.append(f"both are the run {before.run_id}: name a recorded run and a new one")
    a, b = before.machine, after.machine
    if a.get("fingerprint") != b.get("fingerprint"):
        found.append(
            f"they were measured on different machines: {_machine(a)} and {_machine(b)}; "
            "repeat the recorded run on this one"
        )
    schemas = [x.meaning.get("measurement_schema") for x in (before, after)]
    if None not in schemas and schemas[0] != schemas[1]:
        found.append(
            f"specbench {before.specbench} and {after.specbench} measure cells differently: repeat the recorded run"
        )
    if before.output_mode != after.output_mode:
        found.append(
            f"output lengths differ in kind: {before.output_mode} and {after.output_mode} (workload.output_mode)"
        )
    if not before.loads or not shared_loads(before, after):
        found.append(_no_load(before, after))
    if not {x.id for x in before.arms} & {x.id for x in after.arms}:
        found.append("no arm is in both runs")
    return tuple(found)


def shared_loads(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Ids of the loads at which both runs sent the same requests, in the new run's order."""
    old = {x.id: x.workload_digest for x in before.loads}
    return tuple(x.id for x in after.loads if old.get(x.id) == x.workload_digest)


def left_out(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Arms and loads that only one of the runs has, or where they sent other requests."""
    lines = []
    both = shared_loads(before, after)
    old, new = ([x.id for x in m.loads] for m in (before, after))
    for load in dict.fromkeys((*old, *new)):
        if load in both:
            continue
        if load in old and load in new:
            lines.append(f"{load}: the runs sent other requests there, so it is not compared")
        else:
            lines.append(f"{load}: only in the {'recorded' if load in old else 'new'} run")
    old, new = ([x.id for x in m.arms] for m in (before, after))
    lines += [
        f"{arm}: only in the {'recorded' if arm in old else 'new'} run"
        for arm in dict.fromkeys((*old, *new))
        if arm not in old or arm not in new
    ]
    return tuple(lines)


def changes(before: RunAnalysis, after: RunAnalysis) -> tuple[str, ...]:
    """What was not the same, a line each: the question, then what the engine says that it resolved."""
    lines = [
        _DIGEST.sub(lambda x: x[0][:12], x)
        for x in differences(before.manifest.meaning, after.manifest.meaning)
    ]
    if before.manifest.specbench != after.manifest.specbench:
        lines.append(f"specbench: {before.manifest.specbench} -> {after.manifest.specbench}")
    for key in ("os", "gpus"):
        old, new = (x.manifest.machine.get(key) for x in (before, after))
        if old != new:
            lines.append(f"machine.{key}: {old} -> {new}")
    firsts = [_first_launches(x) for x in (before, after)]
    told: set[str] = set()
    for arm in firsts[1]:
        if arm not in firsts[0]:
            continue
        old, new = firsts[0][arm].settings, firsts[1][arm].settings
        for name in sorted(set(old) | set(new)):
            line = f"{name}: {old.get(name)} -> {new.get(name)}"
            if old.get(name) != new.get(name) and line not in told:
                told.add(line)
                lines.append(f"resolved by the engine, {arm}: {line}")
    return tuple(lines)


def _first_launches(run: RunAnalysis) -> dict[str, LaunchRecord]:
    found: dict[str, LaunchRecord] = {}
    for launch in run.launches:
        if launch.status != "failed" and launch.settings:
            found.setdefault(launch.arm, launch)
    return found


def _no_load(before: Manifest, after: Manifest) -> str:
    shared = {x.id for x in before.loads} & {x.id for x in after.loads}
    if not shared:
        names = [", ".join(x.id for x in m.loads) or "none" for m in (before, after)]
        return f"no load is in both runs: {names[0]} in the recorded one, {names[1]} in the new one"
    return (
        f"the runs sent other requests at {', '.join(sorted(shared))}: the workload, its seed or the number of "
        "requests was changed"
    )


def _machine(machine: dict[str, Any]) -> str:
    gpus = machine.get("gpus") or ()
    names = [str(x.get("name", x)) if isinstance(x, dict) else str(x) for x in gpus]
    parts = [str(machine.get("cpu", "?")), f"{machine.get('cores', '?')} cores", *names]
    return f"{machine.get('hostname', '?')} ({', '.join(parts)})"
