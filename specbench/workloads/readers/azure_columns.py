"""The week-long Azure traces (tens of millions of rows) read in blocks of columns.

Only what is clean throughout is read this way: anything that the row reader would refuse, mend or
have to name raises `Unfit`, and the caller reads the file row by row instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from specbench.workloads.readers.azure import OUTPUT, PROMPT, TIME
from specbench.workloads.readers.container import Source
from specbench.workloads.readers.record import MAX_TOKENS
from specbench.workloads.readers.stats import Ints
from specbench.workloads.source_request import ReadReport

MIN_BYTES: Final = 4 << 20
"""Smaller files are read row by row: as quick, and nothing to fall back from."""

_BLOCK_BYTES: Final = 4 << 20


class Unfit(Exception):
    """The file has to be read row by row."""


class Columns(msgspec.Struct, frozen=True):
    """Loaded rows of one block, in file order."""

    time_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    line: Ints


class AzureColumns:
    """One pass over a clean Azure CSV in bounded memory; ``report`` is complete when iteration ends.

    Raises:
        Unfit: on construction or on iteration.
    """

    def __init__(self, path: Path, *, encoding: str | None = None, min_bytes: int = MIN_BYTES) -> None:
        if encoding is not None or not path.is_file() or path.stat().st_size < min_bytes:
            raise Unfit
        self._source = Source(path)
        if self._source.kind != "csv" or self._source.encoding != "utf-8":
            raise Unfit
        lines = self._source.head_text().split("\n", 2)
        self._names = [name.strip().lower() for name in lines[0].split(",")]
        if len(lines) < 2 or {TIME, PROMPT, OUTPUT} - set(self._names) or "numimages" in self._names:
            raise Unfit
        stamp = lines[1].split(",")[self._names.index(TIME)].strip()
        self._zoned = stamp.endswith("Z") or "+" in stamp
        self.report = ReadReport(format="azure")
        self.earliest_ns: int | None = None

    def __iter__(self) -> Iterator[Columns]:
        """Blocks of rows."""
        import pyarrow as pa  # slow to import, and only this needs it

        try:
            yield from self._blocks(pa)
        except pa.ArrowInvalid as error:
            raise Unfit from error
        if self.report.rows_read == 0:
            raise Unfit

    def _blocks(self, pa: Any) -> Iterator[Columns]:
        import pyarrow.csv as pacsv

        for repair in self._source.warnings:
            self.report.warn(repair)
        last: int | None = None
        line = 2
        with self._source.damage(), self._source.open() as stream:
            reader = pacsv.open_csv(
                stream,
                read_options=pacsv.ReadOptions(
                    use_threads=False, block_size=_BLOCK_BYTES, skip_rows=1, column_names=self._names
                ),
                # An empty line would shift the line numbers: with this it does not fit the columns.
                parse_options=pacsv.ParseOptions(ignore_empty_lines=False, quote_char=False),
                convert_options=pacsv.ConvertOptions(
                    column_types={
                        TIME: pa.timestamp("ns", tz="UTC" if self._zoned else None),
                        PROMPT: pa.int64(),
                        OUTPUT: pa.int64(),
                    },
                    include_columns=[TIME, PROMPT, OUTPUT],
                    null_values=[""],
                ),
            )
            for batch in reader:
                if any(column.null_count for column in batch.columns):
                    raise Unfit
                times, prompt, output = (_ints(column, pa) for column in batch.columns)
                if not len(times):
                    continue
                if min(prompt.min(), output.min()) < 0 or max(prompt.max(), output.max()) > MAX_TOKENS:
                    raise Unfit
                self._account(times, prompt, output, last)
                last = int(times[-1])
                lines = np.arange(line, line + len(times), dtype=np.int64)
                line += len(times)
                kept = (prompt > 0) & (output > 0)
                yield Columns(times[kept], prompt[kept], output[kept], lines[kept])

    def _account(self, times: Ints, prompt: Ints, output: Ints, last: int | None) -> None:
        report = self.report
        report.rows_read += len(times)
        no_input = int((prompt == 0).sum())
        no_output = int(((prompt > 0) & (output == 0)).sum())
        for reason, count in (("zero_input", no_input), ("zero_output", no_output)):
            if count:
                report.dropped[reason] = report.dropped.get(reason, 0) + count
        report.loaded += len(times) - no_input - no_output
        back = int((np.diff(times) < 0).sum()) + int(last is not None and times[0] < last)
        if back:
            report.warn("out_of_order", back)
        first = int(times.min())
        if self.earliest_ns is None or first < self.earliest_ns:
            self.earliest_ns = first


def _ints(column: Any, pa: Any) -> Ints:
    values: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values
