"""The open-loop check of a sweep: its loads before and after their rates are known, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specbench.config.grid import MAX_OPEN_CONCURRENCY, Load
from specbench.config.model import Config, OpenLoad, Workload
from specbench.config.plan import NATURAL_LENGTH, CellPlan, expected_tokens_per_s

FIRST_LOOK: Final = 3
"""Pairs of launches after which the check may end."""


def check_load_id(share: float) -> str:
    """``check70`` for 0.7 of the baseline's requests/s."""
    return f"check{round(100 * share, 6):g}"


def check_loads(config: Config, rates: Mapping[str, float] | None = None) -> tuple[Load, ...]:
    """The loads of the check, Poisson arrivals; at 1 request/s as long as the rates are not known."""
    if config.measure.open_check is None:
        return ()
    slots = min(MAX_OPEN_CONCURRENCY, max(config.loads.closed))
    ids = [check_load_id(share) for share in config.measure.open_check.shares]
    return tuple(
        Load(x, slots, open=OpenLoad.model_validate({"rate": rates[x] if rates else 1.0})) for x in ids
    )


def check_workload(config: Config) -> Workload:
    """The workload with as many requests as a cell of the check sends."""
    assert config.measure.open_check is not None
    return config.workload.model_copy(
        update={"seconds": None, "min_requests": config.measure.open_check.requests}
    )


def check_cells(config: Config, rates: Mapping[str, float]) -> tuple[CellPlan, ...]:
    """One cell of each rate."""
    assert config.measure.open_check is not None
    requests = config.measure.open_check.requests
    return tuple(
        CellPlan(
            load,
            requests,
            config.measure.warmup_per_slot * load.concurrency,
            (requests + config.measure.warmup_per_slot * load.concurrency) / rates[load.id],
        )
        for load in check_loads(config, rates)
    )


def expected_check_s(config: Config, startup_s: float) -> float:
    """About how long the check takes at most, from what is known of the engine's speed."""
    check = config.measure.open_check
    if check is None:
        return 0.0
    tokens = config.workload.max_output_tokens * NATURAL_LENGTH
    top = expected_tokens_per_s(max(config.loads.closed), config.measure.expect.tokens_per_s) / tokens
    cells = check_cells(config, {check_load_id(share): share * top for share in check.shares})
    return 2 * check.rounds * (startup_s + sum(cell.estimate_s for cell in cells))
