"""What the tables of every format say: one row per arm, one `Cell` per number, each null with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from specbench.report import formatting as fmt
from specbench.report.model import ArmAtLoad, ArmSummary, CategoryCut, Note, Quantiles, Ratio, Result


@dataclass(frozen=True, slots=True)
class Cell:
    """One formatted value.

    ``why`` says why it is null, or what to keep in mind when it is not; ``footnote`` is false when
    the reason is plain from the row, so that a table need not spell it out below itself.
    """

    text: str
    why: str | None = None
    footnote: bool = True


NOT_APPLICABLE: Final = Cell(fmt.DASH, "the baseline does not speculate", footnote=False)


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One arm at one load, ready to print; latencies in milliseconds."""

    id: str
    """The arm as the result names it; ``arm`` is its printable name."""
    arm: str
    is_baseline: bool
    measured: bool
    """Whether there is a valid cell."""
    decision: str
    reasons: tuple[str, ...]
    cells: Cell
    tokens_per_s: Cell
    speedup: Cell
    ttft_p50: Cell
    ttft_p95: Cell
    tpot_p50: Cell
    tpot_p95: Cell
    length: Cell
    rate: Cell
    coverage: Cell
    tokens_per_step: Cell


KINDS = ("closed", "open", "trace")


def ordered_loads(result: Result) -> tuple[str, ...]:
    """Load ids from the lightest to the heaviest; loads without any result keep their place at the end."""
    heavy = {
        r.load: (KINDS.index(r.kind), r.offered_per_s or 0.0, r.concurrency) for r in reversed(result.results)
    }
    known = sorted((load for load in result.loads if load in heavy), key=lambda load: heavy[load])
    return (*known, *(load for load in result.loads if load not in heavy))


def load_title(result: Result, load: str) -> str:
    """``16 in flight``: what a load means in words; the load's id when nothing ran at it."""
    item = next((r for r in result.results if r.load == load), None)
    if item is None:
        return f"load {fmt.one_line(load)}"
    if item.kind == "closed":
        return f"{item.concurrency} in flight"
    return fmt.one_line(item.title or item.load)


def deploy_loads(result: Result) -> str:
    """``1, 4 requests in flight``, or the other loads in words, at which the recommended arm is GO."""
    if result.recommended is None:
        return ""
    parts = []
    if result.recommended.loads:
        parts.append(", ".join(fmt.count(c) for c in result.recommended.loads) + " requests in flight")
    kinds = {r.load: r.kind for r in result.results}
    others = [load for load in result.recommended.load_ids if kinds.get(load, "closed") != "closed"]
    return "; ".join(parts + [load_title(result, load) for load in others])


def open_lines(result: Result, load: str) -> list[str]:
    """What an open or trace load adds to its table, in sentences; none for a closed one."""
    items = [r for r in result.results if r.load == load and r.kind != "closed"]
    if not items:
        return []
    lines = [
        "Speedups at this load are of mean end-to-end latency: throughput is the offered one in every arm."
    ]
    for item in items:
        arm = fmt.one_line(item.arm)
        if item.latency_ms.n:
            q = item.latency_ms
            offered, delivered = fmt.number(item.offered_per_s), fmt.number(item.delivered_per_s)
            rate = f"; offered {offered}/s, delivered {delivered}/s" if item.offered_per_s else ""
            lines.append(
                f"{arm}: latency mean {fmt.number(q.mean)} ms, p50 {fmt.number(q.p50)} ms, "
                f"p95 {fmt.number(q.p95)} ms ({fmt.count(q.n)} requests){rate}"
            )
        if item.arm not in baseline_ids(result):
            lines += [
                f"{arm} with {cut.low} to {cut.high} running ({cut.name} third): {fmt.speedup(cut.speedup)}, "
                f"{fmt.number(cut.latency_ms)} ms, {fmt.count(cut.requests)} requests"
                for cut in item.load_bins
            ]
    return lines


TAIL_TITLES: Final = {"ttft_p95": "TTFT p95", "tpot_p99": "TPOT p99", "chunk_gap_p99": "chunk gap p99"}
KEPT: Final = {"pass": "kept", "fail": "not kept", "open": "open"}


def load_lines(result: Result, load: str) -> list[str]:
    """What a load adds to its table, in sentences."""
    lines = open_lines(result, load)
    for item in (r for r in result.results if r.load == load):
        lines += [*_tail_lines(item), *_adjusted_lines(item)]
    return lines


def _tail_lines(item: ArmAtLoad) -> list[str]:
    """Tails with a limit, and those that are clearly worse than the baseline's."""
    lines = []
    for t in item.tails:
        title = TAIL_TITLES.get(t.metric, t.metric)
        worse = t.ratio.low is not None and t.ratio.low > 1
        if not fmt.known(t.ratio.value) or not (worse or t.state is not None):
            continue
        limit = ""
        if t.margin is not None and t.state is not None:
            limit = f"; at most {fmt.times(1 + t.margin)} is allowed: {KEPT[t.state]}"
        lines.append(
            f"{fmt.one_line(item.arm)}: {title} is {fmt.speedup(t.ratio)} the baseline's (launch by launch){limit}"
        )
    return lines


def _adjusted_lines(item: ArmAtLoad) -> list[str]:
    """The control variate, where it is sharper than the plain ratio that the table and the verdict use."""
    adjusted, plain = item.speedup_adjusted, item.speedup
    if adjusted is None or None in (adjusted.low, adjusted.high, plain.low, plain.high):
        return []
    sharper = (adjusted.high or 0) / (adjusted.low or 1) < (plain.high or 0) / (plain.low or 1)
    if not sharper:
        return []
    return [
        f"{fmt.one_line(item.arm)}, acceptance control variate (not in the verdict): {fmt.speedup(adjusted)} "
        f"{fmt.one_line(item.adjustment or '')}"
    ]


def baseline_ids(result: Result) -> frozenset[str]:
    """Arms without speculation."""
    return frozenset(arm.arm for arm in result.arms if arm.method is None)


def load_rows(result: Result, load: str) -> list[LoadRow]:
    """The rows of one load, in the order of the arms."""
    baselines = baseline_ids(result)
    rows = []
    for arm in result.arms:
        item = result.at(arm.arm, load)
        if item is not None:
            rows.append(_load_row(result, item, arm.arm in baselines))
    return rows


def _load_row(result: Result, item: ArmAtLoad, is_baseline: bool) -> LoadRow:
    nothing = _no_cells(item)
    acceptance = item.acceptance

    def accepted(value: float | None, text: str) -> Cell:
        if is_baseline:
            return NOT_APPLICABLE
        return value_cell(value, text, acceptance.why_null or nothing or "the engine's counters do not say")

    return LoadRow(
        id=item.arm,
        arm=fmt.one_line(item.arm),
        is_baseline=is_baseline,
        measured=item.cells > 0,
        decision=decision(item, is_baseline),
        reasons=tuple(fmt.one_line(r) for r in item.reasons),
        cells=_cells(result, item),
        tokens_per_s=value_cell(
            item.output_tokens_per_s,
            fmt.number(item.output_tokens_per_s),
            nothing or "no launch had a steady window",
        ),
        speedup=NOT_APPLICABLE if is_baseline else _speedup(result, item, nothing),
        ttft_p50=_quantile(item.ttft_ms, item.ttft_ms.p50, nothing),
        ttft_p95=_quantile(item.ttft_ms, item.ttft_ms.p95, nothing, tail=True),
        tpot_p50=_quantile(item.tpot_ms, item.tpot_ms.p50, nothing),
        tpot_p95=_quantile(item.tpot_ms, item.tpot_ms.p95, nothing, tail=True),
        length=accepted(acceptance.length, fmt.number(acceptance.length)),
        rate=accepted(acceptance.rate, fmt.percent(acceptance.rate)),
        coverage=accepted(acceptance.coverage, fmt.percent(acceptance.coverage)),
        tokens_per_step=accepted(acceptance.tokens_per_step, fmt.number(acceptance.tokens_per_step)),
    )


def _speedup(result: Result, item: ArmAtLoad, nothing: str | None) -> Cell:
    cell = ratio_cell(item.speedup, nothing)
    if result.strategy == "adaptive" and item.stage == "explore" and fmt.known(item.speedup.value):
        return Cell(cell.text, "explored only: it helped to pick an arm and does not enter the verdict")
    return cell


def decision(item: ArmAtLoad | ArmSummary, is_baseline: bool) -> str:
    """The decision in words; a baseline that was measured is the reference, not a decision."""
    return "reference" if is_baseline and item.decision != "INVALID" else item.decision


def ratio_cell(ratio: Ratio, why: str | None = None) -> Cell:
    """A speedup with its interval; says why there is no value or no interval."""
    if not fmt.known(ratio.value):
        return Cell(fmt.DASH, ratio.why_null or why or "no round had this arm and the baseline")
    if not (fmt.known(ratio.low) and fmt.known(ratio.high)):
        one = "one round gives a value but no interval; run at least two"
        return Cell(
            fmt.speedup(ratio), ratio.why_null or (one if len(ratio.per_round) < 2 else "no interval")
        )
    return Cell(fmt.speedup(ratio))


def detail_rows(result: Result, load: str) -> list[tuple[str, tuple[Cell, ...]]]:
    """The numbers of one load that the main table has no room for; columns are `DETAIL_COLUMNS`."""
    rows: list[tuple[str, tuple[Cell, ...]]] = []
    for arm in result.arms:
        item = result.at(arm.arm, load)
        if item is None:
            continue
        nothing = _no_cells(item)
        silent = nothing or "the engine does not report it"
        failed = f" ({fmt.count(item.failed_requests)} failed)" if item.failed_requests else ""
        rows.append(
            (
                fmt.one_line(arm.arm),
                (
                    Cell(fmt.count(item.requests) + failed),
                    value_cell(
                        item.mean_output_tokens,
                        fmt.number(item.mean_output_tokens),
                        nothing or "no request finished",
                    ),
                    _quantile(item.ttft_ms, item.ttft_ms.p90, nothing),
                    _quantile(item.ttft_ms, item.ttft_ms.p99, nothing, extreme=True),
                    _quantile(item.tpot_ms, item.tpot_ms.p90, nothing),
                    _quantile(item.tpot_ms, item.tpot_ms.p99, nothing, extreme=True),
                    _quantile(item.chunk_gap_ms, item.chunk_gap_ms.p50, nothing),
                    _quantile(item.chunk_gap_ms, item.chunk_gap_ms.p95, nothing, tail=True),
                    value_cell(item.cached_prompt_share, fmt.percent(item.cached_prompt_share), silent),
                    value_cell(item.kv_usage_peak, fmt.percent(item.kv_usage_peak), silent),
                    value_cell(item.preemptions, fmt.number(item.preemptions), silent),
                    value_cell(
                        item.acceptance.break_even,
                        _needed(item.acceptance.break_even),
                        nothing or "not known without acceptance and a speed-up at a closed load",
                    ),
                    value_cell(
                        item.acceptance.client_tokens_per_chunk,
                        fmt.number(item.acceptance.client_tokens_per_chunk),
                        nothing or "the stream does not carry token counts",
                    ),
                    _launches(item.per_launch_tokens_per_s, nothing),
                ),
            )
        )
    return rows


def _needed(break_even: float | None) -> str:
    """An acceptance rate, or that none would do."""
    return "none would do" if break_even is not None and break_even > 1 else fmt.percent(break_even)


DETAIL_COLUMNS: Final = (
    "Requests",
    "Output tokens, mean",
    "TTFT p90, ms",
    "TTFT p99, ms",
    "TPOT p90, ms",
    "TPOT p99, ms",
    "Chunk gap p50, ms",
    "Chunk gap p95, ms",
    "Prompt from cache",
    "KV in use, peak",
    "Preemptions",
    "Break-even acceptance",
    "Tokens per chunk",
    "Tokens/s of each launch",
)


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """One category at one load: a cell per speculative arm, null where the arm has no such cut."""

    category: str
    requests: int
    cuts: tuple[tuple[Cell, Cell, Cell], ...]
    """TPOT speedup, TPOT in ms, tokens per chunk; in the order of `category_arms`."""


def category_arms(result: Result, load: str) -> tuple[str, ...]:
    """Speculative arms with category cuts at a load."""
    baselines = baseline_ids(result)
    return tuple(
        arm.arm
        for arm in result.arms
        if arm.arm not in baselines and (item := result.at(arm.arm, load)) is not None and item.categories
    )


def category_rows(result: Result, load: str) -> list[CategoryRow]:
    """One row per category, in the order of the result's categories."""
    arms = category_arms(result, load)
    cuts: dict[tuple[str, str], CategoryCut] = {}
    for arm in arms:
        item = result.at(arm, load)
        for cut in item.categories if item is not None else ():
            cuts[arm, cut.category] = cut
    names = dict.fromkeys([*result.categories, *(category for _, category in cuts)])
    rows = []
    for name in names:
        mine = [cuts.get((arm, name)) for arm in arms]
        if any(mine):
            requests = max(cut.requests for cut in mine if cut is not None)
            rows.append(CategoryRow(fmt.one_line(name), requests, tuple(_category_cells(c) for c in mine)))
    return rows


def _category_cells(cut: CategoryCut | None) -> tuple[Cell, Cell, Cell]:
    if cut is None:
        missing = Cell(fmt.DASH, "no request of this category finished")
        return (missing, missing, missing)
    return (
        ratio_cell(cut.tpot_speedup),
        value_cell(cut.tpot_ms, fmt.number(cut.tpot_ms), "no request had two tokens or more"),
        value_cell(
            cut.tokens_per_chunk, fmt.number(cut.tokens_per_chunk), "the stream does not carry token counts"
        ),
    )


def null_reasons(cells: Iterable[Cell]) -> list[str]:
    """Every distinct reason, in order of appearance: the footnotes of a table."""
    return list(dict.fromkeys(cell.why for cell in cells if cell.why and cell.footnote))


def value_cell(value: float | None, text: str, why: str) -> Cell:
    """``text`` when there is a finite value, else a null with its reason."""
    return Cell(text) if fmt.known(value) else Cell(fmt.DASH, why)


def _quantile(
    q: Quantiles, value: float | None, nothing: str | None, *, tail: bool = False, extreme: bool = False
) -> Cell:
    if not fmt.known(value):
        few = f"needs 1,000 values, has {q.n:,}" if extreme and q.n else "no request gave a value"
        return Cell(fmt.DASH, nothing or few)
    thin = "fewer than 200 values: the 95th percentile is uncertain"
    return Cell(fmt.number(value), thin if tail and q.thin else None)


def _launches(values: tuple[float, ...], nothing: str | None) -> Cell:
    if not values:
        return Cell(fmt.DASH, nothing or "no launch had a steady window")
    return Cell(", ".join(fmt.number(v) for v in values))


def _cells(result: Result, item: ArmAtLoad) -> Cell:
    total = item.cells + item.failed_cells + item.invalid_cells
    text = f"{item.cells}" if item.cells == total else f"{item.cells} of {total}"
    if result.strategy == "full" and total < result.rounds and not _lost(item):
        return Cell(text, f"{result.rounds - total} of {result.rounds} rounds not run")
    return Cell(text, f"cells: {_lost(item)}" if _lost(item) else None)


def _no_cells(item: ArmAtLoad) -> str | None:
    return None if item.cells else f"no valid cell ({_lost(item) or 'none ran'})"


def _lost(item: ArmAtLoad) -> str:
    counts = ((item.failed_cells, "failed"), (item.invalid_cells, "invalid"))
    return ", ".join(f"{number} {what}" for number, what in counts if number)


@dataclass(frozen=True, slots=True)
class NoteGroup:
    """Notes that ask for the same action."""

    code: str
    action: str
    messages: tuple[str, ...]


def grouped(notes: Iterable[Note]) -> list[NoteGroup]:
    """Notes of one code and action together, each message once, in order of first appearance."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for note in notes:
        key = (fmt.one_line(note.code), fmt.one_line(note.action))
        groups.setdefault(key, {})[fmt.one_line(note.message)] = None
    return [NoteGroup(code, action, tuple(messages)) for (code, action), messages in groups.items()]


ENGINE_COLUMNS: Final = (
    "Load",
    "Baseline tokens/s",
    "Baseline over the first engine's",
    "Fastest arm",
    "Its tokens/s",
    "Over the first engine's baseline",
)


def engine_rows(result: Result) -> list[tuple[str, tuple[Cell, ...]]]:
    """Engines beside each other, load by load; columns are `ENGINE_COLUMNS`. Empty for one engine."""
    return [
        (
            fmt.one_line(x.engine),
            (
                Cell(load_title(result, x.load)),
                value_cell(x.baseline_tokens_per_s, fmt.number(x.baseline_tokens_per_s), "no valid cell"),
                ratio_cell(x.baseline_ratio),
                Cell(fmt.one_line(x.fastest)),
                value_cell(x.fastest_tokens_per_s, fmt.number(x.fastest_tokens_per_s), "no valid cell"),
                ratio_cell(x.fastest_ratio),
            ),
        )
        for x in result.engines
    ]
