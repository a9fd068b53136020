"""How far a cell is: plain counters that the load adds to and a display may read at any time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """Shared with whoever watches; reading it costs nothing and disturbs nothing.

    Attributes:
        planned: requests that the cell will send, when that number is fixed.
        admitted: requests sent so far.
        in_flight: sent and not ended.
        completed: ended well.
        errors: ended badly.
        tokens: output tokens received, by the engine's count.
    """

    planned: int | None = None
    admitted: int = 0
    in_flight: int = 0
    completed: int = 0
    errors: int = 0
    tokens: int = 0
