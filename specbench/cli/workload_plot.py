"""The picture of ``specbench workload inspect --plot``: lengths and arrivals."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from specbench.workloads.inspect import Inspection
from specbench.workloads.readers.stats import Distribution

_COLOUR = "#2b6cb0"


def draw(inspection: Inspection, title: str, path: Path) -> None:
    """Write the picture in the format of the path's suffix.

    Raises:
        OSError: the file cannot be written.
    """
    lengths = [
        (label, distribution)
        for label, distribution in (
            ("prompt tokens", inspection.prompt_tokens),
            ("output tokens", inspection.output_tokens),
            ("prompt characters", inspection.prompt_chars),
        )
        if distribution is not None
    ]
    arrivals = inspection.arrivals
    timed = arrivals is not None and bool(arrivals.timeline)
    panels = len(lengths) + timed
    figure = Figure(figsize=(8, 2.4 * max(1, panels)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    axes = [figure.add_subplot(max(1, panels), 1, i + 1) for i in range(panels)]
    for axis, (label, distribution) in zip(axes, lengths, strict=False):
        _lengths(axis, label, distribution)
    if timed and arrivals is not None:
        axis = axes[-1]
        axis.stairs(
            arrivals.timeline,
            [i * arrivals.timeline_bin_s for i in range(len(arrivals.timeline) + 1)],
            fill=True,
            color=_COLOUR,
        )
        axis.set_xlabel("seconds from the first arrival")
        axis.set_ylabel(f"arrivals per {arrivals.timeline_bin_s:g} s")
    figure.savefig(path, dpi=120)


def _lengths(axis: Axes, label: str, distribution: Distribution) -> None:
    places = range(len(distribution.histogram))
    axis.bar(places, [n for _, _, n in distribution.histogram], width=0.95, color=_COLOUR)
    axis.set_xticks(list(places), [f"{low:,}" for low, _, _ in distribution.histogram], fontsize=7)
    axis.set_xlabel(f"{label}, from")
    axis.set_ylabel("requests")
