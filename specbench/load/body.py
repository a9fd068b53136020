"""The bytes of a request: the same for every arm, whatever the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from specbench.workloads.request import Request

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETIONS_PATH: Final = "/v1/completions"

NO_TOP_K: Final = -1
"""Means "all tokens" to vLLM and SGLang; left out, the model's own default would apply unseen."""


def path(request: Request) -> str:
    """Where the request goes, below the base URL."""
    return CHAT_PATH if request.messages is not None else COMPLETIONS_PATH


def encode(request: Request, served_model: str, *, extra: Mapping[str, Any] | None = None) -> bytes:
    """The JSON body. Sampling is always explicit, streaming counts tokens in two ways (ids and usage).

    Args:
        extra: further body keys, for instance an engine's own; they win over the ones set here.

    Raises:
        ValueError: the request has both or neither of messages and prompt.
    """
    if (request.messages is None) == (request.prompt is None):
        raise ValueError(f"request {request.id!r} needs exactly one of `messages` and `prompt`")
    body: dict[str, Any] = {"model": served_model}
    if request.messages is not None:
        body["messages"] = request.messages
    else:
        body["prompt"] = request.prompt
    if isinstance(request.tools, tuple):
        body["tools"] = request.tools
        # The tools stay in the prompt; the answer comes as plain text, which needs no tool parser.
        body["tool_choice"] = "none"
    body["max_tokens"] = request.max_tokens
    body["temperature"] = request.temperature
    body["top_p"] = request.top_p
    body["top_k"] = NO_TOP_K if request.top_k is None else request.top_k
    if request.seed is not None:
        body["seed"] = request.seed
    if request.output_mode == "forced":
        body["ignore_eos"] = True
    body["stream"] = True
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    body["return_token_ids"] = True
    body.update(extra or {})
    return msgspec.json.encode(body)
