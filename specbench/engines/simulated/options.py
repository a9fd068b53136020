"""The command line: vLLM's flags, and ``--sim`` for everything that only a simulation has."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from specbench.engines.simulated.costs import Costs
from specbench.engines.simulated.verifiers import VERIFIERS

PROG: Final = "specbench.engines.simulated"
MAX_K: Final = 128
DEFAULT_LOOKUP: Final = 5

KNOWN_METHODS: Final = (
    *("ngram", "medusa", "mlp_speculator", "draft_model", "suffix", "eagle", "eagle3", "mtp", "dflash"),
    "dspark",
)
SCHEDULE: Final = "num_speculative_tokens_per_batch_size"
SUFFIX_LOOKUP: Final = (2, 5)
"""Shortest and longest match of the learning lookup that stands in for suffix decoding."""
_SPECULATIVE_KEYS: Final = frozenset(
    {
        *("method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"),
        *("draft_sample_method", "rejection_sample_method", "draft_tensor_parallel_size", "quantization"),
        *("revision", "max_model_len", "enforce_eager", "disable_padded_drafter_batch"),
        SCHEDULE,
    }
)


Telling = Literal["told", "refused", "left_out"]
"""Whether a server gives what is asked for, answers HTTP 400, or answers without it."""


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ways to misbehave. ``after N`` means from request N + 1 on, counted from 1 over both endpoints."""

    die_after_requests: int | None = None
    """The next request ends the process (a stream after two chunks); like vLLM it then exits 0."""
    error_in_stream_after: int | None = None
    truncate_stream_after: int | None = None
    stall_after: int | None = None
    fail_start: Literal["oom", "kv", "exit", "vocabulary"] | None = None
    startup_hang: bool = False
    ignore_sigterm: bool = False
    spawn_child_that_ignores_sigterm: bool = False
    http_400_every: int | None = None
    http_500_every: int | None = None
    no_metrics: bool = False
    counters_reset_after: int | None = None
    """All metrics restart from zero when this many requests have finished."""
    sse_style: Literal["plain", "crlf", "comments", "nospace"] = "plain"


class SimOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Knobs of the simulation.

    Attributes:
        time_scale: wall seconds per simulated second; 0.02 is fifty times faster than real.
        launch_sd: sd of the log of the launch's speed factor.
        step_sd: sd of the log of a step's speed factor.
        launch_seed: seed of the launch's noise; null draws a new one.
        startup_s: seconds before the server listens.
        draft_quality: likeness of draft and target, 0 to 1; a mapping gives one per draft name.
        mean_output_tokens: mean length of natural outputs.
        kv_tokens: tokens that fit in KV memory without a draft model.
        kv_share_with_draft: what a draft model leaves of them.
        logit_noise: sd of rounding-like noise on the target's logits; breaks near-ties as real kernels do.
        token_ids: whether token ids are taken as prompts and told; a gateway that does not takes texts alone.
        scores, logprobs: whether ``prompt_logprobs`` are to be had, and logprobs of an output.
        draft_of: name of the target that the served model is a draft of; null serves a target.
        verifier: how drafts are verified; all but ``standard`` and ``block_verification`` are bugs.
    """

    costs: Costs = Costs()
    time_scale: float = 1.0
    launch_sd: float = 0.0
    step_sd: float = 0.0
    launch_seed: int | None = None
    startup_s: float = 0.0
    draft_quality: float | dict[str, float] = 0.97
    mean_output_tokens: float = 120.0
    kv_tokens: int = 65_536
    kv_share_with_draft: float = 0.85
    logit_noise: float = 0.0
    verifier: str = "standard"
    draft_of: str | None = None
    token_ids: bool = True
    scores: Telling = "told"
    logprobs: Telling = "told"
    faults: Faults = Faults()

    def __post_init__(self) -> None:
        if self.verifier not in VERIFIERS:
            raise ValueError(f"verifier must be one of {', '.join(VERIFIERS)}")
        if self.time_scale < 0 or self.mean_output_tokens < 1 or self.kv_tokens < 1:
            raise ValueError("time_scale must be 0 or more, mean_output_tokens and kv_tokens 1 or more")
        qualities = (
            self.draft_quality.values() if isinstance(self.draft_quality, dict) else [self.draft_quality]
        )
        if not all(0.0 <= quality <= 1.0 for quality in qualities):
            raise ValueError("draft_quality lies between 0 and 1")

    def quality_of(self, draft: str) -> float:
        """Likeness of a draft model; the default when a mapping does not name it."""
        if isinstance(self.draft_quality, dict):
            return self.draft_quality.get(draft, 0.97)
        return self.draft_quality


class BadSpeculation(ValueError):
    """A speculative config that vLLM would refuse; the text is worded as vLLM words it."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """A checked ``--speculative-config``."""

    method: Literal["ngram", "suffix", "draft_model"]
    k: int
    model: str | None = None
    prompt_lookup_min: int = DEFAULT_LOOKUP
    prompt_lookup_max: int = DEFAULT_LOOKUP
    probabilistic: bool = False
    schedule: tuple[tuple[int, int, int], ...] = ()
    """(first, last, K) of requests in a step; empty for K at every step."""

    def k_at(self, requests: int) -> int:
        """K after a step with so many requests: in a gap and beyond the last range the K before it goes on."""
        if not self.schedule:
            return self.k
        return min(self.k, next((k for first, _, k in reversed(self.schedule) if first <= requests), self.k))

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> Speculation:
        """Check a config as vLLM 0.32 does.

        Raises:
            BadSpeculation: unknown key or method, missing or bad value.
        """
        config = {key.replace("-", "_"): value for key, value in raw.items()}
        for key, value in config.items():
            if key not in _SPECULATIVE_KEYS:
                raise _invalid(
                    key,
                    f"Unexpected keyword argument [type=unexpected_keyword_argument, input_value={value!r}]",
                )
        method = config.get("method") or ("draft_model" if config.get("model") else None)
        if method not in KNOWN_METHODS:
            choices = ", ".join(f"'{name}'" for name in KNOWN_METHODS)
            raise _invalid(
                "method", f"Input should be {choices} [type=literal_error, input_value={method!r}]"
            )
        k = config.get("num_speculative_tokens")
        if k is None:
            raise _invalid(
                "",
                "Value error, num_speculative_tokens must be provided with speculative model unless the "
                "draft model config contains an n_predict parameter. [type=value_error]",
            )
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise _invalid("num_speculative_tokens", "Input should be greater than 0 [type=greater_than]")
        if k > MAX_K:
            raise _invalid(
                "num_speculative_tokens",
                f"Input should be less than or equal to {MAX_K} [type=less_than_equal]",
            )
        if config.get("rejection_sample_method", "standard") != "standard":
            raise BadSpeculation(
                "ValueError: the simulated engine only knows rejection_sample_method 'standard'"
            )
        sample_method = config.get("draft_sample_method", "greedy")
        if sample_method not in ("greedy", "probabilistic"):
            raise _invalid(
                "draft_sample_method",
                "Input should be 'greedy' or 'probabilistic' "
                f"[type=literal_error, input_value={sample_method!r}]",
            )
        schedule = _schedule(config.get(SCHEDULE))
        if method == "ngram":
            low, high = _lookup_range(config)
            return cls("ngram", k, prompt_lookup_min=low, prompt_lookup_max=high, schedule=schedule)
        if method == "suffix":
            if schedule:
                raise BadSpeculation(f"AssertionError: suffix decoding always drafts K tokens ({SCHEDULE})")
            return cls("suffix", k, prompt_lookup_min=SUFFIX_LOOKUP[0], prompt_lookup_max=SUFFIX_LOOKUP[1])
        if method != "draft_model":
            raise BadSpeculation(f"NotImplementedError: Unsupported speculative method: '{method}'")
        model = config.get("model")
        if not model:
            raise _invalid(
                "", "Value error, model must be provided for draft_model speculation [type=value_error]"
            )
        return cls(
            "draft_model",
            k,
            model=str(model),
            probabilistic=sample_method == "probabilistic",
            schedule=schedule,
        )


def _schedule(rows: Any) -> tuple[tuple[int, int, int], ...]:
    """K by requests in a step, checked as vLLM's scheduler does."""
    if rows is None:
        return ()
    whole = isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == 3 and all(type(x) is int for x in row) for row in rows
    )
    if not whole or not rows:
        raise _invalid(SCHEDULE, f"Input should be a list of [from, to, K] [input_value={rows!r}]")
    if rows[0][0] != 1:
        raise BadSpeculation("ValueError: The first batch-size range must start at 1")
    for before, row in itertools.pairwise([[0, 0, 0], *rows]):
        if row[0] <= before[1] or row[1] < row[0] or row[2] < 0:
            raise BadSpeculation(f"ValueError: batch-size range {row} overlaps, is empty, or has a K below 0")
    return tuple((a, b, k) for a, b, k in rows)


def _lookup_range(config: dict[str, Any]) -> tuple[int, int]:
    """Shortest and longest match: 5 and 5 when neither is given, the same when only one is."""
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    given = {"prompt_lookup_min": low, "prompt_lookup_max": high}
    for name, value in given.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise _invalid(name, "Input should be greater than or equal to 1 [type=greater_than_equal]")
    default = DEFAULT_LOOKUP if low is None and high is None else int(low or high or DEFAULT_LOOKUP)
    low, high = int(low or default), int(high or default)
    if low > high:
        raise _invalid("", f"Value error, prompt_lookup_min={low} must be <= prompt_lookup_max={high}")
    return low, high


def _invalid(field: str, text: str) -> BadSpeculation:
    return BadSpeculation(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        + (f"{field}\n" if field else "")
        + f"  {text}"
    )


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Everything the server was started with."""

    host: str
    port: int
    model: str
    served_model_name: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    seed: int
    enable_prefix_caching: bool
    enable_prompt_tokens_details: bool
    per_request_spec_decode_metrics: str
    enable_per_request_metrics: bool
    max_logprobs: int
    speculative_config: dict[str, Any] | None
    sim: SimOptions


def parse_args(argv: list[str]) -> ServerOptions:
    """Read the command line; exits 2 with argparse's message when it is wrong."""
    parser = argparse.ArgumentParser(prog=PROG, allow_abbrev=False, description=__doc__)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000)
    add("--model", default="sim/target", help="any name; another name is another model")
    add("--served-model-name", nargs="+", help="the name that requests use; the model's own if absent")
    add("--max-model-len", type=int, default=2048)
    add("--max-num-seqs", type=int, default=256)
    add("--max-num-batched-tokens", type=int, default=2048)
    add("--seed", type=int, default=0, help="seeds sampling, not the model")
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--enable-prompt-tokens-details", action="store_true")
    add("--per-request-spec-decode-metrics", choices=("none", "summary", "detailed"), default="none")
    add("--enable-per-request-metrics", action="store_true")
    add("--max-logprobs", type=int, default=20)
    add("--speculative-config", "-sc", type=_json_object, help="as vLLM's; methods draft_model and ngram")
    add("--sim", type=_sim_options, default=SimOptions(), help="JSON of simulation knobs")
    for flag in ("--dtype", "--generation-config", "--revision", "--tokenizer"):
        add(flag, help="accepted and without effect")
    add("--enforce-eager", action="store_true", help="accepted and without effect")
    a = parser.parse_args(argv)
    return ServerOptions(
        host=a.host,
        port=a.port,
        model=a.model,
        served_model_name=(a.served_model_name or [a.model])[0],
        max_model_len=a.max_model_len,
        max_num_seqs=a.max_num_seqs,
        max_num_batched_tokens=a.max_num_batched_tokens,
        seed=a.seed,
        enable_prefix_caching=a.enable_prefix_caching,
        enable_prompt_tokens_details=a.enable_prompt_tokens_details,
        per_request_spec_decode_metrics=a.per_request_spec_decode_metrics,
        enable_per_request_metrics=a.enable_per_request_metrics,
        max_logprobs=a.max_logprobs,
        speculative_config=a.speculative_config,
        sim=a.sim,
    )


def _json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted: {error}") from None


def _sim_options(text: str) -> SimOptions:
    try:
        return msgspec.json.decode(text, type=SimOptions)
    except msgspec.DecodeError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted: {error}") from None
