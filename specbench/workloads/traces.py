"""Length and arrival summaries of public traces that come with specbench, and requests drawn from them.

``datasets/traces/NAME.yaml``: numbers only, each with its source, licence and how it was computed.
"""

from __future__ import annotations

import bisect
import difflib
import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import msgspec

from specbench.workloads.arrivals import gamma_times, seed_of
from specbench.workloads.readers.sampling import allocate
from specbench.workloads.shipped import datasets_folder
from specbench.workloads.source_request import Shape, Source, SourceRequest

_PARTS: Final = 10**9
"""Cell weights may be probabilities: they are scaled to whole numbers of this sum."""


class UnknownTrace(ValueError):
    """No shipped trace has this name."""


class TraceSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the numbers come from."""

    repository: str
    path: str
    licence: str
    commit: str | None = None
    paper: str | None = None
    read_via: str | None = None
    """Set when somebody else computed the numbers."""


class Joint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prompt and output tokens together: a histogram with the means inside its cells.

    Bins are half-open ``[edge, next)``; the last edge is null (no upper end).
    ``cells`` are (prompt bin, output bin, weight, mean prompt, mean output); empty ones are left out.
    """

    prompt_edges: tuple[int | None, ...]
    output_edges: tuple[int | None, ...]
    cells: tuple[tuple[int, int, float, float, float], ...]


class TraceArrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mean rate, and the CV of gamma gaps that stands for its burstiness; ``how`` says what that is worth."""

    rate_per_s: float
    gap_cv: float
    how: str
    dispersion: dict[str, float] = {}
    """Index of dispersion of counts (variance over mean) by window; 1 is Poisson."""


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One trace. Quantiles are keyed ``min``, ``p1`` ... ``p99``, ``max`` and ``mean``, as far as known."""

    title: str
    source: TraceSource
    computed: str
    requests: int
    prompt_tokens: dict[str, float]
    output_tokens: dict[str, float]
    joint: Joint | None = None
    arrivals: TraceArrivals | None = None
    think_time_s: dict[str, float] = {}
    requests_per_session: dict[str, float] = {}
    prefix: dict[str, float] = {}

    def credit(self, name: str) -> str:
        """One line for a report."""
        kind = "jointly" if self.joint is not None else "prompt and output independently (no joint table)"
        return (
            f"lengths: drawn {kind} from the summary {name} ({self.source.repository}, "
            f"{self.source.licence}; {self.computed})"
        )


def trace_names() -> tuple[str, ...]:
    """Names of the shipped traces, sorted."""
    return tuple(sorted(path.stem for path in (datasets_folder() / "traces").glob("*.yaml")))


@cache
def shipped_trace(name: str) -> Trace:
    """A shipped trace.

    Raises:
        UnknownTrace: there is no such name; the message lists them and guesses the one that was meant.
    """
    names = trace_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UnknownTrace(f"no shipped trace is called {name!r}{hint} (there are {', '.join(names)})")
    return msgspec.yaml.decode((datasets_folder() / "traces" / f"{name}.yaml").read_bytes(), type=Trace)


def draw(name: str, trace: Trace, count: int, label: str) -> list[SourceRequest]:
    """``count`` requests of known lengths and no text, in random order; ``label`` alone decides the draw.

    With a joint table every cell gives its share (largest remainder), and inside a cell lengths have the
    cell's own means. Without one, prompt and output are independent draws along their quantiles.
    """
    rng = random.Random(seed_of("trace", name, label, count))  # noqa: S311 - a sample, not a secret
    if trace.joint is not None:
        pairs = _from_joint(trace.joint, trace, count, rng)
    else:
        prompts, outputs = (
            _from_quantiles(q, count, rng) for q in (trace.prompt_tokens, trace.output_tokens)
        )
        pairs = list(zip(prompts, outputs, strict=True))
    rng.shuffle(pairs)
    return [
        SourceRequest(
            id=f"{name}-{i:05d}",
            source=Source(file=f"{name}.yaml", line=i),
            shape=Shape(prompt_tokens=prompt),
            prompt_tokens=prompt,
            output_tokens=output,
            text_source="none",
        )
        for i, (prompt, output) in enumerate(pairs, 1)
    ]


def draw_arrivals(name: str, arrivals: TraceArrivals, count: int, label: str) -> list[float]:
    """``count`` arrival times from 0 in seconds: gamma gaps of the trace's rate and CV."""
    return gamma_times(arrivals.rate_per_s, 1 / arrivals.gap_cv**2, count, f"{name}/{label}")


def _from_joint(joint: Joint, trace: Trace, count: int, rng: random.Random) -> list[tuple[int, int]]:
    total = math.fsum(cell[2] for cell in joint.cells)
    weights = {i: max(1, round(cell[2] / total * _PARTS)) for i, cell in enumerate(joint.cells)}
    pairs = []
    for i, n in sorted(allocate(weights, count).items()):
        p, o, _, prompt_mean, output_mean = joint.cells[i]
        prompt = _inside(joint.prompt_edges, p, prompt_mean, trace.prompt_tokens.get("max"), rng)
        output = _inside(joint.output_edges, o, output_mean, trace.output_tokens.get("max"), rng)
        pairs += [(prompt(), output()) for _ in range(n)]
    return pairs


def _inside(
    edges: Sequence[int | None], place: int, mean: float, top: float | None, rng: random.Random
) -> Callable[[], int]:
    """Draws from a bin whose mean is known: uniform on either side of it, sides weighted to keep it.

    With weights (hi - m)/(hi - lo) below m and (m - lo)/(hi - lo) above, the mean is m exactly.
    """
    low = float(edges[place] or 0)
    upper = edges[place + 1]
    high = float(upper) - 1 if upper is not None else max(top or 0.0, 2 * mean - low)
    middle = min(max(mean, low), max(high, low))

    def one() -> int:
        if high <= low:
            return max(1, round(low))
        below = rng.random() < (high - middle) / (high - low)
        value = rng.uniform(low, middle) if below else rng.uniform(middle, high)
        return max(1, round(value))

    return one


def _from_quantiles(quantiles: dict[str, float], count: int, rng: random.Random) -> list[int]:
    """Along the quantiles, straight in log length; beyond the known ones the outermost stays."""
    places = {"min": 0.0, "max": 1.0}
    places.update({k: float(k[1:]) / 100 for k in quantiles if k.startswith("p")})
    points = sorted((places[k], math.log(max(1.0, v))) for k, v in quantiles.items() if k in places)
    shares = [share for share, _ in points]
    values = []
    for i in range(count):
        u = (i + rng.random()) / count
        right = bisect.bisect(shares, u)
        if right in {0, len(points)}:
            log = points[min(right, len(points) - 1)][1]
        else:
            (s0, v0), (s1, v1) = points[right - 1], points[right]
            log = v0 + (v1 - v0) * (u - s0) / (s1 - s0)
        values.append(max(1, round(math.exp(log))))
    rng.shuffle(values)
    return values
