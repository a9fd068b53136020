"""The metrics page, with vLLM 0.32's names, labels and observation rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from specbench.engines.simulated.core import EngineCore
    from specbench.engines.simulated.sequence import Step

_TTFT_BUCKETS: Final = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    10.0,
    40.0,
)
_ITL_BUCKETS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
_E2E_BUCKETS: Final = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0)
_SIZE_BUCKETS: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_FINISH_REASONS: Final = ("stop", "length", "abort", "error")


class Metrics:
    """All series of one server.

    Args:
        model: the served name, label ``model_name``.
        k: speculative tokens; 0 leaves the ``spec_decode`` series out, as vLLM does.
        cache_config: labels of ``vllm:cache_config_info``.
    """

    def __init__(self, model: str, k: int, cache_config: dict[str, str]) -> None:
        self._registry = CollectorRegistry()
        self._labels = {"model_name": model, "engine": "0"}
        self.running = self._gauge("num_requests_running", "Requests in the batch.")
        self.waiting = self._gauge("num_requests_waiting", "Requests queued.")
        self.kv_usage = self._gauge("kv_cache_usage_perc", "Share of KV memory in use; 1 is all.")
        self.preemptions = self._counter("num_preemptions", "Preemptions.")
        self.prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up.")
        self.prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prefill tokens processed.")
        self.prompt_tokens_cached = self._counter(
            "prompt_tokens_cached", "Prompt tokens served from the cache."
        )
        self.generation_tokens = self._counter("generation_tokens", "Generation tokens.")
        self.iteration_tokens = self._histogram("iteration_tokens_total", "Tokens per step.", _SIZE_BUCKETS)
        self.ttft = self._histogram("time_to_first_token_seconds", "Time to first token.", _TTFT_BUCKETS)
        self.itl = self._histogram("inter_token_latency_seconds", "Time between outputs.", _ITL_BUCKETS)
        self.tpot = self._histogram("request_time_per_output_token_seconds", "Time per token.", _ITL_BUCKETS)
        self.e2e = self._histogram("e2e_request_latency_seconds", "End-to-end latency.", _E2E_BUCKETS)
        self.request_prompt = self._histogram("request_prompt_tokens", "Prompt tokens.", _SIZE_BUCKETS)
        self.request_generation = self._histogram(
            "request_generation_tokens", "Output tokens.", _SIZE_BUCKETS
        )
        success = Counter(
            "vllm:request_success",
            "Requests finished.",
            [*self._labels, "finished_reason"],
            registry=self._registry,
        )
        self.success = {
            reason: success.labels(**self._labels, finished_reason=reason) for reason in _FINISH_REASONS
        }
        info = Gauge(
            "vllm:cache_config_info",
            "Cache configuration.",
            [*cache_config, "engine"],
            registry=self._registry,
        )
        info.labels(**cache_config, engine="0").set(1)
        self._drafting = bool(k)
        if k:
            self.drafts = self._counter("spec_decode_num_drafts", "Drafts.")
            self.draft_tokens = self._counter("spec_decode_num_draft_tokens", "Draft tokens.")
            self.accepted = self._counter("spec_decode_num_accepted_tokens", "Accepted tokens.")
            per_position = Counter(
                "vllm:spec_decode_num_accepted_tokens_per_pos",
                "Accepted tokens by position.",
                [*self._labels, "position"],
                registry=self._registry,
            )
            self.accepted_per_position = [
                per_position.labels(**self._labels, position=str(i)) for i in range(k)
            ]

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, list(self._labels), registry=self._registry).labels(**self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, list(self._labels), registry=self._registry).labels(
            **self._labels
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"vllm:{name}", text, list(self._labels), buckets=buckets, registry=self._registry
        ).labels(**self._labels)

    def record_step(self, step: Step) -> None:
        """Count one engine iteration; iterations without an output are not observed by vLLM."""
        self.preemptions.inc(step.preemptions)
        self.prefix_queries.inc(step.queried_tokens)
        self.prefix_hits.inc(step.cached_tokens)
        if not step.outputs:
            return
        generated = sum(len(output.tokens) for output in step.outputs)
        prompt = sum(len(o.sequence.prompt) for o in step.outputs if o.first)
        self.generation_tokens.inc(generated)
        self.prompt_tokens.inc(prompt)
        self.prompt_tokens_cached.inc(sum(o.sequence.cached_tokens for o in step.outputs if o.first))
        self.iteration_tokens.observe(generated + step.prefill_tokens)
        if self._drafting and step.drafting.drafts:
            self.drafts.inc(step.drafting.drafts)
            self.draft_tokens.inc(step.drafting.draft_tokens)
            self.accepted.inc(step.drafting.accepted)
            for i, series in enumerate(self.accepted_per_position):
                series.inc(sum(accepted > i for accepted in step.drafting.per_step_accepted))

    def page(self, core: EngineCore) -> bytes:
        """The page in the text exposition format."""
        self.running.set(len(core.running))
        self.waiting.set(len(core.waiting))
        self.kv_usage.set(core.kv_usage)
        return generate_latest(self._registry)
