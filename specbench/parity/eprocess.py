"""An e-process: evidence against a lossless arm that may be looked at after every token.

``M_n = mean_m exp(sum_t [theta_m u_m(x_t) - log E_p exp(theta_m u_m)])`` over a grid of directions and tilts
is a martingale with mean 1 under the baseline's law, so ``P(M ever reaches 1/alpha) <= alpha`` (Ville). The
smallest tilts make a zone of indifference: small numerical noise does not add up to an alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import logsumexp

from specbench.parity.data import Floats, Tokens
from specbench.parity.scores import directions_of

GRID: Final[dict[int, tuple[float, ...]]] = {
    0: (-0.3, -0.1, -0.05, 0.05, 0.1, 0.3),
    1: (-1.0, -0.3, -0.1, 0.1, 0.3, 1.0),
    2: (-0.7, -0.2, 0.2, 0.7),
    3: (-0.3, -0.1, -0.05, 0.05, 0.1, 0.3),
    4: (-0.5, -0.15, 0.15, 0.5),
}
"""Direction of `scores` to the tilts tried along it."""

BLOCK: Final = 16_384
"""Tokens worked on at a time: the arrays of one block take some tens of MB."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The process after all tokens.

    Attributes:
        log_max: largest log M on the way.
        crossed: token number, from 1, at which M first reached 1/alpha; null if it never did.
        alpha: the level.
    """

    log_max: float
    crossed: int | None
    alpha: float

    @property
    def p(self) -> float:
        """An anytime-valid p-value: 1 / max M."""
        return float(np.exp(-max(self.log_max, 0.0)))


def e_process(tokens: Tokens, alpha: float = 0.001) -> Evidence:
    """Run the process over tokens in the order given; exact from top-k logprobs."""
    state: Floats | None = None
    log_max, crossed = -np.inf, None
    for start in range(0, len(tokens), BLOCK):
        steps = _increments(tokens.part(start, start + BLOCK))
        if state is None:
            state = np.zeros(steps.shape[1])
        path = state + np.cumsum(steps, axis=0)
        log_m = logsumexp(path, axis=1) - np.log(path.shape[1])
        if crossed is None and (hit := np.flatnonzero(log_m >= -np.log(alpha))).size:
            crossed = start + int(hit[0]) + 1
        log_max = max(log_max, float(log_m.max()))
        state = path[-1]
    return Evidence(log_max, crossed, alpha)


def _increments(tokens: Tokens) -> Floats:
    """log of each component's factor at each token, [N, components]."""
    weights, place, directions = directions_of(tokens)
    rows = np.arange(len(tokens))
    columns = []
    for a, g in directions.items():
        centred = g - (weights * g).sum(axis=1)[:, None]
        own = centred[rows, place]
        for theta in GRID[a]:
            expected = (weights * np.exp(theta * centred)).sum(axis=1)
            columns.append(theta * own - np.log(expected))
    return np.stack(columns, axis=1)
