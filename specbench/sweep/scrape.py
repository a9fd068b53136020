"""Reading the engine's counters beside a running cell."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import aiohttp

from specbench.observe.prometheus import parse
from specbench.runs.records import CellCounters, Scrape

if TYPE_CHECKING:
    from specbench.engines.base import Engine
    from specbench.observe.counters import EngineCounters

At = Literal["start", "window_open", "window_close", "end"]

SETTLE_TIMEOUT_S: Final = 10.0
SETTLE_POLL_S: Final = 0.1
REQUEST_TIMEOUT_S: Final = 30.0


@dataclass(slots=True)
class CounterLog:
    """The scrapes of one cell. A failed scrape is recorded and never ends a cell."""

    engine: Engine
    base_url: str
    session: aiohttp.ClientSession
    taken: list[tuple[At, float, float, EngineCounters, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def take(self, at: At) -> None:
        """Scrape and keep, stamped with the wall clock before and after."""
        asked = time.time()
        read = await self._read(at)
        if read is not None:
            counters, text = read
            self.taken.append((at, asked, time.time(), counters, text))

    async def settled(self, at: At) -> None:
        """Scrape once the engine says that nothing runs or waits; after a bounded wait, scrape anyway."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            asked = time.time()
            read = await self._read(at)
            if read is None:
                return
            counters, text = read
            busy = (counters.running or 0) + (counters.waiting or 0)
            if busy == 0 or time.monotonic() > deadline:
                if busy:
                    self.errors.append(
                        f"{at}: the engine still had {busy:.0f} requests after {SETTLE_TIMEOUT_S:.0f} s"
                    )
                self.taken.append((at, asked, time.time(), counters, text))
                return
            await asyncio.sleep(SETTLE_POLL_S)

    async def _read(self, at: str) -> tuple[EngineCounters, str] | None:
        try:
            timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
            async with self.session.get(
                self.base_url + self.engine.metrics_path, timeout=timeout
            ) as response:
                text = await response.text()
                if response.status != 200:
                    self.errors.append(f"{at}: HTTP {response.status} from {self.engine.metrics_path}")
                    return None
            return self.engine.counters(parse(text)), text
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self.errors.append(f"{at}: {type(error).__name__}: {error}")
            return None

    def record(self, epoch_unix_s: float) -> CellCounters:
        """Everything, on the cell's clock."""
        return CellCounters(
            scrapes=tuple(
                Scrape(
                    at=at,
                    asked_s=asked - epoch_unix_s,
                    t_s=answered - epoch_unix_s,
                    canonical=dataclasses.asdict(counters),
                    raw=text,
                )
                for at, asked, answered, counters, text in self.taken
            ),
            errors=tuple(self.errors),
        )
