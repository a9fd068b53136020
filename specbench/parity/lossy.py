"""Settings that change the output on purpose. They are said, not discovered."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

LOSSY_METHODS: Final = ("typical_acceptance_sampler", "typical_acceptance", "typical", "fly", "synthetic")
"""Values of the settings that choose how drafts are verified."""

_VERIFICATION_KEYS: Final = frozenset(
    {
        "rejection_sample_method",
        "acceptance_method",
        "spec_decoding_acceptance_method",
        "verification_method",
        "speculative_verification",
    }
)
_THRESHOLDS: Final = frozenset({"speculative_accept_threshold_single", "speculative_accept_threshold_acc"})
_SYNTHETIC: Final = frozenset({"synthetic_acceptance_rates", "synthetic_acceptance_length"})
_ENVIRONMENT: Final = {
    "SGLANG_SIMULATE_ACC_LEN": "drafts are accepted to a made-up length",
    "SGLANG_SIMULATE_ACC_METHOD": "drafts are accepted by a made-up rule",
}


def lossy_settings(
    settings: Mapping[str, Any],
    args: Mapping[str, Any],
    env: Mapping[str, str] | Iterable[str] = (),
    flags: Iterable[str] = (),
) -> tuple[str, ...]:
    """What in an arm's configuration changes the output by design, one sentence each.

    Args:
        settings: the arm's method settings.
        args: engine flags, of the arm and those shared by all.
        env: names of variables set for the engine, with values if they are known.
        flags: speculation flags as rendered; ``--name=value`` and ``--name value`` are understood.
    """
    found: dict[str, str] = {}
    for key, value in _pairs(settings, args, flags):
        text = _why(key, value)
        if text is not None:
            found.setdefault(key, text)
    for name in env:
        value = env[name] if isinstance(env, Mapping) else None
        if name in _ENVIRONMENT and value not in ("", "0", "-1"):
            found[name] = f"{name}: {_ENVIRONMENT[name]}"
    return tuple(found.values())


def _pairs(
    settings: Mapping[str, Any], args: Mapping[str, Any], flags: Iterable[str]
) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for source in (settings, args):
        for key, value in source.items():
            pairs.append((_plain(key), value))
            if isinstance(value, Mapping):
                pairs += [(_plain(k), v) for k, v in value.items()]
    words = [w for flag in flags for w in (shlex.split(flag) if " " in flag and "{" not in flag else [flag])]
    for word, following in itertools.pairwise([*words, ""]):
        if word.startswith("--"):
            name, _, value = word.partition("=")
            pairs.append((_plain(name), value or following))
    return pairs


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_").lower()


def _why(key: str, value: Any) -> str | None:
    if key in _THRESHOLDS and (number := _number(value)) is not None and number < 1.0:
        return f"{key}={number:g}: drafts that the target finds unlikely are accepted"
    if key in _SYNTHETIC and value not in (None, "", []):
        return f"{key}={value}: acceptance is made up"
    if key in _VERIFICATION_KEYS and str(value).lower() in LOSSY_METHODS:
        return f"{key}={value}: this rule accepts drafts that lossless verification would not"
    if key.startswith(("fly_", "enable_fly", "typical_acceptance_sampler_posterior")) and value not in (
        None,
        False,
        "",
    ):
        return f"{key}={value}: this rule accepts drafts that lossless verification would not"
    return None


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
