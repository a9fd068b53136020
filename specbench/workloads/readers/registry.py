"""Every format specbench reads, in the order in which they are tried on a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from specbench.workloads.readers import (
    aiperf,
    azure,
    bailian,
    burstgpt,
    conversations,
    gsm8k,
    humaneval,
    langfuse,
    lengths,
    litellm,
    mooncake,
    openai_chat,
    otel,
    prompts,
    ragpulse,
    specbench_requests,
    turns,
)
from specbench.workloads.readers.base import CSV, JSON, PARQUET, TEXT, Format, RowReader, Stateless
from specbench.workloads.readers.container import Kind
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import SourceRequest

Matches = Callable[[Mapping[str, Any]], bool]
Parse = Callable[[Record], SourceRequest]


def _plain(name: str, title: str, kinds: frozenset[Kind], matches: Matches, parse: Parse) -> Format:
    return Format(name, title, kinds, matches, partial(Stateless, parse))


def _stateful(
    name: str, title: str, kinds: frozenset[Kind], matches: Matches, reader: Callable[[], RowReader]
) -> Format:
    return Format(name, title, kinds, matches, reader)


_TABLES: Final = CSV | PARQUET
_ALL: Final = JSON | CSV | PARQUET

FORMATS: Final[tuple[Format, ...]] = (
    _stateful(
        "specbench-requests",
        "specbench.requests/1, as `workload convert` writes it",
        JSON,
        specbench_requests.matches,
        specbench_requests.RequestsReader,
    ),
    _plain("openai-batch", "OpenAI batch input", JSON, openai_chat.matches_batch, openai_chat.parse_batch),
    _plain("langfuse", "Langfuse observations", _ALL, langfuse.matches, langfuse.parse),
    _plain("litellm", "LiteLLM spend logs", _ALL, litellm.matches, litellm.parse),
    _plain("otel", "OpenTelemetry GenAI spans, one flat span per row", JSON, otel.matches, otel.parse),
    _stateful(
        "bailian", "Qwen-Bailian traces (s, 16-token blocks)", JSON, bailian.matches, bailian.BailianReader
    ),
    _plain("ragpulse", "RAGPulse trace", JSON, ragpulse.matches, ragpulse.parse),
    _stateful(
        "timed-trace",
        "vLLM timed_trace (s, 16-token blocks)",
        JSON,
        mooncake.matches_timed_trace,
        partial(mooncake.TraceReader, mooncake.TIMED_TRACE_BLOCK, "s"),
    ),
    _stateful(
        "mooncake",
        "Mooncake traces and AIPerf mooncake_trace (ms, 512-token blocks)",
        JSON,
        mooncake.matches,
        partial(mooncake.TraceReader, mooncake.MOONCAKE_BLOCK, "ms"),
    ),
    _plain("azure", "Azure LLM traces 2023 to 2025", _TABLES, azure.matches, azure.parse),
    _plain("burstgpt", "BurstGPT 1 to 3", _TABLES, burstgpt.matches, burstgpt.parse),
    _plain(
        "lengths",
        "Lengths only (times in s or dates): Vidur, other tables",
        _ALL,
        lengths.matches,
        lengths.parse,
    ),
    _plain("aiperf-inputs", "AIPerf inputs_json", JSON, aiperf.matches_inputs, aiperf.parse_inputs),
    _plain("turns", "MT-Bench, Spec-Bench, SPEED-Bench, AIPerf multi_turn", _ALL, turns.matches, turns.parse),
    _plain("humaneval", "HumanEval", _ALL, humaneval.matches, humaneval.parse),
    _plain("gsm8k", "GSM8K", _ALL, gsm8k.matches, gsm8k.parse),
    _plain("sharegpt", "ShareGPT, SGLang custom", JSON | CSV, conversations.matches, conversations.parse),
    _plain(
        "conversation-parquet",
        "Conversations in Parquet: WildChat, LMSYS",
        PARQUET,
        conversations.matches,
        conversations.parse,
    ),
    _plain(
        "openai-messages",
        "OpenAI chat logs, SGLang openai, GuideLLM messages",
        JSON | PARQUET,
        openai_chat.matches,
        openai_chat.parse,
    ),
    _stateful(
        "aiperf-single-turn",
        "AIPerf single_turn (ms)",
        JSON | CSV,
        aiperf.matches_single_turn,
        aiperf.SingleTurnReader,
    ),
    _plain("prompt-jsonl", "Prompts: vLLM custom, GuideLLM, any JSON", JSON, prompts.matches, prompts.parse),
    _plain("prompt-csv", "Prompts in CSV, TSV or with semicolons", CSV, prompts.matches, prompts.parse),
    _plain("prompt-parquet", "Prompts in Parquet", PARQUET, prompts.matches, prompts.parse),
    _plain("prompt-text", "Plain text, one prompt per line", TEXT, prompts.matches, prompts.parse),
)
