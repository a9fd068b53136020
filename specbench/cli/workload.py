"""``specbench workload``: look at request files, convert, sample and fetch them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from specbench.analysis.speeds import MeasuredSpeeds, NoSpeedsError, measured_speeds
from specbench.cli.errors import CliError
from specbench.cli.workload_view import show_formats, show_inspection, show_report, show_traces
from specbench.runs.files import RunFileError
from specbench.runs.rundir import RunDir
from specbench.verdict.exit_codes import ExitCode
from specbench.workloads.inspect import (
    DECODE_SPEEDUP_CAP,
    DECODE_TOKENS_PER_S,
    PREFILL_TOKENS_PER_S,
    Inspection,
    Speeds,
    inspect_file,
    inspect_requests,
)
from specbench.workloads.public import FetchError, fetch, public_set, public_sets
from specbench.workloads.readers import FORMATS, ReadError, read
from specbench.workloads.readers.converting import convert_file
from specbench.workloads.readers.sampling import sample_file
from specbench.workloads.readers.specbench_requests import header, write
from specbench.workloads.shipped import shipped_datasets
from specbench.workloads.source_request import ReadReport, SourceRequest
from specbench.workloads.traces import shipped_trace, trace_names

T = TypeVar("T")


class OnBadRowChoice(StrEnum):
    """What a malformed row does."""

    ERROR = "error"
    SKIP = "skip"


FileArgument = Annotated[Path, typer.Argument(help="The request file; its content tells the format.")]
OutArgument = Annotated[Path, typer.Argument(help="The JSONL file to write (specbench.requests/1).")]
FormatOption = Annotated[
    str | None, typer.Option("--format", "-f", help="Read it as this format (see `workload list`).")
]
BadRowOption = Annotated[
    OnBadRowChoice, typer.Option("--on-bad-row", help="Stop at a malformed row, or count it and go on.")
]
EncodingOption = Annotated[
    str | None, typer.Option("--encoding", help="Character encoding, when it is not UTF-8.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the sub-commands."""
    workload = typer.Typer(
        help="Look at request files, convert, sample and fetch them.", no_args_is_help=True
    )
    workload.command("inspect")(_inspect)
    workload.command("convert")(_convert)
    workload.command("sample")(_sample)
    workload.command("list")(_list)
    workload.command("fetch")(_fetch)
    app.add_typer(workload, name="workload")


def _inspect(
    file: FileArgument,
    as_json: JsonOption = False,
    requests: Annotated[
        bool, typer.Option("--requests", help="Print every request too (holds the file in memory).")
    ] = False,
    format: FormatOption = None,  # noqa: A002
    on_bad_row: BadRowOption = OnBadRowChoice.ERROR,
    encoding: EncodingOption = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the lengths and arrivals here.")] = None,
    prefill_tps: Annotated[
        float | None,
        typer.Option(
            "--prefill-tps", min=1e-9, help=f"Prefill tokens/s, for the bound ({PREFILL_TOKENS_PER_S:g})."
        ),
    ] = None,
    decode_tps: Annotated[
        float | None,
        typer.Option(
            "--decode-tps",
            min=1e-9,
            help=f"Decode tokens/s of one request, for the bound ({DECODE_TOKENS_PER_S:g}).",
        ),
    ] = None,
    decode_cap: Annotated[
        float, typer.Option("--decode-cap", min=1, help="Decode speedup of the capped bound.")
    ] = DECODE_SPEEDUP_CAP,
    chars_per_token: Annotated[
        float | None,
        typer.Option(
            "--chars-per-token", min=0.1, help="Estimate lengths that are not recorded, for the bound."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Take both speeds from the baseline of this run directory."),
    ] = None,
) -> None:
    """Say what a file holds, and the most speculation could give on it."""
    measured = _measured(run) if run is not None else None
    if measured is not None:
        prefill_tps = prefill_tps or measured.prefill_tokens_per_s
        decode_tps = decode_tps or measured.decode_tokens_per_s
    speeds = Speeds(
        prefill_tokens_per_s=prefill_tps or PREFILL_TOKENS_PER_S,
        decode_tokens_per_s=decode_tps or DECODE_TOKENS_PER_S,
        decode_speedup_cap=decode_cap,
        chars_per_token=chars_per_token,
    )
    loaded: list[SourceRequest] | None = None
    if requests:
        loaded, report = _reading(
            lambda: read(file, format=format, on_bad_row=on_bad_row.value, encoding=encoding)
        )
        inspection = inspect_requests(loaded, report, speeds)
    else:
        inspection = _reading(
            lambda: inspect_file(
                file, format=format, on_bad_row=on_bad_row.value, encoding=encoding, speeds=speeds
            )
        )
    if plot is not None:
        _plot(inspection, file, plot)
    if as_json:
        _echo_json(inspection_data(inspection, loaded))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    show_inspection(inspection, file.name, console)
    if measured is not None:
        console.print(
            f"speeds of the baseline of {run} at {measured.load} ({measured.requests} requests, prompts of "
            f"{measured.prompt_tokens_median:g} tokens at the median; longer ones prefill faster)",
            soft_wrap=True,
        )
    for request in loaded or ():
        console.print(msgspec.json.encode(request).decode(), soft_wrap=True)


def _convert(
    file: FileArgument,
    out: OutArgument,
    format: FormatOption = None,  # noqa: A002
    on_bad_row: BadRowOption = OnBadRowChoice.ERROR,
    encoding: EncodingOption = None,
) -> None:
    """Write all requests of a file as specbench.requests/1."""
    _distinct(file, out)
    report = _reading(
        lambda: convert_file(file, out, format=format, on_bad_row=on_bad_row.value, encoding=encoding)
    )
    _done(report, out)


def _sample(
    file: FileArgument,
    out: OutArgument,
    n: Annotated[int, typer.Option("-n", min=1, help="How many requests.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the choice.")] = 1,
    format: FormatOption = None,  # noqa: A002
    on_bad_row: BadRowOption = OnBadRowChoice.ERROR,
    encoding: EncodingOption = None,
) -> None:
    """Write a sample with the joint lengths of the file, in arrival order."""
    _distinct(file, out)
    requests, report = _reading(
        lambda: sample_file(file, n, seed=seed, format=format, on_bad_row=on_bad_row.value, encoding=encoding)
    )
    head = header(file, report) | {"sample": {"requests": len(requests), "seed": seed}}
    _writing(out, lambda: write(out, head, requests))
    _done(report, out, len(requests))


def _list(as_json: JsonOption = False) -> None:
    """List the formats specbench reads and the datasets it ships."""
    shipped, public = shipped_datasets(), public_sets()
    if as_json:
        _echo_json(
            {
                "formats": [
                    {"name": known.name, "title": known.title, "kinds": sorted(known.kinds)}
                    for known in FORMATS
                ],
                "datasets": [{"name": name, "description": s.description} for name, s in shipped.items()],
                "traces": [
                    {"name": name, "title": shipped_trace(name).title, "source": shipped_trace(name).source}
                    for name in trace_names()
                ],
                "public": [
                    {"name": name, "title": s.title, "licence": s.licence} for name, s in public.items()
                ],
            }
        )
        return
    console = Console(highlight=False, markup=False, emoji=False)
    show_formats(FORMATS, shipped, console)
    traces = {name: shipped_trace(name) for name in trace_names()}
    show_traces(traces, public, console)


def _fetch(
    name: Annotated[str, typer.Argument(help="A public set (see `workload list`).")],
    out: Annotated[
        Path | None, typer.Option("--out", help="File or folder to write; its own name here if absent.")
    ] = None,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="You have read the licence and keep to it.")
    ] = False,
) -> None:
    """Download a public set, with its checksum checked."""
    console = Console(highlight=False, markup=False, emoji=False)
    try:
        entry = public_set(name)
        target = Path(entry.file) if out is None else out / entry.file if out.is_dir() else out
        console.print(f"{name}: {entry.title}\nlicence: {entry.licence}\npage: {entry.page}", soft_wrap=True)
        if entry.caution:
            console.print(Text(f"note: {entry.caution}", style="yellow"), soft_wrap=True)
        if not accept_licence:
            raise CliError("read the licence on that page, then add --accept-licence")
        if not target.parent.is_dir():
            raise CliError(f"{target}: name a file in a folder that exists")
        found = fetch(entry, target)
    except FetchError as error:
        raise CliError(str(error), ExitCode.ENVIRONMENT) from None
    checked = "checksum right" if entry.sha256 else f"checksum unknown to specbench: sha256 {found}"
    console.print(f"wrote {target} ({checked})", soft_wrap=True)


def _measured(run: Path) -> MeasuredSpeeds:
    try:
        return measured_speeds(RunDir.open(run))
    except RunFileError as error:
        raise CliError(str(error), ExitCode.ENVIRONMENT) from None
    except NoSpeedsError as error:
        raise CliError(str(error)) from None


def inspection_data(inspection: Inspection, requests: list[SourceRequest] | None) -> dict[str, Any]:
    """The inspection as data; ``requests`` only when they were asked for. Keys never change meaning."""
    report = inspection.report
    statistics = msgspec.to_builtins(inspection)
    del statistics["report"]
    data: dict[str, Any] = {
        "format": report.format,
        "rows_read": report.rows_read,
        "loaded": report.loaded,
        "dropped": report.dropped,
        "bad": report.bad,
        "bad_lines": [line for line, _ in report.bad_lines],
        "bad_rows": [{"line": line, "reason": reason} for line, reason in report.bad_lines],
        "warnings": report.warnings,
        "notes": report.notes,
        "statistics": statistics,
    }
    if requests is not None:
        data["requests"] = [_request_data(request) for request in requests]
    return data


def _request_data(request: SourceRequest) -> dict[str, Any]:
    """Every field, null where unknown."""
    return {name: msgspec.to_builtins(getattr(request, name)) for name in SourceRequest.__struct_fields__}


def _reading(work: Callable[[], T]) -> T:
    """Run what reads a file; what is wrong with it becomes the message of the command."""
    try:
        return work()
    except ReadError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"{error.filename or 'the file'}: {error.strerror or error}") from None


def _writing(out: Path, work: Callable[[], object]) -> None:
    try:
        work()
    except OSError as error:
        raise CliError(f"{out}: cannot be written: {error.strerror or error}") from None


def _distinct(file: Path, out: Path) -> None:
    if out.exists() and file.exists() and out.samefile(file):
        raise CliError(f"{out}: this is the file that is read: name another one to write")
    if out.is_dir() or not out.parent.is_dir():
        raise CliError(f"{out}: name a file in a folder that exists")


def _done(report: ReadReport, out: Path, sampled: int | None = None) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    show_report(report, console)
    written = report.loaded if sampled is None else sampled
    console.print(f"wrote {written:,} requests to {out}", soft_wrap=True)
    if sampled is not None and sampled < report.loaded:
        console.print(
            "Arrival times are as recorded, so the rate is that of the sample: stretch time to replay it."
        )


def _plot(inspection: Inspection, file: Path, plot: Path) -> None:
    from specbench.cli.workload_plot import draw  # matplotlib is slow to import

    _writing(plot, lambda: draw(inspection, file.name, plot))


def _echo_json(data: dict[str, Any]) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
