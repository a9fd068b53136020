"""What a sweep and a cell mean, as canonical content and its hash.

Two cells with the same hash measured the same thing; a run is resumed only by a sweep of the same meaning.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from specbench.config.environment import opens_doors, redact
from specbench.config.grid import Arm, Load
from specbench.config.model import ArmConfig, Config

MEASUREMENT_SCHEMA: Final = 1
"""Raised when specbench measures differently, so that old and new cells are never mixed."""

MAX_ID_LENGTH: Final = 100


@dataclass(frozen=True, slots=True)
class CellIdentity:
    """One cell.

    Attributes:
        id: ``r01-ngram-k3-c8-1a2b3c4d``, safe as a folder name, at most 100 characters.
        hash: hex SHA-256 of ``content``.
        content: everything that changes the cell's meaning.
    """

    id: str
    hash: str
    content: dict[str, Any]


def canonical(obj: Any) -> str:
    """JSON with sorted keys and no spaces: equal content gives equal text.

    Raises:
        ValueError: NaN or infinity.
        TypeError: something JSON has no word for.
    """
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(obj: Any) -> str:
    """Hex SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(obj).encode("utf-8", "surrogatepass")).hexdigest()


def meaning(
    config: Config,
    engine_version: str,
    mix_digests: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    other_versions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Everything that changes what a sweep measures; not its name, time limits, estimates or verdict rule.

    Args:
        mix_digests: digest of the requests of a cell, by load id.
        variables: `LoadedConfig.variables`; their values are written as ``${NAME}`` plus a hash.
        other_versions: versions of the other engines, by name.
    """
    shared = _shared(config, "", engine_version)
    shared["engine"] |= _given(matched_baseline=config.engine.matched_baseline or None)
    content = {
        **shared,
        **({"other_engines": others} if (others := _others(config, other_versions or {})) else {}),
        "arms": [_arm_entry(entry) for entry in config.arms],
        "loads": config.loads.model_dump(mode="json"),
        "workload": {
            **config.workload.model_dump(mode="json", exclude={"source"}),
            "source": config.workload.source,
            "requests": dict(mix_digests),
        },
        "measure": {
            **config.measure.model_dump(
                mode="json", exclude={"time_budget", "expect", "client_cpus", "open_check"}
            ),
            **_given(
                open_check=config.measure.open_check and config.measure.open_check.model_dump(mode="json")
            ),
        },
    }
    return _plain_section(content, variables or {})


def cell_identity(
    config: Config,
    arm: Arm,
    load: Load,
    round_number: int,
    engine_version: str,
    mix_digest: str,
    variables: Mapping[str, str] | None = None,
) -> CellIdentity:
    """Identity of one cell: its own settings only, so that other arms or loads may be added later.

    Args:
        round_number: from 1.
        mix_digest: `CellMix.digest` of this load.
    """
    content = _plain_section(
        {
            **_shared(config, arm.engine, engine_version),
            "round": round_number,
            "arm": {
                "id": arm.id,
                "method": arm.method,
                "draft": arm.draft,
                "k": arm.k,
                "settings": dict(arm.settings),
                "args": dict(arm.args),
                "env": _env(arm.env),
                **_given(url=arm.url, served_model=arm.served_model),
            },
            "load": _load(load),
            "workload": {
                "requests": mix_digest,
                "seconds": config.workload.seconds,
                "request_timeout": config.workload.request_timeout,
            },
            "warmup_per_slot": config.measure.warmup_per_slot,
            "client_lag_limit": config.measure.client_lag_limit,
        },
        variables or {},
    )
    full = digest(content)
    head, tail = f"r{round_number:02d}-", f"-{_slug(load.id)}-{full[:8]}"
    room = MAX_ID_LENGTH - len(head) - len(tail)
    name = (_slug(arm.id)[:room].rstrip("-.") or "arm") if room > 0 else "arm"
    return CellIdentity(id=f"{head}{name}{tail}", hash=full, content=content)


def differences(old: Any, new: Any) -> list[str]:
    """How two meanings differ, one line each: ``arms[1].k: 3 -> 5``."""
    return list(_differences(old, new, ""))


def _others(config: Config, versions: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {
            **_shared(config, name, versions.get(name, ""))["engine"],
            **_given(matched_baseline=engine.matched_baseline or None),
        }
        for name, engine in config.other_engines.items()
    }


def _shared(config: Config, name: str, engine_version: str) -> dict[str, Any]:
    engine = config.engine_named(name)
    return {
        "measurement_schema": MEASUREMENT_SCHEMA,
        "target": config.target.model_dump(mode="json"),
        "engine": {
            "kind": engine.kind,
            "version": engine_version,
            "command": engine.command,
            "args": dict(engine.args),
            "env": _env(engine.env),
            **_given(
                url=engine.url,
                model=engine.model,
                headers=_env({k: v for k, v in engine.headers.items() if not opens_doors(k)}) or None,
            ),
        },
    }


def _given(**values: Any) -> dict[str, Any]:
    """What is set: keys that came later do not change what configs without them mean."""
    return {name: value for name, value in values.items() if value is not None}


def _load(load: Load) -> dict[str, Any]:
    if load.open is not None:
        return {"open": load.open.model_dump(mode="json")}
    if load.trace is not None:
        return {"trace": load.trace.model_dump(mode="json")}
    return {"closed": load.concurrency}


def _arm_entry(entry: ArmConfig) -> dict[str, Any]:
    """An entry as written; ``k: [3]`` and ``k: 3`` are the same."""
    content = entry.model_dump(mode="json")
    for key in ("draft", "k", "engine"):
        if isinstance(content[key], list) and len(content[key]) == 1:
            content[key] = content[key][0]
    later = {key: content.pop(key) for key in ("url", "model", "engine")}
    return {**content, "env": _env(entry.env), **_given(**later)}


def _env(env: Mapping[str, str]) -> dict[str, str]:
    """Values may be secret: only their hashes are kept."""
    return {name: "sha256:" + hashlib.sha256(value.encode()).hexdigest()[:16] for name, value in env.items()}


def _plain_section(section: Mapping[Any, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """JSON content: keys are text, secrets are their names and hashes."""
    return {str(k): _plain(v, variables) for k, v in section.items()}


def _plain(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return _plain_section(value, variables)
    if isinstance(value, list | tuple):
        return [_plain(v, variables) for v in value]
    if isinstance(value, str) and variables:
        hidden = redact(value, variables)
        return (
            value
            if hidden == value
            else f"{hidden} (sha256:{hashlib.sha256(value.encode()).hexdigest()[:16]})"
        )
    return value


def _differences(old: Any, new: Any, key: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for name in [*old, *(k for k in new if k not in old)]:
            inner = f"{key}.{name}" if key else str(name)
            if name not in new:
                lines.append(f"{inner}: {_words(old[name])} -> removed")
            elif name not in old:
                lines.append(f"{inner}: added {_words(new[name])}")
            else:
                lines += _differences(old[name], new[name], inner)
        return lines
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        scalars = not any(isinstance(v, dict | list | tuple) for v in (*old, *new))
        if scalars or not (old and new):
            return [] if canonical(old) == canonical(new) else [f"{key}: {_words(old)} -> {_words(new)}"]
        lines = [
            line
            for i, (a, b) in enumerate(zip(old, new, strict=False))
            for line in _differences(a, b, f"{key}[{i}]")
        ]
        lines += [f"{key}[{i}]: {_words(old[i])} -> removed" for i in range(len(new), len(old))]
        lines += [f"{key}[{i}]: added {_words(new[i])}" for i in range(len(old), len(new))]
        return lines
    # 1 and true are equal in Python but are different flags.
    return [] if canonical(old) == canonical(new) else [f"{key}: {_words(old)} -> {_words(new)}"]


def _words(value: Any) -> str:
    if value is None:
        return "nothing"
    # Quotes only where the text would read as something else: the text 1 and the number 1 differ.
    plain = isinstance(value, str) and re.fullmatch(r"(true|false|nothing|[\d.eE+-]*)", value) is None
    text = value if plain else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "..."


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
