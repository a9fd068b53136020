"""Lossy settings are named wherever they are written."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.parity.lossy import lossy_settings


@pytest.mark.parametrize(
    ("settings", "args", "env", "flags", "said"),
    [
        ({}, {"speculative-accept-threshold-single": 0.9}, {}, (), "accept_threshold_single=0.9"),
        ({}, {"speculative-accept-threshold-acc": "0.5"}, {}, (), "accept_threshold_acc=0.5"),
        ({}, {}, {}, ("--speculative-accept-threshold-acc", "0.5"), "accept_threshold_acc=0.5"),
        ({}, {}, {}, ("--speculative-accept-threshold-acc=0.5",), "accept_threshold_acc=0.5"),
        ({"rejection_sample_method": "synthetic"}, {}, {}, (), "synthetic"),
        ({"synthetic_acceptance_length": 2.5}, {}, {}, (), "made up"),
        ({}, {"speculative-config": {"synthetic_acceptance_rates": [1, 0.5]}}, {}, (), "made up"),
        ({"rejection_sample_method": "fly"}, {}, {}, (), "fly"),
        ({"acceptance_method": "typical_acceptance_sampler"}, {}, {}, (), "typical"),
        ({}, {}, {"SGLANG_SIMULATE_ACC_LEN": "3"}, (), "SGLANG_SIMULATE_ACC_LEN"),
        ({}, {}, ("SGLANG_SIMULATE_ACC_LEN",), (), "SGLANG_SIMULATE_ACC_LEN"),
    ],
)
def test_lossy(
    settings: dict[str, Any], args: dict[str, Any], env: Any, flags: tuple[str, ...], said: str
) -> None:
    (text,) = lossy_settings(settings, args, env, flags)
    assert said in text


@pytest.mark.parametrize(
    ("settings", "args", "env"),
    [
        ({"prompt_lookup_max": 4, "draft_sample_method": "greedy"}, {"max-num-seqs": 8}, {"X": "1"}),
        ({"rejection_sample_method": "standard"}, {}, {}),
        ({"rejection_sample_method": "block"}, {}, {}),
        ({}, {"speculative-accept-threshold-single": 1.0, "speculative-accept-threshold-acc": 1}, {}),
        ({}, {}, {"SGLANG_SIMULATE_ACC_LEN": "-1"}),
    ],
)
def test_lossless(settings: dict[str, Any], args: dict[str, Any], env: dict[str, str]) -> None:
    assert lossy_settings(settings, args, env) == ()
