"""The shape of a specbench config file: frozen, validated, unknown keys refused.

Durations are seconds; the YAML may write them as numbers or as ``90s``, ``20m``, ``1h30m``.
A path starts with ``./``, ``../``, ``/`` or ``~`` and is relative to the config file;
anything else that names a model is a Hugging Face id.
"""

from __future__ import annotations

import itertools
import re
import shlex
from typing import Annotated, Any, Final, Literal

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
CpuList = Annotated[
    str,
    BeforeValidator(number_as_text, json_schema_input_type=str | int),
    StringConstraints(pattern=r"^\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*$"),
]
Text = Annotated[str, Field(min_length=1)]
EngineName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$")]


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

    kind: str = Field(
        description="vllm, sglang or simulated; endpoint for servers that already run (nothing is started)"
    )
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
    url: Text | None = Field(
        None, description="endpoint: base URL of the running server without speculation, the baseline"
    )
    model: Text | None = Field(
        None, description="endpoint: name under which the servers serve the target; target.model if absent"
    )
    headers: dict[Text, Text] = Field(
        default_factory=dict,
        description='endpoint: sent with every request, for example Authorization: "Bearer ${KEY}"',
    )
    ca: Text | None = Field(
        None, description="endpoint: PEM file of the authority that signed the servers' certificates"
    )
    matched_baseline: bool | Annotated[dict[str, ArgValue], Field(min_length=1)] = Field(
        False,
        description="Add an arm without speculation but with its side effects (vllm: no-async-scheduling; sglang: "
        "disable-overlap-schedule, 48 running requests), or with these flags: tells the two apart, and is never "
        "recommended",
    )
    allow_same: bool = Field(
        False, description="endpoint: let two arms be one server, to see how far equal arms come out apart"
    )


class ArmConfig(Strict):
    """One or more speculative arms: every list expands into the grid. The baseline needs no entry."""

    method: str = Field(min_length=1, description="draft_model, ngram, eagle3, mtp, ...")
    name: str | None = Field(None, description="Prefix of the arm's name in reports; the method if absent")
    engine: EngineName | Annotated[list[EngineName], Field(min_length=1)] | None = Field(
        None, description="Engine(s) to run it on, by name in other_engines; `engine` if absent"
    )
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
    variants: list[Annotated[dict[str, ArgValue], Field(min_length=1)]] = Field(
        default_factory=list,
        description="Settings that belong together, such as the three numbers of a tree: each mapping is laid "
        "over `settings` and is one choice",
    )
    args: dict[str, ArgValue] = Field(
        default_factory=dict,
        description="Engine flags of this arm only; reported as a difference between arms",
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict, description="Environment of this arm only; reported"
    )
    url: Text | None = Field(None, description="endpoint: base URL of the running server of this arm")
    model: Text | None = Field(
        None, description="endpoint: name of the target at this arm's server; engine.model if absent"
    )

    @field_validator("method")
    @classmethod
    def _speculates(cls, value: str) -> str:
        if value.lower() in {"baseline", "none"}:
            raise ValueError("the baseline runs in every sweep and needs no entry: remove it")
        return value

    @model_validator(mode="after")
    def _variants_are_not_settings(self) -> ArmConfig:
        for number, variant in enumerate(self.variants):
            both = sorted(set(variant) & set(self.settings))
            if both:
                raise ValueError(
                    f"variants[{number}] gives {both[0]!r}, which settings gives too: leave it in one of them"
                )
        return self


TRACE_ID: Final = "trace"


def closed_id(concurrency: int) -> str:
    """Id of a closed-loop load."""
    return f"c{concurrency}"


class OpenLoad(Strict):
    """Requests sent at a rate, whatever the engine does: arrival times are drawn beforehand from a seed."""

    rate: float = Field(gt=0, le=100_000, description="Requests per second")
    arrivals: Literal["poisson", "gamma"] = Field(
        "poisson",
        description="poisson: independent arrivals; gamma: gaps with the coefficient of variation cv",
    )
    cv: float = Field(
        1.0, gt=0, le=50, description="Of the gaps between arrivals; 1 is Poisson, more is burstier"
    )

    @model_validator(mode="after")
    def _poisson_has_cv_one(self) -> OpenLoad:
        if self.arrivals == "poisson" and self.cv != 1.0:
            raise ValueError("poisson arrivals have cv 1: write `arrivals: gamma` for another cv")
        return self

    @property
    def id(self) -> str:
        """``r2.0``, or ``r2.0-gamma3.0``."""
        return f"r{self.rate}" + ("" if self.arrivals == "poisson" else f"-gamma{self.cv}")


class TraceLoad(Strict):
    """The recorded arrival times of the workload, replayed."""

    time_scale: float = Field(
        1.0, gt=0, le=10_000, description="Recorded times are multiplied by this: 2 halves the rate"
    )
    jitter_s: float = Field(
        0.0,
        ge=0,
        description="Move each arrival by a seeded uniform amount below this: for times on a coarse grid",
    )
    seconds: Seconds | None = Field(
        None, description="Replay the arrivals of the first seconds, after scaling; all if absent"
    )
    history: Literal["recorded", "real"] = Field(
        "recorded",
        description="Earlier replies inside a session: as recorded (the same for every arm), "
        "or what the engine just said",
    )


class Loads(Strict):
    """How requests arrive. Each entry is one load of every launch; at least one is needed."""

    closed: list[Annotated[int, Field(ge=1, le=65536)]] = Field(
        default_factory=list, description="Closed-loop concurrencies: requests kept in flight"
    )
    open: list[OpenLoad] = Field(
        default_factory=list,
        description="Open-loop rates: requests are sent on time, however many are running",
    )
    trace: TraceLoad | None = Field(
        None, description="Replay the arrival times that the workload's file recorded"
    )

    @field_validator("closed")
    @classmethod
    def _unique(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("the same concurrency is listed twice")
        return value

    @field_validator("open")
    @classmethod
    def _unique_rates(cls, value: list[OpenLoad]) -> list[OpenLoad]:
        if len({(x.rate, x.arrivals, x.cv) for x in value}) != len(value):
            raise ValueError("the same rate and arrivals are listed twice")
        return value

    @model_validator(mode="after")
    def _some_load(self) -> Loads:
        if not self.closed and not self.open and self.trace is None:
            raise ValueError(
                "names no load: give `closed` (concurrencies), `open` (rates) or `trace: {}` (recorded times)"
            )
        return self


class Sampling(Strict):
    """Sampling parameters sent with every request; nothing is left to the engine's defaults."""

    temperature: float = Field(0.0, ge=0.0, le=5.0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="Nucleus sampling; 1 is off")
    top_k: int | None = Field(None, ge=1, description="Sample among the k likeliest tokens; absent is off")


class Lengths(Strict):
    """Prompt and output lengths of traffic without text, put on the text of ``workload.source``."""

    source: str = Field(
        min_length=1,
        description="A shipped trace by name (`specbench workload list`), or a path to a trace file",
    )
    text: Literal["matched", "filler"] = Field(
        "matched",
        description="matched: real text of workload.source packed to each recorded length; "
        "filler: made-up words, for load tests only (no verdict)",
    )


class Workload(Strict):
    """What is sent: the request mix. Every arm gets the same requests in the same order."""

    source: str = Field(
        "quickstart", description="A shipped dataset by name, or a path to a request file of any known format"
    )
    format: str | None = Field(
        None,
        description="Read a file as this format (`specbench workload list`); its content decides if absent",
    )
    encoding: str | None = Field(None, description="Character encoding of a file, when it is not UTF-8")
    on_bad_row: Literal["error", "skip"] = Field(
        "error",
        description="error: a malformed row stops everything; skip: it is left out, counted and reported",
    )
    lengths: Lengths | None = Field(
        None, description="Take prompt and output lengths from a trace; those of the source if absent"
    )
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


class OpenCheck(Strict):
    """After the closed loads: do the guardrails hold for the recommended arm when requests arrive on their own?"""

    shares: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        default_factory=lambda: [0.7, 0.9],
        min_length=1,
        description="Rates, as shares of the requests/s that the baseline finished at the highest closed load",
    )
    rounds: int = Field(
        6, ge=2, le=50, description="Most pairs of launches; it ends after 3 when nothing is left open"
    )
    requests: int = Field(
        1200,
        ge=120,
        le=100_000,
        description="Requests of a cell: TTFT p95 needs 250, TPOT p99 1200 to be estimable",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_true(cls, value: object) -> object:
        return {} if value is True else value

    @field_validator("shares")
    @classmethod
    def _unique(cls, value: list[float]) -> list[float]:
        if len(set(value)) != len(value):
            raise ValueError("the same share is listed twice")
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        section = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [{"const": True, "description": "With the usual settings"}, section]}


class Measure(Strict):
    """How often and in which order."""

    strategy: Literal["full", "adaptive"] = Field(
        "full",
        description="full: every arm in every round. adaptive: two rounds of all arms, then new rounds of the "
        "best one and the baseline until the answer is clear; only these enter the verdict",
    )
    rounds: int = Field(
        3, ge=1, le=100, description="Passes over all arms, baseline included (strategy full)"
    )
    looks: list[Annotated[int, Field(ge=2, le=100)]] = Field(
        default_factory=lambda: [3, 4, 5, 6, 8, 10, 12, 14],
        min_length=1,
        description="Adaptive: numbers of confirming rounds at which the answer is looked for; fixed beforehand",
    )
    max_rounds: int | None = Field(
        None,
        ge=2,
        le=200,
        description="Adaptive: most confirming rounds, lost ones included; two more than the last look if absent",
    )
    variance_prior: bool = Field(
        False,
        description="Adaptive: let the spread seen while exploring count, which decides one or two launches "
        "sooner; a stage that happened to be calm makes it err more often",
    )
    warmup_per_slot: int = Field(2, ge=1, le=100, description="Warm-up requests per slot before each cell")
    order_seed: int = Field(1, ge=0, description="Seed of the arm order and of the request order")
    client_lag_limit: Seconds | None = Field(
        None,
        description="A cell whose client was later than this (99th percentile) is invalid: client-bound; "
        "20 ms or one median chunk gap of the cell if absent, whichever is longer",
    )
    client_cpus: CpuList | None = Field(
        None,
        description="Processors of the client alone, as `taskset -c` writes them (0-1,4); "
        "`specbench doctor` proposes some; any if absent",
    )
    open_check: OpenCheck | None = Field(
        None,
        description="true, or a section: at the end, test the guardrails (verdict.margins, verdict.limits) of the "
        "recommended arm with Poisson arrivals at 0.7 and 0.9 of what the baseline can do",
    )
    time_budget: Seconds | None = Field(None, description="No new round starts when it would not fit")
    expect: Expect = Field(
        default_factory=lambda: Expect.model_validate({}),
        description="Known speeds, for the time estimate of `specbench plan`",
    )

    @property
    def most_confirming(self) -> int:
        """Adaptive: confirming rounds at most. The last look and two lost rounds, when not given."""
        return self.max_rounds if self.max_rounds is not None else self.looks[-1] + 2

    @model_validator(mode="after")
    def _looks_are_possible(self) -> Measure:
        if any(b <= a for a, b in itertools.pairwise(self.looks)):
            raise ValueError(f"measure.looks {self.looks} must increase")
        if self.max_rounds is not None and self.max_rounds < self.looks[-1]:
            raise ValueError(
                f"measure.max_rounds is {self.max_rounds}, but the last look needs {self.looks[-1]} rounds: "
                "raise it or leave out that look"
            )
        return self


Margin = Annotated[float, Field(gt=0, le=10)]


class Margins(Strict):
    """How much worse than the baseline an arm may be and still be recommended; 0.15 is 15 %. Null for no
    limit."""

    ttft_p95: Margin | None = Field(0.15, description="Time to first token, 95th percentile of each launch")
    tpot_p99: Margin | None = Field(0.10, description="Time per output token, 99th percentile of each launch")
    chunk_gap_p99: Margin | None = Field(
        None,
        description="Time between chunks, 99th percentile: grows with speculation by design, so not limited "
        "unless set",
    )


class Limits(Strict):
    """Absolute limits that an arm must keep to be recommended; milliseconds."""

    ttft_p95_ms: float | None = Field(None, gt=0, description="Time to first token, 95th percentile")
    tpot_p95_ms: float | None = Field(None, gt=0, description="Time per output token, 95th percentile")


class VerdictConfig(Strict):
    """What counts as paying."""

    min_speedup: float = Field(1.05, gt=0, description="Required ratio of output tokens/s, arm over baseline")
    confidence: float = Field(0.90, gt=0.5, lt=1, description="Of the two-sided interval of every ratio")
    traffic: dict[Annotated[int, Field(ge=1)] | Text, Annotated[float, Field(ge=0)]] | None = Field(
        None,
        description="Share of serving time spent at each concurrency, or at another load by its id "
        "(r2.0, trace); equal shares of the closed loads (of all, if none is closed) if absent",
    )
    traffic_from: str | None = Field(
        None,
        description="Instead of traffic: path of a production dump of vllm:num_requests_running or "
        "sglang:num_running_reqs (metrics pages, or answers of Prometheus' query_range); the time spent at each "
        "number goes to the nearest of loads.closed",
    )
    limits: Limits = Field(
        default_factory=lambda: Limits.model_validate({}), description="Absolute limits for a recommendation"
    )
    margins: Margins = Field(
        default_factory=lambda: Margins.model_validate({}),
        description="Worsening of tail latencies, launch by launch, that is allowed; null for no limit",
    )
    load_order: list[Annotated[int, Field(ge=1)] | Text] | None = Field(
        None,
        description="Adaptive: order in which the loads are tested, concurrencies or ids of loads; a load is "
        "recommended only if all before it are. From low to high if absent",
    )


class TaskConfig(Strict):
    """Task level of the parity check: a command of your own scores every output, and mean scores are compared."""

    command: Command = Field(
        description="The scorer, run once in the config's folder, never through a shell: JSON lines of outputs in, "
        "one {id, score} with a score of 0 to 1 out for each; it must not need the engine's GPU",
    )
    margin: float = Field(
        0.02,
        gt=0,
        lt=1,
        description="Largest difference of the mean score, arm less baseline, that counts as equal",
    )
    timeout: Seconds = Field(600.0, description="The scorer is stopped after this long")


class ParityConfig(Strict):
    """Whether speculation leaves the output alone: tested beside the timed cells, or by `specbench parity`."""

    tier: Literal["smoke", "gate", "nightly"] | None = Field(
        None,
        description="smoke: 64 prompts, gate: 256 (enough to pass), nightly: 4096; `sweep` leaves parity out "
        "if absent",
    )
    prompts: int | None = Field(None, ge=8, le=100_000, description="Prompts, instead of the tier's number")
    tokens: int = Field(256, ge=16, le=65_536, description="Most tokens of an output")
    temperature: float = Field(
        1.0, gt=0, le=5.0, description="Of the sampled outputs; 1 with top_p 1 gives the sharpest test"
    )
    top_p: float = Field(1.0, gt=0, le=1.0, description="Of the sampled outputs; 1 is off")
    as_served: bool = Field(
        True,
        description="Above tier smoke, sample also as workload.sampling does where that is another law: a second "
        "battery of tests, arm against baseline",
    )
    concurrency: list[Annotated[int, Field(ge=1, le=1024)]] | None = Field(
        None,
        min_length=1,
        description="The lowest and the highest of these are tested; those of loads.closed if absent",
    )
    task: TaskConfig | None = Field(
        None, description="Also score every output with a command of your own, and compare mean scores"
    )


class Config(Strict):
    """A whole config file."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the sweep, used in folder names and reports",
    )
    target: Target = Field(description="The model that is served: an id or path, or a section")
    engine: EngineConfig = Field(description="How the engine is started")
    other_engines: dict[EngineName, EngineConfig] = Field(
        default_factory=dict,
        description="More engines in the same run, by name; each gets its own baseline, and arms name theirs",
    )
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
    parity: ParityConfig = Field(
        default_factory=lambda: ParityConfig.model_validate({}),
        description="Whether the arms' output is tested to be the baseline's",
    )
    gate: bool = Field(False, description="End `sweep` with the verdict's exit code")
    out: str = Field("./runs", description="Folder of run directories, relative to the working directory")

    def engine_named(self, name: str) -> EngineConfig:
        """The engine section of an arm; an empty name is ``engine``."""
        return self.other_engines[name] if name else self.engine

    @model_validator(mode="after")
    def _arms_name_engines(self) -> Config:
        if self.engine.kind in self.other_engines:
            raise ValueError(
                f"other_engines: {self.engine.kind!r} is the name of `engine` itself: call the other one differently"
            )
        known = [self.engine.kind, *self.other_engines]
        for i, arm in enumerate(self.arms):
            for name in [arm.engine] if isinstance(arm.engine, str) else arm.engine or []:
                if name not in known:
                    raise ValueError(f"arms[{i}].engine names {name!r}; the engines are {', '.join(known)}")
        return self

    @model_validator(mode="after")
    def _traffic_names_loads(self) -> Config:
        named = set(self.verdict.traffic or {})
        extra = sorted(c for c in named if isinstance(c, int) and c not in self.loads.closed)
        if extra:
            raise ValueError(f"verdict.traffic names concurrency {extra}, which loads.closed does not run")
        unknown = sorted(name for name in named if isinstance(name, str) and name not in self._load_ids())
        if unknown:
            raise ValueError(
                f"verdict.traffic names the load {unknown[0]!r}; the loads are {', '.join(self._load_ids())} "
                "(a concurrency is a whole number without quotes)"
            )
        if self.verdict.traffic is not None and sum(self.verdict.traffic.values()) <= 0:
            raise ValueError("verdict.traffic has no positive share")
        return self

    @model_validator(mode="after")
    def _closed_loads_where_needed(self) -> Config:
        if self.verdict.traffic_from is not None and self.verdict.traffic is not None:
            raise ValueError("verdict has both traffic and traffic_from: keep one of them")
        for key, wanted in (
            ("verdict.traffic_from", self.verdict.traffic_from is not None),
            ("measure.open_check", self.measure.open_check is not None),
        ):
            if wanted and not self.loads.closed:
                raise ValueError(f"{key} needs closed loads: name concurrencies in loads.closed")
        return self

    @model_validator(mode="after")
    def _order_names_loads(self) -> Config:
        order = self.verdict.load_order
        if order is None:
            return self
        ids, known = [closed_id(x) if isinstance(x, int) else x for x in order], self._load_ids()
        if sorted(ids) != sorted(known):
            raise ValueError(
                f"verdict.load_order names {', '.join(ids)}; it must name each of the loads once: "
                f"{', '.join(known)}"
            )
        return self

    def _load_ids(self) -> list[str]:
        return [
            *(closed_id(c) for c in self.loads.closed),
            *(x.id for x in self.loads.open),
            *([TRACE_ID] if self.loads.trace is not None else []),
        ]
