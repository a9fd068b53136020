from __future__ import annotations

import asyncio
import resource
import time

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from specbench.observe import client
from specbench.observe.client import (
    MAX_LOOP_LAG_P99_S,
    ClientHealth,
    ClientHealthReport,
    OpenFileLimitError,
    judge,
    lag_limit_s,
    quantile,
)


def verdict(
    lags: list[float] | None = None, cpu: float | None = 0.2, late: list[float] | None = None
) -> ClientHealthReport:
    return judge(
        duration_s=1.0, lags_s=lags or [], cpu_share=cpu, send_lateness_s=late or [], open_file_limit=1024
    )


def test_a_quiet_client_is_not_the_limit() -> None:
    report = verdict([0.001] * 99 + [0.5], 0.5, [0.0001] * 100)
    assert not report.client_bound
    assert report.reasons == ()
    assert (report.loop_lag_p50_s, report.loop_lag_p99_s, report.loop_lag_max_s) == (0.001, 0.001, 0.5)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (verdict([0.001] * 98 + [0.05, 0.05]), "event loop was 50 ms late"),
        (verdict(cpu=0.97), "97% of a core"),
        (verdict(late=[0.03] * 10), "sent 30 ms late"),
    ],
)
def test_each_limit(report: ClientHealthReport, words: str) -> None:
    assert report.client_bound
    assert len(report.reasons) == 1
    assert words in report.reasons[0]


def test_nothing_measured_is_null() -> None:
    report = verdict(cpu=None)
    assert report.loop_lag_p99_s is None
    assert report.send_lateness_max_s is None
    assert not report.client_bound
    assert msgspec.json.decode(msgspec.json.encode(report), type=ClientHealthReport) == report


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_blocked_loop_is_seen(run: object) -> None:
    async def main() -> ClientHealthReport:
        async with ClientHealth() as health:
            await asyncio.sleep(0.05)
            time.sleep(0.1)  # noqa: ASYNC251  # blocking is the point
            await asyncio.sleep(0.02)
        return health.report([0.0])

    report = run(main())  # type: ignore[operator]  # both runners take a coroutine
    assert report.loop_lag_samples > 1
    assert report.loop_lag_max_s > 0.05
    assert report.duration_s > 0.1
    assert report.cpu_share is not None


def test_a_blockage_counts_for_as_long_as_it_lasts() -> None:
    """Half of the time blocked, in one piece: half of the moments found the loop late, not one of them."""

    async def main() -> ClientHealthReport:
        async with ClientHealth() as health:
            await asyncio.sleep(0.02)
            time.sleep(0.5)  # noqa: ASYNC251  # blocking is the point
            await asyncio.sleep(0.02)
        return health.report()

    report = asyncio.run(main())
    assert report.loop_lag_p50_s is not None
    assert 0.15 < report.loop_lag_p50_s < report.duration_s / 2
    assert report.loop_lag_samples >= 0.8 * 0.5 / client.SAMPLE_PERIOD_S


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(0.01, 1))
def test_quantile_covers_its_share(values: list[float], q: float) -> None:
    found = quantile(values, q)
    assert found in values
    assert sum(v <= found for v in values) >= q * len(values) - 1e-9
    assert sum(v < found for v in values) < q * len(values) + 1e-9


def test_open_file_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [256, 512]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))

    def set_limits(_: int, new: tuple[int, int]) -> None:
        limits[:] = new

    monkeypatch.setattr(resource, "setrlimit", set_limits)
    client.require_open_files(400)
    assert limits == [512, 512]
    with pytest.raises(OpenFileLimitError, match=r"1000 connections need 1164 open files.*may have 512"):
        client.require_open_files(1000)


def test_a_limit_that_cannot_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert client.raise_open_file_limit() == 128
    with pytest.raises(OpenFileLimitError):
        client.require_open_files(100)


def test_a_slow_engine_bears_a_lag_of_one_of_its_own_steps() -> None:
    assert lag_limit_s([0.005] * 10) == MAX_LOOP_LAG_P99_S
    assert lag_limit_s([0.045] * 9 + [2.0]) == 0.045
    assert lag_limit_s([]) == MAX_LOOP_LAG_P99_S
