"""How ``specbench workload`` looks on a terminal. Prints; computes nothing but widths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specbench.report.formatting import DASH, clean, count, duration, number, percent, times
from specbench.workloads.inspect import DecodeBound, Inspection
from specbench.workloads.public import PublicSet
from specbench.workloads.readers.base import Format
from specbench.workloads.readers.stats import Arrivals, Distribution
from specbench.workloads.shipped import ShippedDataset
from specbench.workloads.source_request import ReadReport
from specbench.workloads.traces import Trace

BAR_CHARS = 36
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_COLUMNS = 60
SHOWN_BAD_ROWS = 10


def show_inspection(inspection: Inspection, name: str, console: Console) -> None:
    """Everything about a file, for a person."""
    console.print(Text(clean(name), style="bold"))
    show_report(inspection.report, console)
    distributions = (
        ("prompt tokens", inspection.prompt_tokens),
        ("output tokens", inspection.output_tokens),
        ("output cap, tokens", inspection.max_tokens),
        ("prompt characters", inspection.prompt_chars),
    )
    present = [(label, d) for label, d in distributions if d is not None]
    if present:
        _heading(console, "Lengths")
        _show_quantiles(present, console)
    for label, distribution in present:
        if label in {"prompt tokens", "output tokens"} or (
            label == "prompt characters" and inspection.prompt_tokens is None
        ):
            _show_histogram(label, distribution, console)
    if inspection.arrivals is not None:
        _show_arrivals(inspection.arrivals, console)
    _show_content(inspection, console)
    _show_bound(inspection.bound, inspection.why_no_bound, console)


def show_report(report: ReadReport, console: Console) -> None:
    """What became of the rows."""
    console.print(
        f"{report.format}: {count(report.rows_read)} rows read, {count(report.loaded)} loaded"
        + "".join(f", {count(n)} dropped ({reason})" for reason, n in report.dropped.items())
        + (f", {count(report.bad)} malformed" if report.bad else ""),
        soft_wrap=True,
    )
    for repair, n in report.warnings.items():
        console.print(Text(f"  repaired or noticed: {repair} {count(n)}", style="yellow"))
    for note, n in report.notes.items():
        console.print(Text(f"  note: {note} {count(n)}", style="dim"))
    for line, reason in report.bad_lines[:SHOWN_BAD_ROWS]:
        console.print(Text(f"  bad row {line}: {clean(reason)}", style="yellow"), soft_wrap=True)
    if report.bad > SHOWN_BAD_ROWS:
        console.print(Text(f"  ... and {count(report.bad - SHOWN_BAD_ROWS)} more (--json lists them)"))


def show_formats(formats: Iterable[Format], datasets: Mapping[str, ShippedDataset], console: Console) -> None:
    """The formats that are read and the datasets that are shipped."""
    console.print(Text("Formats", style="bold"))
    table = _table("format", "what it is", "file")
    for known in formats:
        table.add_row(known.name, known.title, ", ".join(sorted(known.kinds)))
    console.print(table)
    console.print("Any of them may be gzipped. The content decides, not the name; --format overrides it.")
    _heading(console, "Shipped datasets")
    table = _table("dataset", "what it is")
    for name, dataset in datasets.items():
        table.add_row(name, dataset.description)
    console.print(table)


def show_traces(traces: Mapping[str, Trace], public: Mapping[str, PublicSet], console: Console) -> None:
    """Lengths that are shipped as numbers, and files that can be fetched."""
    _heading(console, "Shipped traces (workload.lengths.source)")
    table = _table("trace", "what it is", "prompt p50", "output p50", "licence", right=(2, 3))
    for name, trace in traces.items():
        p50 = [count(q.get("p50")) for q in (trace.prompt_tokens, trace.output_tokens)]
        table.add_row(name, trace.title, *p50, trace.source.licence)
    console.print(table)
    _heading(console, "Public sets (workload fetch NAME)")
    table = _table("set", "what it is", "licence")
    for name, entry in public.items():
        table.add_row(name, entry.title, entry.licence)
    console.print(table)


def _show_quantiles(rows: list[tuple[str, Distribution]], console: Console) -> None:
    names = list(rows[0][1].quantiles)
    table = _table("", "known", "mean", *names, "max", right=range(1, 4 + len(names)))
    for label, d in rows:
        values = [count(d.quantiles[name]) for name in names]
        table.add_row(label, count(d.n), count(d.mean), *values, count(d.max))
    console.print(table)


def _show_histogram(label: str, distribution: Distribution, console: Console) -> None:
    _heading(console, label)
    fullest = max(n for _, _, n in distribution.histogram)
    width = len(count(distribution.histogram[-1][0]))
    for low, _, n in distribution.histogram:
        line = Text(f"{count(low):>{width}}+ ", style="dim")
        line.append(_bar(n / fullest), style="cyan")
        line.append(f" {percent(n / distribution.n)}", style="dim")
        console.print(line)


def _bar(share: float) -> str:
    eighths = max(round(share * BAR_CHARS * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _show_arrivals(arrivals: Arrivals, console: Console) -> None:
    _heading(console, "Arrivals")
    if arrivals.why_null is not None:
        console.print(f"{count(arrivals.n)} arrivals; no statistics: {arrivals.why_null}")
        return
    console.print(
        f"{number(arrivals.rate_per_s)} requests/s over {duration(arrivals.span_s)}; "
        f"peak second {times(arrivals.peak_to_mean_1s)} the mean"
    )
    console.print(
        f"CV of gaps {number(arrivals.gap_cv)}; index of dispersion {number(arrivals.dispersion_1s)} at 1 s, "
        f"{number(arrivals.dispersion_60s)} at 60 s (a Poisson process has 1)",
        soft_wrap=True,
    )
    spark, bin_s = _spark(arrivals)
    console.print(Text(spark, style="cyan"))
    console.print(Text(f"arrivals per {duration(bin_s)}", style="dim"))


def _spark(arrivals: Arrivals) -> tuple[str, float]:
    """(the timeline in at most ``_SPARK_COLUMNS`` blocks, seconds per block)."""
    per = -(-len(arrivals.timeline) // _SPARK_COLUMNS)
    sums = [sum(arrivals.timeline[i : i + per]) for i in range(0, len(arrivals.timeline), per)]
    top = max(sums)
    blocks = "".join(_SPARKS[round(n / top * (len(_SPARKS) - 1))] if n else " " for n in sums)
    return blocks, per * arrivals.timeline_bin_s


def _show_content(inspection: Inspection, console: Console) -> None:
    lines = []
    if inspection.categories:
        shown = [f"{clean(name)} {count(n)}" for name, n in list(inspection.categories.items())[:12]]
        lines.append("categories: " + ", ".join(shown) + (", ..." if len(inspection.categories) > 12 else ""))
    if inspection.sessions:
        lines.append(f"sessions: {count(inspection.sessions)}")
    if inspection.prefix is not None:
        p = inspection.prefix
        lines.append(
            f"prefix reuse: {percent(p.hit_ratio)} of {count(p.blocks)} blocks of {p.block_tokens} tokens "
            "would come from an infinite prefix cache" + (" (first rows only)" if p.truncated else "")
        )
    if inspection.copying is not None:
        c = inspection.copying
        lines.append(
            f"copying: {percent(c.copied_share)} of the answers' 4-grams (words) are in the prompt "
            f"({count(c.requests)} answers): what n-gram drafting could copy"
        )
    if lines:
        _heading(console, "Content")
        for line in lines:
            console.print(line, soft_wrap=True)


def _show_bound(bound: DecodeBound | None, why: str | None, console: Console) -> None:
    _heading(console, "What speculation could give at most")
    if bound is None:
        console.print(f"{DASH} {why}", soft_wrap=True)
        return
    speeds = bound.speeds
    console.print(
        f"decoding is {percent(bound.decode_share)} of the time at "
        f"{number(speeds.prefill_tokens_per_s)} prefill and "
        f"{number(speeds.decode_tokens_per_s)} decode tokens/s "
        "(--prefill-tps, --decode-tps: give your measured ones)",
        soft_wrap=True,
    )
    most = times(bound.max_speedup) if bound.max_speedup is not None else "unbounded"
    cached = (
        ""
        if bound.capped_speedup_ideal_prefix_cache is None
        else f"; {times(bound.capped_speedup_ideal_prefix_cache)} with an ideal prefix cache"
    )
    console.print(
        f"end to end: {most} if decoding were free, {times(bound.capped_speedup)} if it were "
        f"{times(speeds.decode_speedup_cap)} as fast{cached}",
        soft_wrap=True,
    )
    if bound.estimated:
        console.print(
            Text(
                f"lengths estimated at {number(speeds.chars_per_token)} characters per token", style="yellow"
            )
        )


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _table(*columns: str, right: Iterable[int] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    aligned = set(right)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in aligned else "left", overflow="fold", no_wrap=i == 0)
    return table
