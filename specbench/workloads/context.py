"""Requests that the model's context cannot hold, left out before anything starts, the same for every arm."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specbench.config.model import Workload
from specbench.workloads.mix import output_cap
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import SourceRequest
from specbench.workloads.tokens import NoTokenizer, ServedTokens

OVER_CONTEXT: Final = "over_context"

_LIMIT_FLAGS: Final = ("max-model-len", "context-length")
"""vLLM's and the simulated engine's flag, and SGLang's."""

SMALL_CONTEXT: Final = 8192
"""With no limit in the config, prompts that fit even into this are not worth a remark."""

TEMPLATE_ROOM: Final = 512
"""Tokens that a chat template may add, when it is not at hand."""

_UNITS: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""As vLLM reads ``--max-model-len 32k``: small letters are decimal, capitals binary."""

_NUMBER: Final = re.compile(r"(\d+)([kmgKMG]?)|(\d+\.\d+)([kmg])")


@dataclass(frozen=True, slots=True)
class Context:
    """What a request may take of the engines' context.

    Attributes:
        tokens: of prompt and output together that the config allows.
        kept: of these, what must stay free for every arm to serve in full and to draft to the end.
    """

    tokens: int
    kept: int = 0

    @property
    def room(self) -> int:
        """Tokens of prompt and output together that a request may need."""
        return self.tokens - self.kept

    def __str__(self) -> str:
        left = f", of which {self.kept} stay free for the engine and its drafts" if self.kept else ""
        return f"the context of {self.tokens} tokens (engine.args max-model-len{left})"


@dataclass(frozen=True, slots=True)
class Fitted:
    """Requests that fit, how many did not, and what a reader must know about it."""

    requests: list[SourceRequest]
    over: int
    remarks: tuple[str, ...]


def context_limit(args: Mapping[str, Any]) -> int | None:
    """Tokens of prompt and output together that the config allows; null when it leaves that to the engine."""
    flags = {str(name).lstrip("-").replace("_", "-"): value for name, value in args.items()}
    for name in _LIMIT_FLAGS:
        value = flags.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        number = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        if number is not None:
            whole, unit, fraction, decimal = number.groups()
            return int(float(fraction) * _UNITS[decimal]) if fraction else int(whole) * _UNITS.get(unit, 1)
    return None


def fit_context(
    workload: Workload,
    requests: Sequence[SourceRequest],
    limit: Context | None,
    tokens: ServedTokens | NoTokenizer,
) -> Fitted:
    """Leave out what needs more than ``limit`` has room for: prompt (as the server sees it) plus output cap.

    Args:
        tokens: the served tokenizer, or why there is none: then everything stays, and the server's refusal
            (HTTP 400) of a request that is too long makes its cell invalid.

    Raises:
        WorkloadError: nothing fits.
    """
    if isinstance(tokens, NoTokenizer) or limit is None:
        why = str(tokens) if limit is not None else "engine.args sets no max-model-len"
        return Fitted(list(requests), 0, _unchecked(workload, requests, limit, why))
    kept: list[SourceRequest] = []
    over: list[tuple[int, int, SourceRequest]] = []
    unknown: list[str] = []
    for request in requests:
        cap = output_cap(workload, request)
        try:
            fits = tokens.most_tokens(request) + cap <= limit.room
            prompt = 0 if fits else tokens.prompt_tokens(request)
        except NoTokenizer as error:
            unknown.append(str(error))
            kept.append(request)
            continue
        if fits or prompt + cap <= limit.room:
            kept.append(request)
        else:
            over.append((prompt, cap, request))
    remarks = []
    if unknown:
        remarks.append(
            f"{len(unknown)} prompts were not checked against the context, their length is unknown: "
            f"{unknown[0]}"
        )
    if over:
        prompt, cap, worst = max(over, key=lambda item: (item[0] + item[1], item[2].id))
        need = f"{worst.id!r} needs {prompt} prompt + {cap} output = {prompt + cap} tokens"
        text = f"{len(over)} of {len(requests)} requests do not fit {limit}: the longest, {need}"
        if not kept:
            raise WorkloadError([f"workload.source: {text}: raise it, or lower workload.max_output_tokens"])
        remarks.append(f"{text}; they are left out, the same ones for every arm")
    return Fitted(kept, len(over), tuple(remarks))


def _unchecked(
    workload: Workload, requests: Sequence[SourceRequest], limit: Context | None, why: str
) -> tuple[str, ...]:
    """A remark, unless every prompt is short whatever the tokenizer: no token is less than a byte."""
    least = limit.room if limit is not None else SMALL_CONTEXT
    long = [
        r
        for r in requests
        if len((r.text() or "").encode("utf-8", "surrogatepass")) + output_cap(workload, r) + TEMPLATE_ROOM
        > least
    ]
    if not long:
        return ()
    return (
        f"{len(long)} of {len(requests)} prompts were not checked against the context before launch: {why}; "
        "one that does not fit is refused by the server and counted as failed",
    )
