"""Log lines worded as vLLM words them, so that one set of patterns reads both engines."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final, NoReturn

from specbench import __version__

if TYPE_CHECKING:
    from specbench.engines.simulated.core import EngineCore
    from specbench.engines.simulated.options import ServerOptions, Speculation
    from specbench.engines.simulated.sequence import Step

API: Final = "APIServer"
ENGINE: Final = "EngineCore"


def line(text: str, *, level: str = "INFO", source: str = "api_server.py:1", process: str = API) -> None:
    """Print one or more log lines with vLLM's prefix."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    for part in text.splitlines():
        print(f"({process} pid={os.getpid()}) {level} {stamp} [{source}] {part}", flush=True)


def starting(options: ServerOptions, speculation: Speculation | None) -> None:
    """What vLLM says before it listens."""
    line(f"vLLM API server version simulated-{__version__}")
    spec = "None"
    if speculation is not None:
        spec = (
            f"SpeculativeConfig(method='{speculation.method}', model={speculation.model!r}, "
            f"num_spec_tokens={speculation.k})"
        )
    line(
        f"Initializing a V1 LLM engine (vsimulated-{__version__}) with config: model='{options.model}', "
        f"speculative_config={spec}, max_seq_len={options.max_model_len}, seed={options.seed}",
        source="core.py:101",
        process=ENGINE,
    )
    if speculation is not None and speculation.model is not None:
        line("Loading drafter model...", source="model_runner.py:1", process=ENGINE)


def kv_size(kv_tokens: int, max_model_len: int) -> None:
    """The KV memory line."""
    line(
        f"CPU KV cache size: {kv_tokens:,} tokens, Maximum concurrency for {max_model_len:,} tokens per "
        f"request: {kv_tokens / max_model_len:.2f}x",
        source="kv_cache_utils.py:2327",
        process=ENGINE,
    )


def ready(options: ServerOptions) -> None:
    """The last line of a start."""
    line(f"Starting vLLM API server 0 on http://{options.host}:{options.port}")
    print(f"({API} pid={os.getpid()}) INFO:     Application startup complete.", flush=True)


def shutdown() -> None:
    """A stop that was asked for."""
    line("[shutdown] API server: signal received, mode=abort timeout=0s", source="launcher.py:1")


def die() -> NoReturn:
    """Die as vLLM does when its engine core fails at run time: loudly, with exit code 0."""
    line(
        "EngineCore encountered a fatal error.\nTraceback (most recent call last):\n"
        "RuntimeError: simulated fault: the engine core died",
        level="ERROR",
        source="core.py:1512",
        process=ENGINE,
    )
    sys.stdout.flush()
    os._exit(0)


def traceback_and_exit(root_cause: str, *, process: str = API, code: int = 1) -> NoReturn:
    """A start that fails; failures inside the engine core get vLLM's generic last line too."""
    lines = ["Traceback (most recent call last):", *root_cause.splitlines()]
    if process == ENGINE:
        line("\n".join(lines), level="ERROR", source="core.py:1000", process=ENGINE)
        lines = [
            "Traceback (most recent call last):",
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ]
    for text in lines:
        print(f"({API} pid={os.getpid()}) {text}", file=sys.stderr, flush=True)
    sys.exit(code)


class StatsLog:
    """The periodic lines about throughput and drafting; ``VLLM_LOG_STATS_INTERVAL`` sets the seconds."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._interval_s = float(os.environ.get("VLLM_LOG_STATS_INTERVAL", "10"))
        self._reset()

    def _reset(self) -> None:
        self._since = time.monotonic()
        self._tokens = self._prompt = self._drafts = self._drafted = self._accepted = 0
        self._per_position = [0] * self._k

    def add(self, step: Step, core: EngineCore) -> None:
        """Count a step; prints when the interval is over."""
        self._tokens += sum(len(output.tokens) for output in step.outputs)
        self._prompt += step.prefill_tokens
        self._drafts += step.drafting.drafts
        self._drafted += step.drafting.draft_tokens
        self._accepted += step.drafting.accepted
        for accepted in step.drafting.per_step_accepted:
            for i in range(accepted):
                self._per_position[i] += 1
        if time.monotonic() - self._since >= self._interval_s:
            self._print(core, time.monotonic() - self._since)
            self._reset()

    def _print(self, core: EngineCore, seconds: float) -> None:
        line(
            f"Engine 000: Avg prompt throughput: {self._prompt / seconds:.1f} tokens/s, Avg generation "
            f"throughput: {self._tokens / seconds:.1f} tokens/s, Running: {len(core.running)} reqs, Waiting: "
            f"{len(core.waiting)} reqs, GPU KV cache usage: {100 * core.kv_usage:.1f}%",
            source="loggers.py:1",
        )
        if not self._drafts:
            return
        rates = ", ".join(f"{count / self._drafts:.3f}" for count in self._per_position)
        line(
            f"SpecDecoding metrics: Mean acceptance length: {1 + self._accepted / self._drafts:.2f}, "
            f"Accepted throughput: {self._accepted / seconds:.2f} tokens/s, Drafted throughput: "
            f"{self._drafted / seconds:.2f} tokens/s, Accepted: {self._accepted} tokens, Drafted: "
            f"{self._drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: "
            f"{100 * self._accepted / self._drafted:.1f}%",
            source="metrics.py:120",
        )
