"""How much acceptance an arm needs at a load: below it, speculation costs more than it gains."""

from __future__ import annotations


def break_even(rate: float | None, tokens_per_step: float | None, speedup: float | None) -> float | None:
    """The acceptance rate at which an arm would be just as fast as the baseline.

    With g draft tokens per step and acceptance rate a a step yields t = 1 + g a tokens, and the speed-up is
    S = t / r, where r is what a step costs over one of the baseline: verification, draft and all. What a step costs
    does not depend on how much of it is accepted, so S = 1 at t = r, which is a (t / S - 1) / (t - 1).

    Args:
        rate: accepted over proposed draft tokens.
        tokens_per_step: of a request, steps without a draft included.
        speedup: of output tokens/s in a closed loop.

    Returns:
        0 where a step costs no more than one of the baseline; above 1 where not even a perfect draft with this K
        would pay. Null where a figure is missing or nothing was accepted.
    """
    if not rate or tokens_per_step is None or not speedup or tokens_per_step <= 1:
        return None
    return max(0.0, rate * (tokens_per_step / speedup - 1) / (tokens_per_step - 1))
