"""What the parity check asks of an engine, apart from sending it: requests are written and answers read.

Outputs are asked for in the same way everywhere, as completions of prompts that are given as token ids.
Engines differ in how they tell the ids of a prompt, and how likely they find a text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from specbench.workloads.request import Request

COMPLETIONS_PATH: Final = "/v1/completions"
CHAT_PATH: Final = "/v1/chat/completions"


class NotTold(ValueError):
    """An answer lacks what was asked for; the message says what, and the mend."""


@dataclass(frozen=True, slots=True)
class Question:
    """A POST: where below the base URL, and its JSON body."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenScore:
    """How likely an engine finds one token of a text, given all before it.

    Attributes:
        logprob: at temperature 1, before any truncation.
        rank: from 1; null where the engine does not tell and the token is none of ``top``.
        top: the likeliest tokens, (id, logprob), best first.
    """

    logprob: float
    rank: int | None
    top: tuple[tuple[int, float], ...]


class Scoring(Protocol):
    """One engine's way. ``model`` is the name under which it serves."""

    def ask_prompt_ids(self, model: str, request: Request) -> Question:
        """For the token ids of a request's prompt, chat template included."""

    def read_prompt_ids(self, answer: dict[str, Any]) -> tuple[int, ...]:
        """Those ids.

        Raises:
            NotTold: the answer has none.
        """

    def ask_scores(
        self, model: str, prompt_ids: Sequence[int], output_ids: Sequence[int], top: int
    ) -> Question:
        """For the scores of an output after its prompt, with the ``top`` likeliest tokens at each place."""

    def read_scores(
        self, answer: dict[str, Any], prompt_ids: Sequence[int], output_ids: Sequence[int], top: int
    ) -> list[TokenScore]:
        """One score for each token of the output.

        Raises:
            NotTold: a token has none, or there are fewer than ``top`` alternatives.
        """


def logprob(value: Any) -> float:
    """A logprob as JSON tells it; there is no minus infinity, so engines write null or a very small number."""
    return -math.inf if value is None else float(value)
