"""The shape of a specbench config file: frozen, validated, unknown keys refused.

Durations are seconds; the YAML may write them as numbers or as ``90s``, ``20m``, ``1h30m``.
A path starts with ``./``, ``../``, ``/`` or ``~`` and is relative to the config file;
anything else that names a model is a Hugging Face id.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

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


Seconds = Annotated[float, BeforeValidator(parse_duration), Field(gt=0)]


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


class EngineConfig(Strict):
    """How the engine is started. Shared by every arm, so that arms differ in speculation only."""

    kind: str = Field(description="vllm or simulated")
    command: list[str] | None = Field(
        None,
        min_length=1,
        description="Launch prefix, for example [vllm, serve]; the engine's usual one if absent",
    )
    args: dict[str, ArgValue] = Field(
        default_factory=dict,
        description="Engine flags without dashes: true gives --flag, false and null leave it out, "
        "a list repeats values, a mapping becomes JSON",
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment variables added for the engine"
    )
    startup_timeout: Seconds = Field(900.0, description="Longest wait for readiness")
    stop_timeout: Seconds = Field(30.0, description="Grace between SIGTERM and SIGKILL")

    @field_validator("command", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return value.split() if isinstance(value, str) else value

    @field_validator("env", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        if isinstance(value, dict):
            return {
                k: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v
                for k, v in value.items()
            }
        return value


class ArmConfig(Strict):
    """One or more speculative arms: every list expands into the grid. The baseline needs no entry."""

    method: str = Field(min_length=1, description="draft_model, ngram, eagle3, mtp, ...")
    name: str | None = Field(None, description="Prefix of the arm's name in reports; the method if absent")
    draft: str | list[str] | None = Field(None, description="Draft model id(s) or path(s)")
    k: int | list[int] | None = Field(None, description="Speculative tokens per verify step; a list expands")
    settings: dict[str, ArgValue] = Field(
        default_factory=dict,
        description="Method settings as the engine names them; a list of scalars expands",
    )
    args: dict[str, ArgValue] = Field(
        default_factory=dict,
        description="Engine flags of this arm only; reported as a difference between arms",
    )
    env: dict[str, str] = Field(default_factory=dict, description="Environment of this arm only; reported")


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

    temperature: float = Field(0.0, ge=0.0, le=5.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    top_k: int | None = Field(None, ge=1)


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
    sampling: Sampling = Field(default_factory=lambda: Sampling.model_validate({}))
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
    time_budget: Seconds | None = Field(None, description="No new round starts when it would not fit")
    expect: Expect = Field(default_factory=lambda: Expect.model_validate({}))


class Limits(Strict):
    """Absolute limits that an arm must keep to be recommended; milliseconds."""

    ttft_p95_ms: float | None = Field(None, gt=0)
    tpot_p95_ms: float | None = Field(None, gt=0)


class VerdictConfig(Strict):
    """What counts as paying."""

    min_speedup: float = Field(1.05, gt=0, description="Required ratio of output tokens/s, arm over baseline")
    confidence: float = Field(0.90, gt=0.5, lt=1, description="Of the two-sided interval of every ratio")
    traffic: dict[Annotated[int, Field(ge=1)], Annotated[float, Field(ge=0)]] | None = Field(
        None, description="Share of serving time spent at each concurrency; equal shares if absent"
    )
    limits: Limits = Field(default_factory=lambda: Limits.model_validate({}))


class Config(Strict):
    """A whole config file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    target: Target
    engine: EngineConfig
    arms: list[ArmConfig] = Field(min_length=1)
    loads: Loads
    workload: Workload = Field(default_factory=lambda: Workload.model_validate({}))
    measure: Measure = Field(default_factory=lambda: Measure.model_validate({}))
    verdict: VerdictConfig = Field(default_factory=lambda: VerdictConfig.model_validate({}))
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
