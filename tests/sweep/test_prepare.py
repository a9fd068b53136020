"""What is decided before the first launch about loads."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.config.grid import expand_loads
from specbench.config.model import Config
from specbench.sweep.prepare import load_title, traffic_shares


def config(loads: dict[str, Any], traffic: dict[Any, float] | None = None) -> Config:
    return Config.model_validate(
        {
            "name": "x",
            "target": "org/m",
            "engine": {"kind": "simulated"},
            "arms": [{"method": "ngram", "k": 3}],
            "loads": loads,
            "verdict": {"traffic": traffic},
        }
    )


ALL = {"closed": [1, 8], "open": [{"rate": 2}], "trace": {"time_scale": 2}}


@pytest.mark.parametrize(
    ("loads", "traffic", "shares"),
    [
        (ALL, None, {"c1": 0.5, "c8": 0.5, "r2.0": 0, "trace": 0}),
        ({"open": [{"rate": 2}], "trace": {}}, None, {"r2.0": 0.5, "trace": 0.5}),
        (ALL, {8: 3, "trace": 1}, {"c1": 0, "c8": 0.75, "r2.0": 0, "trace": 0.25}),
    ],
)
def test_traffic_does_not_mix_throughput_and_latency_by_default(
    loads: dict[str, Any], traffic: dict[Any, float] | None, shares: dict[str, float]
) -> None:
    made = config(loads, traffic)
    assert traffic_shares(made, expand_loads(made)) == shares


def test_titles() -> None:
    loads = {
        "closed": [8],
        "open": [{"rate": 0.5}, {"rate": 2, "arrivals": "gamma", "cv": 3}],
        "trace": {"time_scale": 2},
    }
    assert [load_title(load) for load in expand_loads(config(loads))] == [
        "8 in flight",
        "0.5 requests/s (Poisson)",
        "2 requests/s (gamma, CV 3)",
        "recorded arrivals, times x 2",
    ]


def test_traffic_that_names_no_load_is_refused() -> None:
    with pytest.raises(ValueError, match=r"names the load 'r3\.0'; the loads are c1, c8, r2\.0, trace"):
        config(ALL, {"r3.0": 1})
