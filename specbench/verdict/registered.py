"""Whether the rule that a run is judged by is the one that was registered before its first launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from specbench.config.identity import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.runs.records import Manifest

REGISTERED: Final = "rule_registered"
"""Journal event with the digest of the rule, written before the first launch."""


def rule_of(manifest: Manifest) -> dict[str, Any]:
    """Everything that the verdict depends on besides the data."""
    return {
        "min_speedup": manifest.min_speedup,
        "confidence": manifest.confidence,
        "traffic": manifest.traffic,
        "rounds": manifest.rounds,
        "ttft_p95_limit_ms": manifest.ttft_p95_limit_ms,
        "tpot_p95_limit_ms": manifest.tpot_p95_limit_ms,
        "rule": msgspec.to_builtins(manifest.rule),
        **({"open_check": msgspec.to_builtins(manifest.open_check)} if manifest.open_check else {}),
    }


def rule_digest(manifest: Manifest) -> str:
    """Hex SHA-256 of the rule."""
    return digest(rule_of(manifest))


def rule_changes(manifest: Manifest, events: Sequence[dict[str, Any]]) -> list[str]:
    """What differs between the registered rule and the one in the run's config, in words.

    The manifest's rule is compared with its digest in the journal, and with the config that the manifest holds.
    """
    changes = []
    first = next((e for e in events if e.get("event") == REGISTERED), None)
    if first is not None and first.get("digest") != rule_digest(manifest):
        changes.append("the rule in manifest.json was edited after the first launch")
    verdict = manifest.config.get("verdict") or {}
    limits = verdict.get("limits") or {}
    measure = manifest.config.get("measure") or {}
    rule = manifest.rule
    pairs: list[tuple[str, Any, Any]] = [
        ("verdict.min_speedup", verdict.get("min_speedup"), manifest.min_speedup),
        ("verdict.confidence", verdict.get("confidence"), manifest.confidence),
        ("verdict.limits.ttft_p95_ms", limits.get("ttft_p95_ms"), manifest.ttft_p95_limit_ms),
        ("verdict.limits.tpot_p95_ms", limits.get("tpot_p95_ms"), manifest.tpot_p95_limit_ms),
        ("measure.strategy", measure.get("strategy"), rule.strategy),
    ]
    if rule.margins:
        margins = {k: v for k, v in (verdict.get("margins") or {}).items() if v is not None}
        pairs.append(("verdict.margins", margins, rule.margins))
    if rule.strategy == "adaptive":
        pairs += [
            ("measure.looks", measure.get("looks"), list(rule.looks)),
            ("measure.max_rounds", measure.get("max_rounds"), rule.max_rounds),
            ("measure.variance_prior", measure.get("variance_prior"), rule.variance_prior),
        ]
    else:
        pairs.append(("measure.rounds", measure.get("rounds"), manifest.rounds))
    return changes + [
        f"{key} is {config!r}, registered was {registered!r}"
        for key, config, registered in pairs
        if config is not None and config != registered
    ]
