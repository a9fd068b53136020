"""Requests before the measurement: they compile, fill and settle the engine, and leave no records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench.load.closed import run_closed
from specbench.load.progress import Progress
from specbench.load.transport import Transport
from specbench.workloads.request import Request


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How warm-up went; ``first_error`` is null when every request finished."""

    ok: int
    failed: int
    first_error: str | None


async def warm_up(
    transport: Transport, requests: Sequence[Request], concurrency: int, *, progress: Progress | None = None
) -> WarmUp:
    """Send each request once at a concurrency. No requests means no warm-up.

    Raises:
        ValueError: the concurrency is not positive.
    """
    if not requests:
        return WarmUp(0, 0, None)
    run = await run_closed(transport, requests, concurrency, progress=progress)
    failed = [r for r in run.records if not r.ok]
    first = f"{failed[0].error_class}: {failed[0].error}" if failed else None
    return WarmUp(len(run.records) - len(failed), len(failed), first)
