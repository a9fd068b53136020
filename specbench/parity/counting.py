"""Counts of rare events in two arms."""

from __future__ import annotations

from dataclasses import dataclass

from scipy import special


@dataclass(frozen=True, slots=True)
class Counted:
    """Events among tokens (or outputs) of an arm and of the baseline."""

    arm: int
    arm_of: int
    baseline: int
    baseline_of: int

    @property
    def p_more(self) -> float:
        """One-sided p-value that the arm's rate is higher: binomial, given the total number of events."""
        total = self.arm + self.baseline
        if total == 0:
            return 1.0
        return float(special.bdtrc(self.arm - 1, total, self.arm_of / (self.arm_of + self.baseline_of)))

    @property
    def excess_upper95(self) -> float:
        """Upper 95% bound of the arm's rate above the baseline's; 3/N when neither has an event.

        Exact Poisson bound of the arm's count less the baseline's expected one.
        """
        upper = float(special.chdtri(2 * (self.arm + 1), 0.05)) / 2
        expected = self.baseline * self.arm_of / self.baseline_of if self.baseline_of else 0.0
        # Taking away what the baseline shows must never promise more than seeing nothing would.
        return max(upper - expected, zero_upper95()) / self.arm_of if self.arm_of else 1.0


def zero_upper95() -> float:
    """Upper 95% bound of a Poisson mean when nothing was seen: about 3."""
    return float(special.chdtri(2, 0.05)) / 2
