"""The HTTP server: paces the engine core in wall time and speaks vLLM's dialect."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from typing import Any, Final

import msgspec
from aiohttp import web

from specbench import __version__
from specbench.engines.simulated import logs
from specbench.engines.simulated.core import EngineCore
from specbench.engines.simulated.faults import FaultPlan, Misbehaviour
from specbench.engines.simulated.metrics import Metrics
from specbench.engines.simulated.options import ServerOptions, Speculation
from specbench.engines.simulated.sampling import log_probabilities
from specbench.engines.simulated.sequence import Output, Sequence, Step
from specbench.engines.simulated.wire import (
    BadRequest,
    ChatRequest,
    CompletionRequest,
    Json,
    Limits,
    Reply,
    prompt_ids,
    prompt_logprobs,
    sampling_params,
    speculative_metrics,
    usage,
    withheld,
)

MAX_DEBT_S: Final = 0.05
"""A step that came late is made up for, so that mean rates hold; a longer stall is not."""
SHORTEST_SLEEP_S: Final = 0.0005
CHUNKS_BEFORE_FAULT: Final = 2
ENGINE_TROUBLE: Final = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Server:
    """One engine behind one port."""

    def __init__(self, options: ServerOptions, speculation: Speculation | None) -> None:
        self.options = options
        self.speculation = speculation
        self.core = EngineCore(
            options.model,
            sim=options.sim,
            speculation=speculation,
            seed=options.seed,
            max_model_len=options.max_model_len,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            prefix_caching=options.enable_prefix_caching,
        )
        self.faults = FaultPlan(options.sim.faults)
        self.metrics = self._new_metrics()
        self._limits = Limits(options.max_model_len, options.max_logprobs, speculation is not None)
        self._queues: dict[int, asyncio.Queue[Output]] = {}
        self._times: dict[int, _Times] = {}
        self._wake = asyncio.Event()
        self._due = 0.0
        self._ids = itertools.count()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=64 * 2**20)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
                web.get("/server_info", self._server_info),
                web.post("/reset_prefix_cache", self._reset_prefix_cache),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
            ]
        )
        return app

    async def run(self) -> None:
        """Step the engine for ever; every step takes its simulated duration of wall time."""
        clock = asyncio.get_running_loop().time
        log = logs.StatsLog(self.speculation.k if self.speculation else 0)
        while True:
            if not self.core.has_work():
                self._wake.clear()
                await self._wake.wait()
                self._due = clock()
            step = self.core.step()
            now = clock()
            self._due = (
                max(self._due, now - MAX_DEBT_S) + step.duration_ms * self.options.sim.time_scale / 1000
            )
            delay = self._due - now
            await asyncio.sleep(delay if delay > SHORTEST_SLEEP_S else 0)
            self._publish(step)
            log.add(step, self.core)

    def _publish(self, step: Step) -> None:
        now = time.monotonic()
        # Clients that went away during the step get nothing and count for nothing.
        step.outputs = [output for output in step.outputs if output.sequence.id in self._times]
        self.metrics.record_step(step)
        for output in step.outputs:
            key = output.sequence.id
            times = self._times[key]
            if output.first:
                self.metrics.ttft.observe(now - times.arrival)
                times.first = now
            else:
                self.metrics.itl.observe(now - times.last)
            times.last = now
            if output.finish_reason:
                self._count_finished(output, times, now)
            self._queues[key].put_nowait(output)

    def _count_finished(self, output: Output, times: _Times, now: float) -> None:
        tokens = len(output.sequence.output)
        self.metrics.success[str(output.finish_reason)].inc()
        self.metrics.e2e.observe(now - times.arrival)
        self.metrics.request_prompt.observe(len(output.sequence.prompt))
        self.metrics.request_generation.observe(tokens)
        if tokens > 1:
            self.metrics.tpot.observe((now - times.first) / (tokens - 1))
        if self.faults.finished_one():
            self.metrics = self._new_metrics()

    def _new_metrics(self) -> Metrics:
        labels = {
            "block_size": "16",
            "enable_prefix_caching": str(self.options.enable_prefix_caching),
            "kv_cache_size_tokens": str(self.core.kv_tokens),
            "num_gpu_blocks": str(self.core.kv_tokens // 16),
        }
        k = self.speculation.k if self.speculation else 0
        return Metrics(self.options.served_model_name, k, labels)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": f"simulated-{__version__}"})

    async def _models(self, _: web.Request) -> web.Response:
        card = {
            "id": self.options.served_model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": self.options.model,
            "parent": None,
            "max_model_len": self.options.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _metrics(self, _: web.Request) -> web.Response:
        if self.options.sim.faults.no_metrics:
            raise web.HTTPNotFound
        return web.Response(
            body=self.metrics.page(self.core),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _reset_prefix_cache(self, _: web.Request) -> web.Response:
        return web.json_response({"success": self.core.reset_prefix_cache()})

    async def _server_info(self, _: web.Request) -> web.Response:
        o = self.options
        config: Json = {
            "model_config": {
                "model": o.model,
                "served_model_name": o.served_model_name,
                "max_model_len": o.max_model_len,
                "seed": o.seed,
                "max_logprobs": o.max_logprobs,
            },
            "cache_config": {
                "block_size": 16,
                "enable_prefix_caching": o.enable_prefix_caching,
                "num_gpu_blocks": self.core.kv_tokens // 16,
            },
            "scheduler_config": {
                "max_num_seqs": o.max_num_seqs,
                "max_num_batched_tokens": o.max_num_batched_tokens,
                "async_scheduling": False,
            },
            "speculative_config": o.speculative_config,
        }
        return web.json_response({"vllm_config": config, "vllm_env": {}, "system_env": {}})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, CompletionRequest)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, ChatRequest)

    async def _generate(
        self, http: web.Request, kind: type[CompletionRequest] | type[ChatRequest]
    ) -> web.StreamResponse:
        fault = self.faults.next_request()
        if fault is Misbehaviour.HTTP_500:
            return _error(500, "InternalServerError", ENGINE_TROUBLE)
        if fault is Misbehaviour.HTTP_400:
            return _error(400, "BadRequestError", "this request was refused on purpose")
        try:
            request: CompletionRequest | ChatRequest = msgspec.json.decode(await http.read(), type=kind)
            if request.model not in (None, self.options.served_model_name):
                return _error(404, "NotFoundError", f"The model `{request.model}` does not exist.")
            request = withheld(request, self.options.sim)
            prompt = prompt_ids(request)
            scores_wanted = getattr(request, "prompt_logprobs", None)
            if request.stream and scores_wanted:
                raise BadRequest("`prompt_logprobs` are not available when `stream=True`.")
            params = sampling_params(request, len(prompt), self._limits)
        except (msgspec.DecodeError, BadRequest) as error:
            return _error(400, "BadRequestError", str(error))
        sequence = self.core.add(prompt, params)
        queue: asyncio.Queue[Output] = asyncio.Queue()
        self._queues[sequence.id] = queue
        self._times[sequence.id] = _Times(time.monotonic())
        self._wake.set()
        chat = isinstance(request, ChatRequest)
        reply = Reply(
            id=f"{'chatcmpl' if chat else 'cmpl'}-{next(self._ids):08x}",
            model=self.options.served_model_name,
            chat=chat,
            with_ids=bool(request.return_token_ids),
            logprobs=params.logprobs,
            sequence=sequence,
        )
        try:
            if request.stream:
                return await self._stream(http, request, reply, queue, fault)
            while reply.finish_reason is None:
                reply.collect(await queue.get())
            if fault is Misbehaviour.DIE:
                logs.die()
            if fault is not None:
                return _error(500, "InternalServerError", ENGINE_TROUBLE)
            scores = None
            if scores_wanted is not None:
                rows = log_probabilities(self.core.lm.score_prompt(prompt))
                scores = prompt_logprobs(prompt, rows, scores_wanted)
            body = reply.body(self._usage(reply), self._request_metrics(sequence), scores)
            return web.Response(body=msgspec.json.encode(body), content_type="application/json")
        finally:
            if reply.finish_reason is None:
                self.metrics.success["abort"].inc()
                self.core.abort(sequence)
            del self._queues[sequence.id], self._times[sequence.id]

    async def _stream(
        self,
        http: web.Request,
        request: CompletionRequest | ChatRequest,
        reply: Reply,
        queue: asyncio.Queue[Output],
        fault: Misbehaviour | None,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        options = request.stream_options
        include = options is not None and options.include_usage
        continuous = include and options is not None and options.continuous_usage_stats
        chunks = 0
        while reply.finish_reason is None:
            output = await queue.get()
            if fault is not None and (chunks == CHUNKS_BEFORE_FAULT or output.finish_reason):
                return await self._misbehave(http, response, fault)
            if reply.chat and not reply.emitted:
                role = reply.role_chunk()
                if continuous:
                    role["usage"] = self._usage(reply)
                await response.write(self.faults.event(msgspec.json.encode(role)))
            chunk = reply.chunk(output)
            if continuous:
                chunk["usage"] = self._usage(reply)
            await response.write(self.faults.event(msgspec.json.encode(chunk)))
            chunks += 1
        if include:
            last = reply.usage_chunk(self._usage(reply), self._request_metrics(reply.sequence))
            await response.write(self.faults.event(msgspec.json.encode(last)))
        await response.write(self.faults.event(b"[DONE]"))
        return response

    async def _misbehave(
        self, http: web.Request, response: web.StreamResponse, fault: Misbehaviour
    ) -> web.StreamResponse:
        if fault is Misbehaviour.DIE:
            logs.die()
        if fault is Misbehaviour.STALL:
            await asyncio.Event().wait()
        if fault is Misbehaviour.ERROR_EVENT:
            error = {"message": ENGINE_TROUBLE, "type": "InternalServerError", "param": None, "code": 500}
            await response.write(self.faults.event(json.dumps({"error": error}).encode()))
            await response.write(self.faults.event(b"[DONE]"))
        if fault is Misbehaviour.TRUNCATE and http.transport is not None:
            http.transport.close()
        return response

    def _usage(self, reply: Reply) -> Json:
        return usage(reply.sequence, reply.emitted, details=self.options.enable_prompt_tokens_details)

    def _request_metrics(self, sequence: Sequence) -> Json | None:
        metrics: Json = {}
        level = self.options.per_request_spec_decode_metrics
        if level != "none" and self.speculation is not None:
            metrics["speculative_decoding"] = speculative_metrics(
                sequence.draft_stats, self.speculation.k, detailed=level == "detailed"
            )
        if self.options.enable_per_request_metrics:
            times, tokens = self._times[sequence.id], len(sequence.output)
            decoding = times.last - times.first
            metrics["time_to_first_token_ms"] = 1000 * (times.first - times.arrival)
            metrics["generation_time_ms"] = 1000 * decoding
            metrics["mean_itl_ms"] = 1000 * decoding / (tokens - 1) if tokens > 1 else None
        return metrics or None


class _Times:
    """Wall times of one request, seconds."""

    __slots__ = ("arrival", "first", "last")

    def __init__(self, arrival: float) -> None:
        self.arrival = self.first = self.last = arrival


def _error(status: int, kind: str, message: str) -> web.Response:
    error: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": status}
    return web.json_response({"error": error}, status=status)


async def serve(server: Server, listener: Any, stop: asyncio.Event) -> None:
    """Serve on a bound socket until ``stop`` is set."""
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    logs.ready(server.options)
    loop = asyncio.create_task(server.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({loop, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if loop.done():
        loop.result()  # a bug in the engine ends the process with its traceback
    logs.shutdown()
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop
    await runner.cleanup()
