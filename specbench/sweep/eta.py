"""How long is left: the plan's estimate, corrected by what the items so far really took."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Eta:
    """Estimates per kind of item (a start-up, a cell at a load), seconds.

    An item that has been seen is estimated by the mean of its kind; the others by the plan's figure times
    the ratio of measured to planned over everything seen.
    """

    planned: dict[str, float]
    left: dict[str, int]
    seen: dict[str, list[float]] = field(default_factory=dict)

    def done(self, kind: str, seconds: float) -> None:
        """One item of a kind ended after ``seconds``."""
        self.seen.setdefault(kind, []).append(seconds)
        self.skipped(kind)

    def skipped(self, kind: str) -> None:
        """One item of a kind will not be run."""
        self.left[kind] = max(0, self.left.get(kind, 0) - 1)

    def seconds(self) -> float:
        """What remains."""
        measured = sum(sum(v) for v in self.seen.values())
        planned = sum(self.planned.get(k, 0.0) * len(v) for k, v in self.seen.items())
        scale = measured / planned if planned > 0 and measured > 0 else 1.0
        total = 0.0
        for kind, n in self.left.items():
            own = self.seen.get(kind)
            each = sum(own) / len(own) if own else self.planned.get(kind, 0.0) * scale
            total += n * each
        return total
