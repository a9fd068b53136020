"""How many requests ran in production, from what Prometheus kept: text snapshots and query_range answers.

A file may hold any number of metrics pages one after another, any number of ``/api/v1/query_range`` answers, or
both. Of all that only the gauge of running requests is read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

METRICS: Final = ("vllm:num_requests_running", "sglang:num_running_reqs")
"""What the engines call it. Stores that allow no colon write an underscore."""

_NAMES: Final = frozenset((*METRICS, *(name.replace(":", "_") for name in METRICS)))
_ADDED: Final = ("engine", "dp_rank")
"""Labels of the parts of one server, each with requests of its own."""
_REPEATED: Final = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of parts that all run the same requests."""

_LINE: Final = re.compile(r"([a-zA-Z_:][\w:]*)")
GAP: Final = 5.0
"""A pause between samples that is longer than so many usual ones is not counted as time: nobody looked."""


class ProductionError(ValueError):
    """The file cannot be used; the message says where, why and the mend."""


@dataclass(frozen=True, slots=True)
class Running:
    """Time spent with so many requests in flight at one server.

    Attributes:
        sha256: hex digest of the file.
        metrics: names of the series that were read.
        servers: how many servers they come from.
        samples: values read.
        seconds: total time; null when no sample had a time, and each counts the same.
        share: requests in flight to the share of the time, adding up to 1; 0 is an idle server.
    """

    sha256: str
    metrics: tuple[str, ...]
    servers: int
    samples: int
    seconds: float | None
    share: dict[float, float]


@dataclass(frozen=True, slots=True)
class Binned:
    """The same by the loads that were measured; idle time has no load and is left out.

    ``below`` and ``above`` are the shares outside of the measured concurrencies: they are counted at the ends.
    """

    share: dict[int, float]
    idle: float
    below: float
    above: float


@dataclass(slots=True)
class _Series:
    """One server: samples (moment, part, value). Of ``untimed`` ones the moment is the number of their page."""

    samples: list[tuple[float, tuple[str, ...], float]] = field(default_factory=list)
    untimed: int = 0


def read_running(path: Path) -> Running:
    """Read a dump.

    Raises:
        ProductionError: not readable, not in either format, or without a sample of running requests.
    """
    try:
        if path.exists() and not path.is_file():
            raise ProductionError(f"{path}: is not a regular file: name the file that the dump was saved to")
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise ProductionError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProductionError(f"{path}:{line}: not UTF-8: save Prometheus' answer as it is") from None
    reader = _Reader(path)
    reader.read(text)
    if not reader.servers:
        raise ProductionError(
            f"{path}: holds no sample of {' or '.join(METRICS)}: save metrics pages of the production server, or "
            f"the answer of /api/v1/query_range?query={METRICS[0]}"
        )
    weights: dict[float, float] = {}
    timed: set[bool] = set()
    for series in reader.servers.values():
        points, has_times = _points(series)
        timed |= {has_times} if series.untimed in (0, len(series.samples)) else {True, False}
        for running, seconds in points:
            weights[running] = weights.get(running, 0.0) + seconds
    if len(timed) > 1:
        raise ProductionError(
            f"{path}: some samples have a time and some do not, so they cannot be weighed: keep one kind"
        )
    total = math.fsum(weights.values())
    return Running(
        sha256=hashlib.sha256(raw).hexdigest(),
        metrics=tuple(sorted(reader.metrics)),
        servers=len(reader.servers),
        samples=sum(len(s.samples) for s in reader.servers.values()),
        seconds=total if timed == {True} else None,
        share={n: w / total for n, w in sorted(weights.items())},
    )


def binned(running: Mapping[float, float], concurrencies: Sequence[int]) -> Binned | None:
    """To the nearest measured concurrency, on a scale of logarithms; null when the server was idle all the time.

    Args:
        running: `Running.share`.
        concurrencies: at least one.
    """
    levels = sorted(concurrencies)
    busy = {n: w for n, w in running.items() if n > 0}
    total = math.fsum(busy.values())
    if not total:
        return None
    share = dict.fromkeys(levels, 0.0)
    for n, w in busy.items():
        share[min(levels, key=lambda c: (abs(math.log(n / c)), c))] += w / total
    return Binned(
        share=share,
        idle=1.0 - total / math.fsum(running.values()),
        below=math.fsum(w for n, w in busy.items() if n < levels[0]) / total,
        above=math.fsum(w for n, w in busy.items() if n > levels[-1]) / total,
    )


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.servers: dict[tuple[str, ...], _Series] = {}
        self.metrics: set[str] = set()
        self.pages = 0

    def read(self, text: str) -> None:
        """Metrics lines and JSON answers in any order."""
        line, at = 1, 0
        decoder = json.JSONDecoder()
        page: set[tuple[str, ...]] = set()
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            words = text[at:end].strip()
            if words.startswith("{"):
                start = text.index("{", at)
                try:
                    answer, stop = decoder.raw_decode(text, start)
                except ValueError as error:
                    raise self._error(
                        line, f"JSON that cannot be read ({error}): save the whole answer"
                    ) from None
                self._answer(answer, line)
                line += text.count("\n", at, stop)
                newline = text[stop : stop + 1] == "\n"
                at, line = stop + newline, line + newline
                page = set()
                continue
            self._line(words, line, page)
            at, line = end + 1, line + 1

    def _line(self, words: str, line: int, page: set[tuple[str, ...]]) -> None:
        """One line of a metrics page; a series that comes again begins the next page."""
        if not words or words.startswith("#"):
            return
        name = _LINE.match(words)
        if name is None:
            raise self._error(line, f"{words[:60]!r} is neither a metrics line nor JSON")
        if name[1] not in _NAMES:
            return
        try:
            (sample,) = next(iter(text_string_to_metric_families(words + "\n"))).samples
        except (ValueError, StopIteration) as error:
            raise self._error(line, f"not a metrics line ({error})") from None
        time_s = None if sample.timestamp is None else float(sample.timestamp)
        key = (name[1], *sorted(f"{k}={v}" for k, v in sample.labels.items()))
        if key in page:
            page.clear()
            self.pages += 1
        page.add(key)
        self._add(name[1], sample.labels, time_s, sample.value, line)

    def _answer(self, answer: Any, line: int) -> None:
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            problem = answer.get("error") if isinstance(answer, dict) else None
            said = f": it says {str(problem)[:200]!r}" if problem else ""
            raise self._error(line, f"not an answer of Prometheus{said}")
        if data.get("resultType") != "matrix":
            kind = data.get("resultType")
            raise self._error(
                line, f"an answer of type {kind!r} holds one moment only: use /api/v1/query_range"
            )
        self.pages += 1
        for series in data["result"]:
            try:
                labels, values = dict(series["metric"]), list(series["values"])
                points = [(float(t), float(v)) for t, v in values]
            except (KeyError, TypeError, ValueError) as error:
                raise self._error(line, f"a series of the answer cannot be read ({error})") from None
            name = labels.pop("__name__", "")
            if name and name not in _NAMES:
                raise self._error(line, f"the answer is of {name!r}: ask for {' or '.join(METRICS)}")
            for t, v in points:
                if not math.isnan(v):
                    self._add(name or "an expression", labels, t, v, line)

    def _add(self, name: str, labels: Mapping[str, str], t: float | None, value: float, line: int) -> None:
        if not math.isfinite(value) or value < 0:
            raise self._error(line, f"{value} requests in flight: not a number of requests")
        parts = (*_ADDED, *_REPEATED)
        server = (name, *sorted(f"{k}={v}" for k, v in labels.items() if k not in parts))
        self.metrics.add(name)
        series = self.servers.setdefault(server, _Series())
        part = tuple(str(labels.get(k, "")) for k in parts)
        # Without times, all parts of a server that stand on one page belong to one moment.
        moment = float(self.pages) if t is None else t
        series.samples.append((moment, part, value))
        series.untimed += t is None

    def _error(self, line: int, text: str) -> ProductionError:
        return ProductionError(f"{self.path}:{line}: {text}")


def _points(series: _Series) -> tuple[list[tuple[float, float]], bool]:
    """(requests in flight, seconds or 1) of a server, and whether those are seconds."""
    by_time: dict[float, dict[tuple[str, ...], float]] = {}
    for t, part, value in series.samples:
        by_time.setdefault(t, {})[part] = value
    running = [(t, _at_once(parts)) for t, parts in sorted(by_time.items())]
    if series.untimed:
        return [(n, 1.0) for _, n in running], False
    steps = [b - a for (a, _), (b, _) in itertools.pairwise(running)]
    usual = statistics.median(steps) if steps else 1.0
    held = [step if step <= GAP * usual else usual for step in steps]
    return [(n, step) for (_, n), step in zip(running, [*held, usual], strict=True)], True


def _at_once(parts: Mapping[tuple[str, ...], float]) -> float:
    """Requests of a server at one moment: added over its data-parallel parts, once for the parts of each."""
    ranks: dict[tuple[str, ...], float] = {}
    for part, value in parts.items():
        rank = part[: len(_ADDED)]
        ranks[rank] = max(ranks.get(rank, 0.0), value)
    return math.fsum(ranks.values())
