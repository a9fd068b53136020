"""How SGLang tells token ids and scores: ``/v1/tokenize`` and its native ``/generate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specbench.engines.scoring import NotTold, Question, TokenScore, logprob

if TYPE_CHECKING:
    from specbench.workloads.request import Request


class SglangScoring:
    """See `specbench.engines.scoring.Scoring`.

    Scores are asked of servers without speculation only.
    """

    def ask_prompt_ids(self, model: str, request: Request) -> Question:
        """Its tokenizer's, after the chat template if it is a chat."""
        body: dict[str, Any] = {"model": model}
        if request.messages is None:
            return Question("/v1/tokenize", {**body, "prompt": request.prompt})
        body["messages"] = request.messages
        if isinstance(request.tools, tuple):
            body |= {"tools": request.tools, "tool_choice": "none"}
        return Question("/v1/tokenize", body)

    def read_prompt_ids(self, answer: dict[str, Any]) -> tuple[int, ...]:
        """``tokens``."""
        ids = answer.get("tokens")
        if not ids or not isinstance(ids, list):
            raise NotTold(
                "/v1/tokenize does not return the prompt's token ids, which parity needs: use SGLang 0.5.23 "
                "or later, or leave parity out"
            )
        return tuple(int(i) for i in ids)

    def ask_scores(
        self, model: str, prompt_ids: Sequence[int], output_ids: Sequence[int], top: int
    ) -> Question:
        """Prompt and output as one prompt, with logprobs from the prompt's last token on.

        The first row has no logprob, whatever comes before it; its place is therefore not the output's. The
        start also keeps the radix cache, if there is one, from leaving out what is asked for.
        """
        del model  # /generate serves the only one
        return Question(
            "/generate",
            {
                "input_ids": [*prompt_ids, *output_ids],
                "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
                "return_logprob": True,
                "logprob_start_len": len(prompt_ids) - 1,
                "top_logprobs_num": top,
            },
        )

    def read_scores(
        self, answer: dict[str, Any], prompt_ids: Sequence[int], output_ids: Sequence[int], top: int
    ) -> list[TokenScore]:
        """``input_token_logprobs``: rows of (logprob, id, text); ``input_top_logprobs``: lists of such rows."""
        meta = answer.get("meta_info")
        meta = meta if isinstance(meta, dict) else {}
        wanted = len(output_ids) + 1
        rows, tops = (_rows(meta, name, wanted) for name in ("input_token_logprobs", "input_top_logprobs"))
        scores = []
        for i, (token, row, best) in enumerate(zip(output_ids, rows[1:], tops[1:], strict=True)):
            if not isinstance(best, list) or len(best) < top or row[1] != token:
                raise NotTold(
                    f"/generate: position {len(prompt_ids) + i} has no score for token {token}, or fewer than "
                    f"{top} alternatives"
                )
            ranked = tuple((int(entry[1]), logprob(entry[0])) for entry in best[:top])
            own = logprob(row[0])
            listed = any(other == token for other, _ in ranked)
            rank = 1 + sum(value > own for _, value in ranked) if listed else None
            scores.append(TokenScore(own, rank, ranked))
        return scores


def _rows(meta: dict[str, Any], name: str, wanted: int) -> list[Any]:
    rows = meta.get(name)
    if not isinstance(rows, list) or len(rows) != wanted:
        got = len(rows) if isinstance(rows, list) else rows
        raise NotTold(f"{name} of {wanted} tokens were asked for, the answer has {got}")
    return rows
