"""What vLLM and the simulated engine share: speculation flags, the metrics page, the self-description.

Pure functions: no process is started and no socket is opened here.
Names are those of vLLM 0.32.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from specbench.engines.base import Description
from specbench.engines.flatten import flatten
from specbench.observe.counters import EngineCounters
from specbench.observe.prometheus import Samples, mean, total

if TYPE_CHECKING:
    from specbench.config.grid import Arm

ACCEPTED_PER_POSITION: Final = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
CACHE_CONFIG: Final = "vllm:cache_config_info"

_KV_LINE = re.compile(r"(?:CPU|GPU|XPU)(?: \+ host)? KV cache size: ([\d,]+) tokens")
_CONCURRENCY_LINE = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")
_WEIGHTS_LINE = re.compile(
    r"^(\([^)]*\))?.*(?:Model loading|Loading model weights) took ([\d.]+) (?:GiB|GB)\b", re.MULTILINE
)
"""Its GB are GiB in every version."""
_LOAD_LINE = re.compile(r"^(\([^)]*\))?.*Loading weights took ([\d.]+) seconds", re.MULTILINE)
_FACT_LINES = re.compile(
    r"(?:Using V2 Model Runner"
    r"|using the V1 model runner instead"
    r"|Async scheduling not supported with"
    r"|Overriding cudagraph_mode"
    r"|Disabling num_speculative_tokens_per_batch_size"
    r"|will cause significant performance loss)"
)
_LOG_PREFIX = re.compile(
    r"^(?:\([^)]*pid=\d+\)\s*)?"  # (EngineCore pid=12)
    r"(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]*\]\s*)?"  # INFO 07-01 12:00:00 [core.py:402]
)

NOT_COMPARABLE: Final = frozenset(
    {
        "instance_id",
        "model_config.served_model_name",
        "cache_config.num_gpu_blocks",
        "cache_config.num_cpu_blocks",
        "cache_config.kv_cache_size_tokens",
        "cache_config.kv_cache_max_concurrency",
        "compilation_config.local_cache_dir",
        "compilation_config.cache_dir",
        "compilation_config.compilation_time",
    }
)
"""Resolved values that differ between any two launches, or that are results and not settings."""

Json = dict[str, Any]


def speculative_config(arm: Arm) -> Json:
    """The value of ``--speculative-config`` for an arm; empty for the baseline.

    Settings keep their own names (dashes become underscores); null settings are left out.
    """
    if not arm.speculates:
        return {}
    config: Json = {"method": arm.method}
    if arm.draft is not None:
        config["model"] = arm.draft
    if arm.k is not None:
        config["num_speculative_tokens"] = arm.k
    for name, value in arm.settings.items():
        if value is not None:
            config[name.replace("-", "_")] = value
    return config


def speculation_flags(arm: Arm) -> tuple[str, ...]:
    """The words that turn speculation on; none for the baseline."""
    config = speculative_config(arm)
    return ("--speculative-config", json.dumps(config, separators=(",", ":"))) if config else ()


def counters_from_vllm(samples: Samples) -> EngineCounters:
    """Translate vLLM's metrics page; data-parallel engines (``engine`` labels) are added up.

    The inter-token histogram gets one observation per request output after the first, whatever
    number of tokens it carried, so its count is request-steps and not tokens.
    ``iteration_tokens_total`` is a histogram with one observation per engine iteration.
    """
    cached = total(samples, "vllm:prompt_tokens_cached_total")
    if cached is None:
        cached = total(samples, "vllm:prefix_cache_hits_total")
    finished = [
        count
        for reason in ("stop", "length")
        if (count := total(samples, "vllm:request_success_total", finished_reason=reason)) is not None
    ]
    return EngineCounters(
        generation_tokens=total(samples, "vllm:generation_tokens_total"),
        prompt_tokens=total(samples, "vllm:prompt_tokens_total"),
        cached_prompt_tokens=cached,
        first_outputs=total(samples, "vllm:time_to_first_token_seconds_count"),
        decode_outputs=total(samples, "vllm:inter_token_latency_seconds_count"),
        engine_steps=total(samples, "vllm:iteration_tokens_total_count"),
        drafts=total(samples, DRAFTS),
        draft_tokens=total(samples, "vllm:spec_decode_num_draft_tokens_total"),
        accepted_tokens=total(samples, "vllm:spec_decode_num_accepted_tokens_total"),
        accepted_per_position=_per_position(samples),
        preemptions=total(samples, "vllm:num_preemptions_total"),
        finished=sum(finished) if finished else None,
        running=total(samples, "vllm:num_requests_running"),
        waiting=total(samples, "vllm:num_requests_waiting"),
        kv_usage=mean(samples, "vllm:kv_cache_usage_perc"),
    )


def _per_position(samples: Samples) -> tuple[float, ...]:
    sums: dict[int, float] = {}
    for labels, value in samples.get(ACCEPTED_PER_POSITION, []):
        position = int(labels["position"])
        sums[position] = sums.get(position, 0.0) + value
    return tuple(sums.get(i, 0.0) for i in range(max(sums) + 1)) if sums else ()


def kv_capacity_tokens(log: str, samples: Samples | None = None) -> int | None:
    """Tokens that fit in KV memory: from the start-up log, else from ``cache_config_info``."""
    found = _KV_LINE.findall(log)
    if found:
        return int(found[-1].replace(",", ""))
    sizes = [
        int(float(size))
        for labels, _ in (samples or {}).get(CACHE_CONFIG, [])
        if (size := labels.get("kv_cache_size_tokens", "")).replace(".", "", 1).isdigit()
    ]
    return sum(sizes) if sizes else None


def max_concurrency(log: str, samples: Samples | None = None) -> float | None:
    """Requests of the model's full length that fit: from the start-up log, else from ``cache_config_info``."""
    found = _CONCURRENCY_LINE.findall(log)
    if found:
        return float(found[-1])
    labels = [
        labels.get("kv_cache_max_concurrency", "") for labels, _ in (samples or {}).get(CACHE_CONFIG, [])
    ]
    numbers = [float(text) for text in labels if text.replace(".", "", 1).isdigit()]
    return sum(numbers) if numbers else None


def weights_bytes(log: str) -> int | None:
    """Of the weights on the device that holds most. The draft is loaded inside the same measurement, so that
    its own share is not told; a CPU build prints no such line."""
    found = _WEIGHTS_LINE.findall(log)
    return round(max(float(gib) for _, gib in found) * (1 << 30)) if found else None


def weights_load_s(log: str) -> float | None:
    """Seconds that reading weights took, target and draft after each other, in the worker that was slowest."""
    by_worker: dict[str, float] = {}
    for worker, seconds in _LOAD_LINE.findall(log):
        by_worker[worker] = by_worker.get(worker, 0.0) + float(seconds)
    return max(by_worker.values()) if by_worker else None


def fact_lines(log: str) -> tuple[str, ...]:
    """Start-up lines that change how results are read, without their prefix, each once."""
    lines = (_LOG_PREFIX.sub("", line).strip() for line in log.splitlines() if _FACT_LINES.search(line))
    return tuple(dict.fromkeys(lines))


def describe_from_server_info(
    *,
    version: str,
    models: Json,
    server_info: Json | None = None,
    samples: Samples | None = None,
    log: str = "",
) -> Description:
    """Build a description from what the server says of itself.

    Args:
        version: from ``GET /version``.
        models: body of ``GET /v1/models``.
        server_info: body of ``GET /server_info?config_format=json``; null when the server has no such page.
        samples: the metrics page, for KV size and for whether spec counters exist.
        log: everything printed so far.
    """
    config = (server_info or {}).get("vllm_config")
    resolved: Json = dict(config) if isinstance(config, dict) else {}
    own = resolved.pop("speculative_config", None)
    speculation = flatten(own) if isinstance(own, dict) else {}
    settings = {key: item for key, item in flatten(resolved).items() if key not in NOT_COMPARABLE}
    speculating: bool | None = None
    if isinstance(config, dict):
        speculating = bool(own)
    elif samples is not None:
        speculating = DRAFTS in samples
    lengths = [item.get("max_model_len") for item in models.get("data", [])]
    length = lengths[0] if lengths else None
    running = settings.get("scheduler_config.max_num_seqs")
    return Description(
        version=version,
        max_model_len=int(length) if isinstance(length, int | float) else None,
        kv_capacity_tokens=kv_capacity_tokens(log, samples),
        speculating=speculating,
        settings=settings,
        speculation=speculation,
        facts=fact_lines(log),
        weights_bytes=weights_bytes(log),
        weights_load_s=weights_load_s(log),
        max_concurrency=max_concurrency(log, samples),
        max_running_requests=running if isinstance(running, int) else None,
    )
