"""The shape of a specbench config file: frozen, validated, unknown keys refused.

Durations are seconds; the YAML may write them as numbers or as ``90s``, ``20m``, ``1h30m``.
A path starts with ``./``, ``../``, ``/`` or ``~`` and is relative to the config file;
anything else that names a model is a Hugging Face id.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Scalar = str | int | float | bool
ArgValue = Scalar | list[Any] | dict[str, Any] | None

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def parse_duration(value: object) -> object:
    """Turn ``1h30m``, ``20m`` or ``90s`` into seconds; leave numbers alone."""
    if not isinstance(value, str):
        return value
    text = value.strip().replace(" ", "")
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError("a duration is seconds or text like 90s, 20m, 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def split_command(value: object) -> object:
    """Split a command written as one line the way a shell would; leave lists alone."""
    return shlex.split(value) if isinstance(value, str) else value


def number_as_text(value: object) -> object:
    """Environment values are text: ``OMP_NUM_THREADS: 8`` means ``"8"``. True and false stay refused."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?h)?\s*(\d+(\.\d+)?m)?\s*(\d+(\.\d+)?s)?\s*$"},
            ]
        }
    ),
]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
EnvValue = Annotated[str, BeforeValidator(number_as_text, json_schema_input_type=str | int | float)]
Command = Annotated[
    list[str], BeforeValidator(split_command, json_schema_input_type=list[str] | str), Field(min_length=1)
]
Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel):
    """Base of every section: no unknown keys, no mutation, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Target(Strict):
    """The model that is served; its output must not change."""

    model: str = Field(min_length=1, description="Hugging Face id, or a path (starts with ./ ../ / or ~)")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub")
    tokenizer: str | None = Field(None, description="Tokenizer id or path, when not the model's own")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"model": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        section = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [{"type": "string", "minLength": 1, "description": "The model alone"}, section]}


class EngineConfig(Strict):
    """How the engine is started. Shared by every arm, so that arms differ in speculation only."""

    kind: str = Field(description="vllm or simulated")
    command: Command | None = Field(
        None,
        description="Launch prefix, for example [vllm, serve]; the engine's usual one if absent",
    )
    args: dict[str, ArgValue] = Field(
        default_factory=dict,
        description="Engine flags without dashes: true gives --flag, false and null leave it out, "
        "a list repeats values, a mapping becomes JSON",
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict, description="Environment variables added for the engine"
    )
    startup_timeout: Seconds = Field(900.0, description="Longest wait for readiness")
    stop_timeout: Seconds = Field(30.0, description="Grace between SIGTERM and SIGKILL")


class ArmConfig(Strict):
    """One or more speculative arms: every list expands into the grid. The baseline needs no entry."""

    method: str = Field(min_length=1, description="draft_model, ngram, eagle3, mtp, ...")
    name: str | None = Field(None, description="Prefix of the arm's name in reports; the method if absent")
    draft: Text | Annotated[list[Text], Field(min_length=1)] | None = Field(
        None, description="Draft model id(s) or path(s); a list expands"
    )
    k: (
        Annotated[int, Field(ge=1)] | Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] | None
    ) = Field(None, description="Speculative tokens per verify step; a list expands")
    settings: dict[str, ArgValue] = Field(
        default_factory=dict,
        description="Method settings as the engine names them; a list of scalars expands",
    )
    args: dict[str, ArgValue] = Field(
        default_factory=dict,
        description="Engine flags of this arm only; reported as a difference between arms",
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict, description="Environment of this arm only; reported"
    )

    @field_validator("method")
    @classmethod
    def _speculates(cls, value: str) -> str:
        if value.lower() in {"baseline", "none"}:
            raise ValueError("the baseline runs in every sweep and needs no entry: remove it")
        return value


class Loads(Strict):
    """How requests arrive. Each entry is one load of every launch."""

    closed: list[Annotated[int, Field(ge=1, le=65536)]] = Field(
        min_length=1, description="Closed-loop concurrencies: requests kept in flight"
    )

    @field_validator("closed")
    @classmethod
    def _unique(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("the same concurrency is listed twice")
        return value


class Sampling(Strict):
    """Sampling parameters sent with every request; nothing is left to the engine's defaults."""

    temperature: float = Field(0.0, ge=0.0, le=5.0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="Nucleus sampling; 1 is off")
    top_k: int | None = Field(None, ge=1, description="Sample among the k likeliest tokens; absent is off")


class Workload(Strict):
    """What is sent: the request mix. Every arm gets the same requests in the same order."""

    source: str = Field("quickstart", description="A shipped dataset by name, or a path to a JSONL file")
    categories: list[str] | dict[str, Annotated[float, Field(gt=0)]] | None = Field(
        None, description="Categories to use, with weights when a mapping; all of the source if absent"
    )
    requests_per_slot: int = Field(8, ge=6, description="Requests of a cell per unit of concurrency")
    min_requests: int = Field(16, ge=6, description="Smallest number of requests in a cell")
    seconds: Seconds | None = Field(
        None, description="Admit requests for this long instead (never fewer than 6 per slot)"
    )
    max_output_tokens: int = Field(256, ge=1, description="Cap on generated tokens per request")
    output_mode: Literal["natural", "forced"] = Field(
        "natural",
        description="natural: stop at the model's end of text; forced: ignore it (grade D, no verdict)",
    )
    sampling: Sampling = Field(
        default_factory=lambda: Sampling.model_validate({}),
        description="Sampling parameters of every request",
    )
    request_timeout: Seconds = Field(600.0, description="A request without an end after this long failed")


class Expect(Strict):
    """What the user already knows about speed; only used to tell how long a sweep will take."""

    startup: Seconds | None = Field(None, description="Start-up time of one launch")
    tokens_per_s: dict[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0)]] | None = Field(
        None, description="Output tokens/s at a concurrency"
    )


class Measure(Strict):
    """How often and in which order."""

    rounds: int = Field(3, ge=1, le=100, description="Passes over all arms, baseline included")
    warmup_per_slot: int = Field(2, ge=1, le=100, description="Warm-up requests per slot before each cell")
    order_seed: int = Field(1, ge=0, description="Seed of the arm order and of the request order")
    client_lag_limit: Seconds = Field(
        0.02,
        description="A cell whose client was later than this (99th percentile) is invalid: client-bound",
    )
    time_budget: Seconds | None = Field(None, description="No new round starts when it would not fit")
    expect: Expect = Field(
        default_factory=lambda: Expect.model_validate({}),
        description="Known speeds, for the time estimate of `specbench plan`",
    )


class Limits(Strict):
    """Absolute limits that an arm must keep to be recommended; milliseconds."""

    ttft_p95_ms: float | None = Field(None, gt=0, description="Time to first token, 95th percentile")
    tpot_p95_ms: float | None = Field(None, gt=0, description="Time per output token, 95th percentile")


class VerdictConfig(Strict):
    """What counts as paying."""

    min_speedup: float = Field(1.05, gt=0, description="Required ratio of output tokens/s, arm over baseline")
    confidence: float = Field(0.90, gt=0.5, lt=1, description="Of the two-sided interval of every ratio")
    traffic: dict[Annotated[int, Field(ge=1)], Annotated[float, Field(ge=0)]] | None = Field(
        None, description="Share of serving time spent at each concurrency; equal shares if absent"
    )
    limits: Limits = Field(
        default_factory=lambda: Limits.model_validate({}), description="Absolute limits for a recommendation"
    )


class Config(Strict):
    """A whole config file."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the sweep, used in folder names and reports",
    )
    target: Target = Field(description="The model that is served: an id or path, or a section")
    engine: EngineConfig = Field(description="How the engine is started")
    arms: list[ArmConfig] = Field(
        min_length=1, description="The speculative arms; the baseline runs in any case"
    )
    loads: Loads = Field(description="How requests arrive")
    workload: Workload = Field(
        default_factory=lambda: Workload.model_validate({}), description="What is sent"
    )
    measure: Measure = Field(
        default_factory=lambda: Measure.model_validate({}), description="How often and in which order"
    )
    verdict: VerdictConfig = Field(
        default_factory=lambda: VerdictConfig.model_validate({}), description="What counts as paying"
    )
    gate: bool = Field(False, description="End `sweep` with the verdict's exit code")
    out: str = Field("./runs", description="Folder of run directories, relative to the working directory")

    @model_validator(mode="after")
    def _traffic_names_loads(self) -> Config:
        extra = set(self.verdict.traffic or {}) - set(self.loads.closed)
        if extra:
            raise ValueError(
                f"verdict.traffic names concurrency {sorted(extra)}, which loads.closed does not run"
            )
        if self.verdict.traffic is not None and sum(self.verdict.traffic.values()) <= 0:
            raise ValueError("verdict.traffic has no positive share")
        return self
