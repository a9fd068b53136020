"""How many prompts it takes to show that two mean scores are equal."""

from __future__ import annotations

import math
from typing import Final

Z95: Final = 1.645
"""Normal quantile of each of the two one-sided tests at 5 %, and of a power of 90 % when nothing differs."""

NONE_SEEN: Final = -math.log(0.05)
"""Upper 95 % bound of a Poisson mean when no event was seen: about 3."""

USUAL_DISCORDANT: Final = 0.05
"""Share of prompts that correct engines score differently, for a forecast: rounding forks some texts."""


def prompts_needed(variance: float, margin: float) -> int:
    """Prompts with which TOST finds equality within ``margin`` nine times in ten, if there is no difference.

    n = (z + z)^2 var(d) / margin^2 (Chow, Shao, Wang, Lokhnygina: Sample Size Calculations in Clinical Research,
    3.1.3, for paired differences d), and never fewer than show it when no prompt differs. For scores of 0 and 1
    var(d) is the share of prompts whose score differs (McNemar's discordant pairs) when the means are equal.
    """
    return max(math.ceil((2 * Z95) ** 2 * variance / margin**2), math.floor(NONE_SEEN / margin) + 1)


def largest_discordant(prompts: int, margin: float) -> float | None:
    """Share of prompts that may be scored differently for ``margin`` to be settled; null if not even 0 may."""
    if NONE_SEEN / prompts >= margin:
        return None
    return min(1.0, prompts * margin**2 / (2 * Z95) ** 2)
