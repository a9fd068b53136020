"""Was the client the limit? Event-loop lag, CPU share and send lateness of the load itself."""

from __future__ import annotations

import asyncio
import contextlib
import math
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from specbench.observe.processors import allowed_cpus, format_cpus

SAMPLE_PERIOD_S: Final = 0.010
"""100 wake-ups a second: dense enough for a p99 of a short cell, under 0.1 % of a core."""

MAX_CPU_SHARE: Final = 0.9
"""Of one core. The loop is one thread; near a full core packets wait for it, and the arm with the most
chunks (no speculation) waits longest. Measured (docs/performance.md): up to 87 % of a core, 131,000 chunks/s,
99 % of the chunks got their time stamp within 1.4 ms of being sent; what lies above was not reached."""
MAX_LOOP_LAG_P99_S: Final = 0.020
"""A time stamp may be late by the lag. Measured (docs/performance.md), the two go together: an undisturbed
client lags 0.6 to 2.3 ms at the 99th percentile, up to 87 % of a core, and its chunks are late by less; one that
has to share its processor lags 29 ms when its chunks are 32 ms late. So 20 ms mean that the client waits for its
processor. It is also about one decode step of a mid-sized model: beyond it gaps between chunks are the
client's, not the engine's. A request sent this late leaves its slot empty."""

SPARE_FILES: Final = 64
"""Files, pipes and sockets beside the load's own: logs, metrics, the run directory."""


EPHEMERAL_SHARE: Final = 0.8
"""Of the local ports; the rest is for connections that are closing and for other programs."""


class OpenFileLimitError(RuntimeError):
    """The process may not open as many connections as the load needs."""


class EphemeralPortsError(OpenFileLimitError):
    """The machine has too few local ports for as many connections to one server."""


class ClientHealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """The client during one cell. Null means that there was nothing to take it from.

    ``cpu_share`` is CPU time of the whole process per wall time, 1.0 being one core.
    """

    duration_s: float
    loop_lag_samples: int
    loop_lag_p50_s: float | None
    loop_lag_p99_s: float | None
    loop_lag_max_s: float | None
    cpu_share: float | None
    send_lateness_p50_s: float | None
    send_lateness_p99_s: float | None
    send_lateness_max_s: float | None
    open_file_limit: int | None
    client_bound: bool
    reasons: tuple[str, ...] = ()
    cpus: str | None = None
    """Processors that the client was allowed to use, as ``measure.client_cpus`` writes them."""


class ClientHealth:
    """Samples while it is entered, on the loop it watches::

    async with ClientHealth() as health:
        run = await run_closed(...)
    report = health.report(run.send_lateness_s())
    """

    def __init__(self) -> None:
        self._lags_s: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._wall_s = 0.0
        self._cpu_s = 0.0

    async def __aenter__(self) -> ClientHealth:
        self._lags_s.clear()
        self._loop = asyncio.get_running_loop()
        self._wall_start_s = time.perf_counter()
        self._cpu_start_s = time.process_time()
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wall_s = time.perf_counter() - self._wall_start_s
        self._cpu_s = time.process_time() - self._cpu_start_s
        if self._timer is not None:
            self._timer.cancel()

    def report(
        self, send_lateness_s: Sequence[float] = (), lag_limit_s: float | None = None
    ) -> ClientHealthReport:
        """What was seen, and whether the client was the limit.

        Args:
            lag_limit_s: for the loop's lag and for the send lateness, at their 99th percentiles;
                `MAX_LOOP_LAG_P99_S` if absent.
        """
        return judge(
            lag_limit_s=MAX_LOOP_LAG_P99_S if lag_limit_s is None else lag_limit_s,
            duration_s=self._wall_s,
            lags_s=self._lags_s,
            cpu_share=self._cpu_s / self._wall_s if self._wall_s > 0 else None,
            send_lateness_s=send_lateness_s,
            open_file_limit=open_file_limit(),
            cpus=None if (allowed := allowed_cpus()) is None else format_cpus(allowed),
        )

    def _arm(self) -> None:
        self._due_s = time.perf_counter() + SAMPLE_PERIOD_S
        self._timer = self._loop.call_later(SAMPLE_PERIOD_S, self._sample)

    def _sample(self) -> None:
        # A loop may round its timers down by a millisecond: early is not late.
        lag_s = max(0.0, time.perf_counter() - self._due_s)
        self._lags_s.append(lag_s)
        # A loop that was blocked would have been found so at every moment that fell in between.
        while (lag_s := lag_s - SAMPLE_PERIOD_S) > 0:
            self._lags_s.append(lag_s)
        self._arm()


def lag_limit_s(chunk_gaps_s: Sequence[float]) -> float:
    """The lag that a cell bears: `MAX_LOOP_LAG_P99_S`, or one median gap between chunks where that is longer.

    Lag moves a time stamp, and delays the next request of a slot, by at most itself; below one step of the
    engine at the 99th percentile it cannot reorder steps, and a slot loses less than one step per request.
    """
    return max(MAX_LOOP_LAG_P99_S, quantile(chunk_gaps_s, 0.5) or 0.0)


def judge(
    *,
    duration_s: float,
    lags_s: Sequence[float],
    cpu_share: float | None,
    send_lateness_s: Sequence[float],
    open_file_limit: int | None,
    lag_limit_s: float = MAX_LOOP_LAG_P99_S,
    cpus: str | None = None,
) -> ClientHealthReport:
    """Hold what was measured against the thresholds of this module."""
    lag_p99_s = quantile(lags_s, 0.99)
    late_p99_s = quantile(send_lateness_s, 0.99)
    reasons = []
    if cpu_share is not None and cpu_share > MAX_CPU_SHARE:
        reasons.append(f"the client used {cpu_share:.0%} of a core (limit {MAX_CPU_SHARE:.0%})")
    if lag_p99_s is not None and lag_p99_s > lag_limit_s:
        reasons.append(
            f"the client's event loop was {1e3 * lag_p99_s:.0f} ms late at the 99th percentile "
            f"(limit {1e3 * lag_limit_s:.0f} ms)"
        )
    if late_p99_s is not None and late_p99_s > lag_limit_s:
        reasons.append(
            f"requests were sent {1e3 * late_p99_s:.0f} ms late at the 99th percentile "
            f"(limit {1e3 * lag_limit_s:.0f} ms)"
        )
    return ClientHealthReport(
        duration_s=duration_s,
        loop_lag_samples=len(lags_s),
        loop_lag_p50_s=quantile(lags_s, 0.5),
        loop_lag_p99_s=lag_p99_s,
        loop_lag_max_s=max(lags_s, default=None),
        cpu_share=cpu_share,
        send_lateness_p50_s=quantile(send_lateness_s, 0.5),
        send_lateness_p99_s=late_p99_s,
        send_lateness_max_s=max(send_lateness_s, default=None),
        open_file_limit=open_file_limit,
        client_bound=bool(reasons),
        reasons=tuple(reasons),
        cpus=cpus,
    )


def quantile(values: Sequence[float], q: float) -> float | None:
    """The smallest value that at least a share ``q`` of the values does not exceed; null for none."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def open_file_limit() -> int | None:
    """Files this process may open now; null when the system has no such limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_open_file_limit() -> int | None:
    """Raise the limit as far as the system lets an ordinary user; gives the limit in force afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems promise a hard limit that they do not grant; the check of the caller decides.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_file_limit()


def require_open_files(connections: int) -> None:
    """Make room for a number of connections.

    Raises:
        OpenFileLimitError: the hard limit is too low.
    """
    limit = raise_open_file_limit()
    needed = math.ceil(connections * 1.1) + SPARE_FILES
    if limit is not None and limit < needed:
        raise OpenFileLimitError(
            f"{connections} connections need {needed} open files, this process may have {limit}: "
            f"raise the limit (`ulimit -n {needed}` as an administrator, LimitNOFILE= in a service) "
            "or lower loads.closed"
        )


def ephemeral_ports() -> int | None:
    """Local ports for outgoing connections to one address; null where that is not told."""
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        low, high = map(int, text.split())
    except (OSError, ValueError):
        return None
    return high - low + 1


def require_ports(connections: int) -> None:
    """Check that a number of connections to one server can be open at once.

    Raises:
        EphemeralPortsError: there are too few local ports.
    """
    ports = ephemeral_ports()
    if ports is not None and connections > EPHEMERAL_SHARE * ports:
        raise EphemeralPortsError(
            f"{connections} connections to one server need more than the {ports} local ports of this machine: "
            'widen the range (`sysctl -w net.ipv4.ip_local_port_range="1024 65535"` as an administrator) '
            "or lower loads.closed"
        )
