"""Small studies for tests, by the code of the benchmark."""

from __future__ import annotations

from functools import cache

import numpy as np

from benchmarks.parity.power import Scorer
from specbench.engines.simulated.batch import Drafting, TableModel, write
from specbench.parity.data import Tokens


@cache
def scorer() -> Scorer:
    return Scorer(TableModel())


def sampled(
    seed: int,
    verifier: str = "standard",
    drafting: Drafting = "sampled",
    outputs: int = 64,
    max_tokens: int = 256,
    *,
    top_p: float = 1.0,
    temperature: float = 1.0,
    noise: float = 0.0,
    with_draft: bool = True,
) -> Tokens:
    """Scored outputs of the simulated engine's verifiers on the tabulated model."""
    prompts = np.arange(outputs)
    written = write(
        scorer().model,
        prompts,
        max_tokens,
        np.random.default_rng(seed),
        drafting=drafting,
        verifier=verifier,
        top_p=top_p,
        temperature=temperature,
        logit_noise=noise,
    )
    return scorer().tokens(written, prompts, with_draft=with_draft)
