"""What a request file asks of an engine, and how much speculation could give on it at the very best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from specbench.workloads.readers import OnBadRow, Scan, scan
from specbench.workloads.readers.azure_columns import AzureColumns, Columns, Unfit
from specbench.workloads.readers.stats import (
    ArrivalCounter,
    Arrivals,
    Counts,
    Distribution,
    Ints,
    PrefixCounter,
    PrefixReuse,
    copied_4grams,
)
from specbench.workloads.source_request import ReadReport, SourceRequest

PREFILL_TOKENS_PER_S: Final = 10_000.0
"""Stands for a measured prefill speed: about an 8B model on one data-centre GPU."""

DECODE_TOKENS_PER_S: Final = 60.0
"""Stands for a measured decode speed of one request without speculation, on the same."""

DECODE_SPEEDUP_CAP: Final = 3.0
"""A decode speedup that good drafts reach at low load: what the capped bound assumes."""

MAX_COPY_REQUESTS: Final = 20_000
"""Requests whose answers are searched for copied 4-grams; the first ones of the file."""

_CHUNK: Final = 4096


class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """Engine speeds that the bound rests on, tokens/s of one request without speculation."""

    prefill_tokens_per_s: float = PREFILL_TOKENS_PER_S
    decode_tokens_per_s: float = DECODE_TOKENS_PER_S
    decode_speedup_cap: float = DECODE_SPEEDUP_CAP
    chars_per_token: float | None = None
    """Estimate unrecorded lengths from text; null leaves them unknown."""


class Copying(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the recorded answers n-gram drafting could copy from the prompts."""

    requests: int
    answer_4grams: int
    copied_share: float
    """4-grams of the answers (words and marks) that are in the prompt, over all of them."""


class DecodeBound(msgspec.Struct, frozen=True, kw_only=True):
    """The most that speculation could speed up this mix, end to end, when only decoding gets faster.

    Amdahl's law over the summed times of all requests with known lengths: the prefill emits the first
    token, the other output tokens are decoded. Queueing, which speculation may shorten too, is left out.
    """

    requests: int
    prefill_tokens: int
    decode_tokens: int
    decode_share: float
    """Share of the time spent decoding without speculation."""
    max_speedup: float | None
    """With decoding for free: 1 / prefill share; null when there is no prefill."""
    capped_speedup: float
    """With decoding ``decode_speedup_cap`` times as fast."""
    capped_speedup_ideal_prefix_cache: float | None
    """The same when an infinite prefix cache takes its share of the prefill; null without block ids."""
    estimated: bool
    """Whether lengths were estimated from text."""
    speeds: Speeds


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `inspect` says about a file. Quantiles are exact (above 2^20 to three digits)."""

    report: ReadReport
    prompt_tokens: Distribution | None
    output_tokens: Distribution | None
    max_tokens: Distribution | None
    prompt_chars: Distribution | None
    arrivals: Arrivals | None
    prefix: PrefixReuse | None
    copying: Copying | None
    categories: dict[str, int]
    sessions: int
    bound: DecodeBound | None
    why_no_bound: str | None


def decode_bound(
    prefill_tokens: int,
    output_tokens: int,
    requests: int,
    speeds: Speeds,
    *,
    prefix_hit_ratio: float | None = None,
    estimated: bool = False,
) -> DecodeBound | None:
    """The bound of a mix by its token sums; null for a mix that takes no time.

    Source: G. Amdahl, AFIPS 1967: speedup = 1 / (s + (1 - s) / k), with s the share that stays as it is.
    """
    decode_tokens = max(0, output_tokens - requests)
    prefill_s = prefill_tokens / speeds.prefill_tokens_per_s
    decode_s = decode_tokens / speeds.decode_tokens_per_s
    total_s = prefill_s + decode_s
    if total_s <= 0:
        return None

    def capped(prefill: float) -> float:
        return (prefill + decode_s) / (prefill + decode_s / speeds.decode_speedup_cap)

    cached = None
    if prefix_hit_ratio is not None and prefill_s * (1 - prefix_hit_ratio) + decode_s > 0:
        cached = capped(prefill_s * (1 - prefix_hit_ratio))
    return DecodeBound(
        requests=requests,
        prefill_tokens=prefill_tokens,
        decode_tokens=decode_tokens,
        decode_share=decode_s / total_s,
        max_speedup=total_s / prefill_s if prefill_s > 0 else None,
        capped_speedup=capped(prefill_s),
        capped_speedup_ideal_prefix_cache=cached,
        estimated=estimated,
        speeds=speeds,
    )


class _Accumulator:
    """Takes requests or columns, in file order, and sums up."""

    def __init__(self, speeds: Speeds) -> None:
        self._speeds = speeds
        self._prompt, self._output, self._cap, self._chars = Counts(), Counts(), Counts(), Counts()
        self._arrivals = ArrivalCounter()
        self._prefix = PrefixCounter()
        self._categories: dict[str, int] = {}
        self._sessions: set[str] = set()
        self._copied = self._grams = self._answers = 0
        self._prefill_sum = self._output_sum = self._both = 0
        self._estimated = False

    def add_columns(self, columns: Columns) -> None:
        """A block of rows of known lengths and times."""
        self._arrivals.add(columns.time_ns)
        self._lengths(columns.prompt_tokens, columns.output_tokens)

    def add_requests(self, pairs: list[tuple[int | None, SourceRequest]]) -> None:
        """A block of requests with their times."""
        times = [time for time, _ in pairs if time is not None]
        if times:
            self._arrivals.add(np.array(times, np.int64))
        requests = [request for _, request in pairs]
        self._lengths(
            _column([r.prompt_tokens for r in requests]), _column([r.output_tokens for r in requests])
        )
        self._cap.add(_column([r.max_tokens for r in requests]))
        chars = []
        for request in requests:
            if request.category is not None:
                self._categories[request.category] = self._categories.get(request.category, 0) + 1
            if request.session_id is not None:
                self._sessions.add(request.session_id)
            if request.shape is not None and request.shape.prefix is not None:
                prefix = request.shape.prefix
                session = request.session_id if prefix.scope == "session" else None
                self._prefix.add(prefix.ids, prefix.block_tokens, session)
            text = request.text()
            if text is not None:
                chars.append(len(text))
                self._text(request, text)
        self._chars.add(_column(chars))

    def _text(self, request: SourceRequest, text: str) -> None:
        answer = request.reference
        if answer is not None and self._answers < MAX_COPY_REQUESTS:
            copied, grams = copied_4grams(text, answer)
            self._answers += 1
            self._copied += copied
            self._grams += grams
        if self._speeds.chars_per_token is None:
            return
        prompt, output = request.prompt_tokens, request.output_tokens
        if (prompt is not None and output is not None) or (output is None and answer is None):
            return
        per_token = self._speeds.chars_per_token
        self._both += 1
        self._prefill_sum += prompt if prompt is not None else max(1, round(len(text) / per_token))
        self._output_sum += output if output is not None else max(1, round(len(answer or "") / per_token))
        self._estimated = True

    def _lengths(self, prompt: Ints, output: Ints) -> None:
        self._prompt.add(prompt)
        self._output.add(output)
        both = (prompt >= 0) & (output >= 0)
        self._both += int(both.sum())
        self._prefill_sum += int(prompt[both].sum())
        self._output_sum += int(output[both].sum())

    def result(self, report: ReadReport) -> Inspection:
        """The summary; call once."""
        prefix = self._prefix.summary()
        bound = decode_bound(
            self._prefill_sum,
            self._output_sum,
            self._both,
            self._speeds,
            prefix_hit_ratio=prefix.hit_ratio if prefix else None,
            estimated=self._estimated,
        )
        return Inspection(
            report=report,
            prompt_tokens=self._prompt.summary(),
            output_tokens=self._output.summary(),
            max_tokens=self._cap.summary(),
            prompt_chars=self._chars.summary(),
            arrivals=self._arrivals.summary(),
            prefix=prefix,
            copying=Copying(
                requests=self._answers,
                answer_4grams=self._grams,
                copied_share=self._copied / self._grams,
            )
            if self._grams
            else None,
            categories=dict(sorted(self._categories.items(), key=lambda item: -item[1])),
            sessions=len(self._sessions),
            bound=bound,
            why_no_bound=None if bound else self._why_no_bound(),
        )

    def _why_no_bound(self) -> str:
        if self._chars.n and self._answers and self._speeds.chars_per_token is None:
            return "no token counts recorded: --chars-per-token 4 estimates them from the text"
        return "no request has both a prompt and an output length"


def inspect_file(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    on_bad_row: OnBadRow = "error",
    encoding: str | None = None,
    speeds: Speeds | None = None,
) -> Inspection:
    """Read a file once, in bounded memory, and sum it up.

    Raises:
        ReadError: as `specbench.workloads.readers.scan`.
    """
    speeds = speeds or Speeds()
    if format in {None, "azure"}:
        try:
            columns = AzureColumns(Path(path), encoding=encoding)
            accumulator = _Accumulator(speeds)
            for block in columns:
                accumulator.add_columns(block)
            return accumulator.result(columns.report)
        except Unfit:
            pass  # read it row by row, which says what is wrong and where
    one_pass = scan(path, format=format, on_bad_row=on_bad_row, encoding=encoding)
    accumulator = _Accumulator(speeds)
    for chunk in _chunks(one_pass):
        accumulator.add_requests(chunk)
    one_pass.finish([])
    return accumulator.result(one_pass.report)


def inspect_requests(
    requests: list[SourceRequest], report: ReadReport, speeds: Speeds | None = None
) -> Inspection:
    """Sum up requests that are already read."""
    accumulator = _Accumulator(speeds or Speeds())
    pairs = [(None if r.arrival_s is None else round(r.arrival_s * 1e9), r) for r in requests]
    accumulator.add_requests(pairs)
    return accumulator.result(report)


def _chunks(one_pass: Scan) -> Iterator[list[tuple[int | None, SourceRequest]]]:
    chunk = []
    for pair in one_pass:
        chunk.append(pair)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _column(values: list[int | None] | list[int]) -> Ints:
    """Unknown becomes -1, which the counters leave out."""
    return np.array([-1 if value is None else value for value in values], np.int64)
