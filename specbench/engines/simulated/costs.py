"""What a step costs: a linear model with a launch effect and step noise, in milliseconds.

``T = c0 + c1 n + prefill + K (d0 + d1 b)``: n tokens in flight are 1 + drafted tokens of every
running sequence, so verification grows with load while the floor c0 is shared. That is why
speculation pays at low load and stops paying at high load.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of the parts of a step, milliseconds.

    With the defaults a draft of four tokens that yields 2.5 tokens per step wins up to a load of
    about 20 and loses beyond.
    """

    base_ms: float = 10.0
    """c0: paid once a step, weights are read whatever the batch is."""
    token_ms: float = 0.2
    """c1: per decode token in flight, drafted ones included."""
    prefill_ms: float = 0.02
    """Per prompt token computed in the step."""
    draft_base_ms: float = 0.5
    """d0: one forward pass of the draft model."""
    draft_sequence_ms: float = 0.02
    """d1: per drafted sequence and draft pass."""
    lookup_ms: float = 0.02
    """n-gram lookup, per running sequence."""

    def step_ms(
        self,
        *,
        sequences: int,
        draft_tokens: int,
        prefill_tokens: int = 0,
        draft_passes: int = 0,
        lookups: int = 0,
    ) -> float:
        """Noise-free duration of a step.

        Args:
            sequences: sequences that decode in the step.
            draft_tokens: their drafted tokens, all together.
            prefill_tokens: prompt tokens computed in the step.
            draft_passes: forward passes of a draft model (K), 0 without one.
            lookups: sequences searched by n-gram lookup.
        """
        return (
            self.base_ms
            + self.token_ms * (sequences + draft_tokens)
            + self.prefill_ms * prefill_tokens
            + draft_passes * (self.draft_base_ms + self.draft_sequence_ms * sequences)
            + self.lookup_ms * lookups
        )


@dataclass(slots=True)
class Noise:
    """Multiplicative lognormal noise: one factor for the launch, one for every step."""

    launch_factor: float
    step_sd: float
    rng: np.random.Generator

    @classmethod
    def of(cls, launch_sd: float, step_sd: float, launch_seed: int | None) -> Noise:
        """Draw a launch. Without a seed every launch differs."""
        rng = np.random.default_rng(launch_seed)
        return cls(float(np.exp(launch_sd * rng.standard_normal())), step_sd, rng)

    def factor(self) -> float:
        """The factor of the next step."""
        if not self.step_sd:
            return self.launch_factor
        return self.launch_factor * float(np.exp(self.step_sd * self.rng.standard_normal()))
