"""How vLLM, and the simulated engine, tell token ids and scores: ``return_token_ids``, ``prompt_logprobs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specbench.engines.scoring import CHAT_PATH, COMPLETIONS_PATH, NotTold, Question, TokenScore, logprob

if TYPE_CHECKING:
    from specbench.workloads.request import Request


class VllmScoring:
    """See `specbench.engines.scoring.Scoring`."""

    def ask_prompt_ids(self, model: str, request: Request) -> Question:
        """One token of the request itself."""
        body: dict[str, Any] = {"model": model, "max_tokens": 1, "temperature": 0.0, "return_token_ids": True}
        if request.messages is None:
            return Question(COMPLETIONS_PATH, {**body, "prompt": request.prompt})
        body["messages"] = request.messages
        if isinstance(request.tools, tuple):
            body |= {"tools": request.tools, "tool_choice": "none"}
        return Question(CHAT_PATH, body)

    def read_prompt_ids(self, answer: dict[str, Any]) -> tuple[int, ...]:
        """On the answer for chats, on the choice for texts."""
        ids = answer.get("prompt_token_ids") or _choice(answer).get("prompt_token_ids")
        if not ids:
            raise NotTold(
                "the server does not return the prompt's token ids (return_token_ids), which parity needs: "
                "use vLLM 0.11 or later, or leave parity out"
            )
        return tuple(int(i) for i in ids)

    def ask_scores(
        self, model: str, prompt_ids: Sequence[int], output_ids: Sequence[int], top: int
    ) -> Question:
        """``prompt_logprobs`` of prompt and output together; vLLM leaves its prefix cache out of it."""
        ids = [*prompt_ids, *output_ids]
        body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": top}
        return Question(COMPLETIONS_PATH, body)

    def read_scores(
        self, answer: dict[str, Any], prompt_ids: Sequence[int], output_ids: Sequence[int], top: int
    ) -> list[TokenScore]:
        """Per token an object of id to ``{"logprob", "rank"}``; that of the first token is null.

        Each holds the ``top`` likeliest tokens and the actual one besides when it is none of them.
        """
        rows = _choice(answer).get("prompt_logprobs") or answer.get("prompt_logprobs")
        before, wanted = len(prompt_ids), len(prompt_ids) + len(output_ids)
        if not isinstance(rows, list) or len(rows) != wanted:
            got = len(rows) if isinstance(rows, list) else rows
            raise NotTold(f"prompt_logprobs of {wanted} tokens were asked for, the answer has {got}")
        scores = []
        for i, (token, row) in enumerate(zip(output_ids, rows[before:], strict=True)):
            own = row.get(str(token)) if isinstance(row, dict) else None
            if own is None or len(row) < top:
                raise NotTold(
                    f"prompt_logprobs: position {before + i} has no score for token {token}, or fewer "
                    f"than {top} alternatives: raise the engine's max-logprobs to {top}"
                )
            ranked = sorted(((int(k), logprob(v.get("logprob"))) for k, v in row.items()), key=_best_first)
            scores.append(
                TokenScore(logprob(own.get("logprob")), own.get("rank") or None, tuple(ranked[:top]))
            )
        return scores


def _choice(answer: dict[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _best_first(entry: tuple[int, float]) -> tuple[float, int]:
    return -entry[1], entry[0]
