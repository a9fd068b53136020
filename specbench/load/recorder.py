"""What a cell's load leaves behind, kept where a cancelled caller can still reach it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specbench.load.record import RequestRecord


@dataclass(frozen=True, slots=True)
class CellRun:
    """The requests of one cell and its window of steady load.

    Attributes:
        records: in the order of admission.
        concurrency: requests kept in flight.
        epoch_unix: wall-clock time of the records' zero, in seconds since 1970.
        opened_s: when the first ``concurrency`` requests had ended; null when that never came, or too late.
        closed_s: when the last request was admitted; null when the load was cut short.
        end_s: when the last request ended.
        cancelled: the caller stopped the cell.
        aborted: why the load stopped by itself; null when it did not.
    """

    records: tuple[RequestRecord, ...]
    concurrency: int
    epoch_unix: float
    opened_s: float | None
    closed_s: float | None
    end_s: float
    cancelled: bool = False
    aborted: str | None = None
    offered_per_s: float | None = None
    """Open and trace loads: arrivals per second of the schedule, without turns that wait for others."""
    delivered_per_s: float | None = None
    """The same arrivals by when they were sent; null as long as it cannot be told."""

    def send_lateness_s(self) -> list[float]:
        """Sent minus intended of each request after the first wave.

        In a closed loop the first ``concurrency`` requests are due in the same instant, which no client can
        meet; they lie outside the window anyway. Elsewhere ``concurrency`` is 0 and every request counts.
        """
        late = (r.sent_s - r.intended_s for r in self.records[self.concurrency :] if r.sent_s is not None)
        return [max(0.0, seconds) for seconds in late]


@dataclass(slots=True)
class Recorder:
    """Collects a cell while it runs. After a cancellation `result` gives what there is."""

    concurrency: int = 0
    epoch_unix: float = 0.0
    records: list[RequestRecord] = field(default_factory=list)
    opened_s: float | None = None
    closed_s: float | None = None
    cancelled: bool = False
    aborted: str | None = None
    offered_per_s: float | None = None
    delivered_per_s: float | None = None

    def result(self) -> CellRun:
        """The cell as far as it came."""
        return CellRun(
            records=tuple(self.records),
            concurrency=self.concurrency,
            epoch_unix=self.epoch_unix,
            opened_s=self.opened_s,
            closed_s=self.closed_s,
            end_s=max((r.end_s for r in self.records if r.end_s is not None), default=0.0),
            cancelled=self.cancelled,
            aborted=self.aborted,
            offered_per_s=self.offered_per_s,
            delivered_per_s=self.delivered_per_s,
        )
