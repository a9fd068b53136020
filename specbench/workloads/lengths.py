"""Pairs of prompt and output lengths for a workload: from a trace file, or from a shipped summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from specbench.config.model import Lengths, TraceLoad, Workload
from specbench.config.source import is_path
from specbench.workloads.arrivals import seed_of
from specbench.workloads.context import Context
from specbench.workloads.loading import read_file
from specbench.workloads.readers.sampling import allocate
from specbench.workloads.readers.specbench_requests import sha256
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import SourceRequest
from specbench.workloads.traces import Trace, UnknownTrace, draw, draw_arrivals, shipped_trace

GRID: Final = 5
"""Strata of a sample: quintiles of the prompt length by quintiles of the output length."""

_SPARE: Final = 4
"""Summaries are drawn this many times over, then thinned to what fits the context."""


@dataclass(slots=True)
class LengthSource:
    """Where lengths come from. ``remarks`` grow with what drawing found.

    Attributes:
        name: for reports: a file's name, or a shipped trace's.
        key: what seeds the text of its blocks: the file's SHA-256, or the trace's name.
        rows: of a file, in order of arrival, those with a prompt length.
        summary: a shipped trace.
    """

    name: str
    key: str
    rows: list[SourceRequest] = field(default_factory=list)
    summary: Trace | None = None
    remarks: list[str] = field(default_factory=list)
    _drawn: int = 0
    _over: int = 0
    _left_out: str = ""

    def pairs(self, count: int, limit: Context | None, workload: Workload, label: str) -> list[SourceRequest]:
        """At least ``count`` requests if there are as many, stratified by joint length, that fit ``limit``.

        Raises:
            WorkloadError: none fits.
        """
        rows = self.rows
        if self.summary is not None:
            rows = draw(self.name, self.summary, count if limit is None else _SPARE * count, label)
        return sample_pairs(self._fitting(rows, limit, workload), count, label)

    def replay(
        self, load: TraceLoad, limit: Context | None, workload: Workload, label: str
    ) -> list[SourceRequest]:
        """Requests with arrival times, in that order, for a trace load; still unscaled.

        Raises:
            WorkloadError: there are no times, or none fits.
        """
        if self.summary is None:
            return self._fitting(self.rows, limit, workload)
        arrivals = self.summary.arrivals
        if arrivals is None:
            raise WorkloadError(
                [
                    f"workload.lengths.source: {self.name} has lengths but no arrival times: use loads.open "
                    "with a rate instead of loads.trace, or a trace file with times"
                ]
            )
        if load.seconds is None:
            raise WorkloadError(
                [
                    f"loads.trace.seconds: is needed with {self.name}: its arrivals are generated "
                    f"({arrivals.rate_per_s:g}/s, gamma gaps of CV {arrivals.gap_cv:g}), so they have no end"
                ]
            )
        count = max(2, math.ceil(arrivals.rate_per_s * load.seconds / load.time_scale))
        self._remark(
            f"arrivals: generated at {arrivals.rate_per_s:g}/s with gamma gaps of CV {arrivals.gap_cv:g}; "
            f"{arrivals.how}"
        )
        rows = draw(self.name, self.summary, count, label)
        times = draw_arrivals(self.name, arrivals, count, label)
        timed = [msgspec.structs.replace(r, arrival_s=t) for r, t in zip(rows, times, strict=True)]
        return self._fitting(timed, limit, workload)

    def _fitting(
        self, rows: Sequence[SourceRequest], limit: Context | None, workload: Workload
    ) -> list[SourceRequest]:
        """Rows whose prompt and capped output fit; the text is made to length, so lengths decide."""
        if limit is None:
            return list(rows)
        kept = [r for r in rows if (r.prompt_tokens or 0) + _cap(workload, r) <= limit.room]
        over = len(rows) - len(kept)
        if not kept:
            least = min((r.prompt_tokens or 0) + _cap(workload, r) for r in rows)
            raise WorkloadError(
                [
                    f"workload.lengths.source: none of {self.name} fits {limit}: the shortest needs {least}: "
                    "raise it, or lower workload.max_output_tokens"
                ]
            )
        self._drawn += len(rows)
        self._over += over
        if self._over:
            before = self._left_out
            self._left_out = (
                f"lengths: {self._over / self._drawn:.0%} of {self.name} do not fit {limit} and are left out, "
                "the same ones for every arm: what is measured is the shorter part of that traffic"
            )
            self.remarks[:] = [*(x for x in self.remarks if x != before), self._left_out]
        return kept

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)


def load_lengths(lengths: Lengths, base_dir: Path, *, skip: bool) -> LengthSource:
    """Read the trace file, or take the shipped summary.

    Raises:
        WorkloadError: neither exists, or the file has no prompt lengths.
    """
    if not is_path(lengths.source):
        try:
            trace = shipped_trace(lengths.source)
        except UnknownTrace as error:
            mend = f"; for a file write ./{lengths.source}" if "." in lengths.source else ""
            raise WorkloadError([f"workload.lengths.source: {error}{mend}"]) from None
        return LengthSource(
            lengths.source, lengths.source, summary=trace, remarks=[trace.credit(lengths.source)]
        )
    path = base_dir / Path(lengths.source).expanduser()
    rows, report = read_file(path, format=None, encoding=None, skip=skip)
    known = [r for r in rows if r.prompt_tokens]
    if not known:
        raise WorkloadError(
            [f"workload.lengths.source: {path.name} ({report.format}) records no prompt lengths"]
        )
    remarks = [f"lengths: {len(known)} requests of {path.name} ({report.format})"]
    left_out = [f"{n} {reason}" for reason, n in report.dropped.items()]
    left_out += [f"{report.bad} malformed"] if report.bad else []
    left_out += [f"{len(rows) - len(known)} without a prompt length"] if len(known) < len(rows) else []
    if left_out:
        remarks.append(f"lengths: left out of {path.name}: {', '.join(left_out)}")
    return LengthSource(path.name, sha256(path), rows=known, remarks=remarks)


def sample_pairs(rows: Sequence[SourceRequest], count: int, label: str) -> list[SourceRequest]:
    """``count`` of the rows (all, if there are no more), stratified by joint length, in their order.

    Strata are the cells of a 5 x 5 grid of quantiles; each gives in proportion (largest remainder), and
    inside it the rows with the least SHA-256 of label and id are taken.
    """
    if len(rows) <= count:
        return list(rows)
    prompt = np.array([r.prompt_tokens or 0 for r in rows], np.float64)
    output = np.array([r.output_tokens or 0 for r in rows], np.float64)
    cells = (_quintile(prompt) * GRID + _quintile(output)).tolist()
    counts: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for i, cell in enumerate(cells):
        counts[cell] = counts.get(cell, 0) + 1
        members.setdefault(cell, []).append(i)
    chosen: list[int] = []
    for cell, n in allocate(counts, count).items():
        by_key = sorted(members[cell], key=lambda i: seed_of("pairs", label, rows[i].id))
        chosen += by_key[:n]
    return [rows[i] for i in sorted(chosen)]


def _quintile(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    edges = np.quantile(values, [i / GRID for i in range(1, GRID)])
    return np.searchsorted(edges, values, side="right")


def _cap(workload: Workload, row: SourceRequest) -> int:
    return min(workload.max_output_tokens, row.output_tokens or workload.max_output_tokens)
