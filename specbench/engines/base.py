"""What every engine can do for a sweep. Adding an engine is one file and one line in `registry`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import aiohttp

    from specbench.config.grid import Arm
    from specbench.engines.scoring import Scoring
    from specbench.observe.counters import EngineCounters
    from specbench.observe.prometheus import Samples


class EngineMissing(RuntimeError):
    """The engine's program cannot be run here; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the config that this engine would refuse or silently change.

    ``key`` is the config path, for example ``arms[1].draft``; ``mend`` says what to do.
    """

    key: str
    message: str
    mend: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything needed to start one engine process.

    Attributes:
        argv: the whole command line.
        env: variables added to the environment (secrets included; never stored).
        base_url: ``http://127.0.0.1:PORT``.
        served_model: the name that requests must use.
        speculation_flags: the part of ``argv`` that turns speculation on; empty for the baseline.
        local: whether the server runs as a child of this command; false behind docker, ssh and the like,
            where the owner of the port cannot be seen.
        extra_body: keys that every request to this server must have in its body.
        extra_chat: keys that chat requests must have besides.
        attached: the server runs already: nothing is started, and nothing is stopped.
        headers: sent with every request (keys included; never stored).
        ca: PEM file of the authority that signed the server's certificate; the system's if null.
    """

    arm_id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    port: int
    base_url: str
    served_model: str
    speculation_flags: tuple[str, ...] = ()
    local: bool = True
    extra_body: dict[str, Any] = field(default_factory=dict)
    extra_chat: dict[str, Any] = field(default_factory=dict)
    attached: bool = False
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What actually runs, as the engine itself tells it.

    ``settings`` holds resolved engine settings, flat and comparable between arms;
    settings that are about speculation itself are in ``speculation``.
    ``facts`` are single lines worth showing (model runner, warnings).
    ``weights_bytes`` are all weights, drafts included, on the device that holds most; ``draft_weights_bytes``
    the part of them that is the draft's; ``weights_load_s`` how long loading them took.
    ``max_concurrency`` is how many requests of the model's full length fit into the KV memory, and
    ``max_running_requests`` how many run at once. Null is what the engine does not say.
    """

    version: str
    max_model_len: int | None = None
    kv_capacity_tokens: int | None = None
    speculating: bool | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    weights_bytes: int | None = None
    draft_weights_bytes: int | None = None
    weights_load_s: float | None = None
    max_concurrency: float | None = None
    max_running_requests: int | None = None


class FailureClass(StrEnum):
    """Why a launch or a cell failed."""

    ENGINE_MISSING = "engine_missing"
    BAD_ARGUMENT = "bad_argument"
    BAD_SPECULATION = "bad_speculation_config"
    UNSUPPORTED_METHOD = "unsupported_method"
    MISSING_PACKAGE = "missing_package"
    MODEL_NOT_FOUND = "model_not_found"
    VOCABULARY = "vocabulary_mismatch"
    CONTEXT_TOO_LONG = "context_too_long"
    KV_TOO_SMALL = "kv_too_small"
    OUT_OF_MEMORY = "out_of_memory"
    PORT_IN_USE = "port_in_use"
    STARTUP_TIMEOUT = "startup_timeout"
    WRONG_SERVER = "wrong_server"
    ENGINE_DIED = "engine_died"
    KILLED = "killed"
    REQUESTS_FAILED = "requests_failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Failure:
    """An explained failure: a class, the root-cause lines of the log, and what to do."""

    kind: FailureClass
    summary: str
    mend: str
    log_lines: tuple[str, ...] = ()


class Engine(Protocol):
    """One engine kind, bound to a target and an engine section of a config.

    Methods that take a session speak HTTP to a running server and raise `aiohttp.ClientError`.
    ``progress_patterns`` pairs the name of a start-up phase with a regular expression that a log line
    of that phase matches, in the order of the phases.
    """

    kind: str
    health_path: str
    metrics_path: str
    progress_patterns: tuple[tuple[str, str], ...]

    def version(self) -> str:
        """Version of the installed engine, without starting it.

        Raises:
            EngineMissing: it is not there or does not run.
        """

    def problems(self, arm: Arm, index: int | None) -> list[Problem]:
        """What is wrong with an arm before anything starts; ``index`` is its entry in ``arms``."""

    def launch(self, arm: Arm, port: int) -> LaunchSpec:
        """The command line of an arm on a port of 127.0.0.1."""

    async def describe(self, session: aiohttp.ClientSession, base_url: str, log: str) -> Description:
        """What runs behind ``base_url``; ``log`` is everything that the engine printed so far."""

    async def reset_prefix_cache(self, session: aiohttp.ClientSession, base_url: str) -> bool:
        """Forget cached prefixes; False when the engine cannot or will not."""

    def counters(self, samples: Samples) -> EngineCounters:
        """Translate the engine's metrics page."""

    def scoring(self) -> Scoring:
        """How it is asked for token ids and scores, which the parity check needs."""

    def explain(self, log: str, returncode: int | None) -> Failure:
        """Find the root cause in the log of a launch that failed or died."""


Memory = Literal["none", "until_reset", "always"]
"""How long a drafter keeps what it saw of earlier requests: not at all, until the prefix cache is reset, or as
long as its engine lives. Replaying the same prompts to one that remembers flatters it."""


@runtime_checkable
class Learning(Protocol):
    """An engine some of whose methods draft from what they served before."""

    def memory(self, arm: Arm) -> Memory:
        """How long this arm's drafter remembers."""


@runtime_checkable
class Lossy(Protocol):
    """An engine some of whose settings change the output."""

    def lossy(self, arm: Arm) -> str:
        """Why this arm's output is not the target's; empty when it is."""


@runtime_checkable
class DraftServing(Protocol):
    """An engine that can serve an arm's draft model by itself."""

    def draft_alone(self, arm: Arm) -> Engine:
        """The same engine with the draft as its target; ``arm.draft`` is set."""


@runtime_checkable
class Keeping(Protocol):
    """An engine that does not serve in full, or stops drafting, close to the end of its context."""

    def context_kept(self, arm: Arm) -> int:
        """Tokens at the end of the context that a request must leave free."""


def context_kept(engine: Engine, arm: Arm) -> int:
    """Tokens that a request must leave free at the end of the context; none unless the engine tells.

    With them an answer is as long as was asked for, and drafted for to its end.
    """
    return engine.context_kept(arm) if isinstance(engine, Keeping) else 0


def memory(engine: Engine, arm: Arm) -> Memory:
    """How long an arm's drafter remembers the requests that it served; ``none`` unless the engine tells."""
    return engine.memory(arm) if isinstance(engine, Learning) else "none"


def lossy(engine: Engine, arm: Arm) -> str:
    """Why an arm's output is not the target's by configuration; empty when it is, or nothing is known.

    Such an arm must not be compared with the baseline for parity.
    """
    return engine.lossy(arm) if isinstance(engine, Lossy) else ""
