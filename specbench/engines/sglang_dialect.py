"""SGLang's metrics page and self-description, in specbench's words. Pure functions.

Names are those of SGLang 0.5.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from specbench.engines.base import Description
from specbench.engines.flatten import flatten
from specbench.engines.sglang_speculation import k_meaning
from specbench.observe.counters import EngineCounters
from specbench.observe.prometheus import mean, total

if TYPE_CHECKING:
    from specbench.observe.prometheus import Samples

Json = dict[str, Any]

_SPECULATION: Final = re.compile(r"^(_?speculative_|spec_|decoupled_spec_|uno_|enable_multi_layer_eagle$)")

_NOT_SETTINGS: Final = re.compile(
    r"^(internal_states|launch_command|startup_time|version|frontend|kv_events|status|config|load_time)(\.|$)"
    r"|(^|\.)(model_path|tokenizer_path|served_model_name|revision|host|port|api_key|admin_api_key|pid|uuid"
    r"|.*_(port|dir|file|path|folder|url|uuid|addr|endpoint|endpoints)|.*_time|.*_timestamp"
    r"|.*password|.*secret|.*_key|watermark_key_b)$"
    r"|^(max_total_num_tokens|max_req_input_len|available_gpu_mem|avail_mem|.*memory_usage.*)$"
)
"""Resolved values that name a place, a launch or a result, and say nothing of how the engine works."""

_LINE: Final = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z]+\d+)*\] ?")
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_WEIGHTS_LINE: Final = re.compile(
    r"^(?:\[[^\] ]+ [^\] ]+ ?([^\]]*)\] )?Load weight end\.(?: elapsed=([\d.]+) s,)?.*\bmem usage=([\d.]+) GB",
    re.MULTILINE,
)
"""The rank, its seconds, and by how much its device's free memory fell; SGLang's GB are GiB."""
_FACT_LINES: Final = re.compile(
    r"Max running requests is reset"
    r"|speculative_num_draft_tokens is (?:adjusted|set|not set)"
    r"|speculative_adaptive disabled"
    r"|Overlap schedule(?:r)? is (?:not implemented|disabled)"
    r"|Non-overlap \(synchronous\) spec"
    r"|[Mm]ixed chunked prefill (?:is|are) disabled"
    r"|[Rr]ejection sampling (?:is enabled|for EAGLE)"
    r"|speculative-draft-window-size has no effect"
    r"|UNO uses "
    r"|promoting --speculative-algorithm"
    r"|does not require setting speculative_draft_model_path"
)


def counters_from_sglang(samples: Samples) -> EngineCounters:
    """Translate SGLang's metrics page; the series of several ranks are added up.

    Requests enter the token counters when they finish, so that a difference between two moments is exact
    only when nothing ran at either. What cannot be had from the page:

    - drafts, draft tokens, accepted tokens, positions: `spec_verify_calls_total` counts steps alone, and the
      acceptance gauges show one log window of the past. Acceptance comes from the requests' own details.
    - decode outputs: the inter-token histogram counts tokens, not outputs.

    A labelled series appears with its first increment; where its neighbours are there, absence means zero.
    """
    prompts = total(samples, "sglang:prompt_tokens_total")
    running = total(samples, "sglang:num_running_reqs")
    requests = total(samples, "sglang:num_requests_total")
    aborted = total(samples, "sglang:num_aborted_requests_total") or 0.0
    return EngineCounters(
        generation_tokens=total(samples, "sglang:generation_tokens_total"),
        prompt_tokens=prompts,
        cached_prompt_tokens=_or_zero(total(samples, "sglang:cached_tokens_total"), prompts),
        first_outputs=total(samples, "sglang:time_to_first_token_seconds_count"),
        engine_steps=total(samples, "sglang:cuda_graph_passes_total"),
        preemptions=_or_zero(total(samples, "sglang:num_retracted_requests_total"), running),
        finished=None if requests is None else requests - aborted,
        running=running,
        waiting=total(samples, "sglang:num_queue_reqs"),
        kv_usage=mean(samples, "sglang:token_usage"),
    )


def _or_zero(value: float | None, neighbour: float | None) -> float | None:
    return 0.0 if value is None and neighbour is not None else value


def fact_lines(log: str) -> tuple[str, ...]:
    """Start-up lines that change how results are read, without their time stamps, each once."""
    lines = (
        _LINE.sub("", _ANSI.sub("", line)).strip() for line in log.splitlines() if _FACT_LINES.search(line)
    )
    return tuple(dict.fromkeys(lines))


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """What a start-up log tells of weights; null where it tells nothing.

    Attributes:
        bytes: target and drafts together, on the device that holds most. By how much free memory fell: on a CPU
            other programs' use is in it.
        draft_bytes: what was loaded there after the target.
        seconds: in the rank that was slowest.
    """

    bytes: int | None = None
    draft_bytes: int | None = None
    seconds: float | None = None


def loaded_weights(log: str) -> LoadedWeights:
    """Every rank prints a line for the target and then one for each draft."""
    ranks: dict[str, list[tuple[str, str]]] = {}
    for rank, seconds, gib in _WEIGHTS_LINE.findall(_ANSI.sub("", log)):
        ranks.setdefault(rank, []).append((seconds, gib))
    if not ranks:
        return LoadedWeights()
    most = max(([float(gib) for _, gib in lines] for lines in ranks.values()), key=sum)
    timed = all(seconds for lines in ranks.values() for seconds, _ in lines)
    return LoadedWeights(
        bytes=round(sum(most) * (1 << 30)),
        draft_bytes=round(sum(most[1:]) * (1 << 30)) if len(most) > 1 else None,
        seconds=max(sum(float(s) for s, _ in lines) for lines in ranks.values()) if timed else None,
    )


def describe_from_server_info(info: Json, models: Json, log: str = "") -> Description:
    """Build a description from what the server says of itself.

    Args:
        info: body of ``GET /server_info``: every resolved argument, flat, with results among them.
        models: body of ``GET /v1/models``.
        log: everything printed so far.
    """
    flat = flatten({key: value for key, value in info.items() if key != "internal_states"})
    speculation = {k: v for k, v in flat.items() if _SPECULATION.match(k) and v is not None}
    settings = {
        key: value
        for key, value in flat.items()
        if not _SPECULATION.match(key) and not _NOT_SETTINGS.search(key)
    }
    algorithm = info.get("speculative_algorithm")
    speculating = bool(algorithm)
    speculation["k_meaning"] = k_meaning(str(algorithm))
    lengths = [item.get("max_model_len") for item in models.get("data") or ()]
    facts = list(fact_lines(log))
    admitted = _admitted(info)
    asked = info.get("max_running_requests")
    if admitted is not None and isinstance(asked, int) and admitted < asked:
        facts.append(f"max_running_requests is {asked}, but the KV memory admits only {admitted} at once")
    weights = loaded_weights(log)
    return Description(
        version=str(info.get("version") or ""),
        max_model_len=_number(lengths[0]) if lengths else None,
        kv_capacity_tokens=_number(info.get("max_total_num_tokens")),
        speculating=speculating,
        settings=settings,
        speculation=speculation if speculating else {},
        facts=tuple(facts),
        weights_bytes=weights.bytes,
        draft_weights_bytes=weights.draft_bytes,
        weights_load_s=weights.seconds,
        max_running_requests=admitted if admitted is not None else _number(asked),
    )


def _admitted(info: Json) -> int | None:
    """Requests that may run at once, over all data-parallel ranks."""
    states = [s for s in info.get("internal_states") or () if isinstance(s, dict)]
    numbers = [_number(s.get("effective_max_running_requests_per_dp")) for s in states]
    known = [n for n in numbers if n is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
