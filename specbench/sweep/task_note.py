"""Said before anything starts: whether the prompts of a parity check can settle the margin of its task level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbench.engines.base import Problem
from specbench.parity.task_power import USUAL_DISCORDANT, largest_discordant, prompts_needed

if TYPE_CHECKING:
    from specbench.config.model import Config


def task_problems(config: Config, prompts: int) -> list[Problem]:
    """Notes, never fatal.

    Args:
        prompts: distinct ones that the workload has.
    """
    section = config.parity.task
    if section is None:
        return []
    from specbench.sweep.parity import PROMPTS  # not for every command: it brings tables with it

    found = []
    if config.parity.tier is None:
        text = "`sweep` checks no parity without a tier, so it scores nothing"
        found.append(Problem("parity.task", text, "set parity.tier, or run `specbench parity`", fatal=False))
    wanted = config.parity.prompts or PROMPTS[config.parity.tier or "gate"]
    used, needed = min(wanted, prompts), prompts_needed(USUAL_DISCORDANT, section.margin)
    if used < needed:
        share, points = largest_discordant(used, section.margin), f"{section.margin * 100:g} points"
        text = (
            f"{used:,} prompts cannot settle {points}, even if none differs"
            if share is None
            else f"{used:,} prompts settle {points} only if < {share * 100:.2g} % of the prompts differ"
        )
        mend = f"set parity.prompts to {needed:,} (enough if 5 % differ)" + (
            f", with a workload of as many distinct prompts (this has {prompts:,})"
            if prompts < needed
            else ""
        )
        found.append(Problem("parity.task.margin", text, f"{mend}, or a wider margin", fatal=False))
    return found
