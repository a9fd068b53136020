"""vLLM, driven over HTTP as users run it. Written for and tried with vLLM 0.32."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from specbench.engines.admission import Admission, whole_arg
from specbench.engines.base import Description, EngineMissing, Failure, LaunchSpec, Memory, Problem
from specbench.engines.capabilities import capabilities
from specbench.engines.capabilities.schema import Draft
from specbench.engines.command import is_local_command
from specbench.engines.flags import merge_args, normal_name, render_args
from specbench.engines.ports import HOST
from specbench.engines.prefix import make_prefix
from specbench.engines.vllm_command import (
    DEFAULT_COMMAND,
    Build,
    installed_build,
    takes_model_as_word,
)
from specbench.engines.vllm_dialect import counters_from_vllm, describe_from_server_info
from specbench.engines.vllm_failures import explain_vllm
from specbench.engines.vllm_problems import Site, vllm_problems
from specbench.engines.vllm_scoring import VllmScoring
from specbench.engines.vllm_speculation import observation_words, speculation_words
from specbench.observe import prometheus

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue, EngineConfig, Target
    from specbench.engines.capabilities.schema import Capabilities
    from specbench.observe.counters import EngineCounters
    from specbench.observe.prometheus import Samples

TESTED: Final = ((0, 32), (0, 33))
"""Versions from (included) and to (excluded) that this file was tried with."""

SHARED_ARGS: Final[dict[str, ArgValue]] = {
    "generation-config": "vllm",
    "seed": 0,
    "no-enable-prefix-caching": True,
}
"""Added to every arm unless the config sets them. Requests carry their whole sampling parameters, so
a model's own generation config must not add any; rounds repeat prompts, so prefixes are not kept."""

GPU_SEQS: Final = 256
"""What ``max-num-seqs`` is by default on GPUs below 70 GiB; larger ones get up to 1024 (vLLM 0.32)."""
CPU_SEQS: Final = 128
"""The same on a CPU."""

SHARED_ENV: Final = {"VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"}
"""Development mode offers the cache reset and the resolved settings; the server listens on 127.0.0.1 only."""

LOSSY_FACT: Final = (
    "synthetic acceptance: drafts are accepted whatever they say; the output is not the target's"
)

_NOT_SETTINGS: Final = re.compile(
    r"(^|\.)(per_request_spec_decode_metrics|served_model_name|instance_id|hf_token|host|port|.*_(port|path|dir|uuid|hash|ip|addr)|.*_port_list"
    r"|.*compilation_time|traced_files|static_forward_context|(en|dis)abled_custom_ops"
    r"|disable_nccl_for_dp_synchronization)$"
)
"""Resolved values that name a place, a launch or a result, and say nothing of how the engine works.
The first one can be set on a speculating server only, and is, by specbench.
The last one only follows from ``async_scheduling``, which is kept, and is about data parallelism."""

_OTHER_CONFIGS: Final = re.compile(r"^(target_|draft_parallel_config)|\.")
_DRAFT_SETTINGS: Final = re.compile(r"^draft_model_config\.(dtype|max_model_len|quantization|revision)$")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")

_RESET_TRIES: Final = 20
_RESET_PAUSE_S: Final = 0.25
_INFO_TIMEOUT_S: Final = 120.0


class VllmEngine:
    """vLLM's OpenAI-compatible server, bound to a target and an engine section."""

    kind: str = "vllm"
    health_path: str = "/health"
    metrics_path: str = "/metrics"
    progress_patterns: tuple[tuple[str, str], ...] = (
        ("downloading the model", r"Fetching \d+ files|Downloading "),
        ("reading the configuration", r"Resolved architecture"),
        ("starting the engine core", r"Initializing a V\d LLM engine"),
        ("loading weights", r"Starting to load model|Loading safetensors|Loading weights took"),
        ("loading the draft", r"Loading drafter model"),
        ("compiling", r"Dynamo bytecode transform|Compiling a graph|torch\.compile takes"),
        ("allocating KV memory", r"KV cache size: [\d,]+ tokens"),
        ("warming up", r"Warming up"),
        ("capturing graphs", r"Capturing CUDA graph|Graph capturing"),
        ("starting the server", r"Starting vLLM (?:API )?server|Started server process"),
    )

    def __init__(self, target: Target, config: EngineConfig) -> None:
        self._target = target
        self._config = config
        self._command = tuple(config.command or DEFAULT_COMMAND)
        self._build: Build | EngineMissing | None = None
        self._has: dict[str, bool | None] = {}

    def version(self) -> str:
        """Version of the vLLM that the command would start; asked once.

        Raises:
            EngineMissing: the command is not there, or holds no vLLM.
        """
        found = self._found()
        if isinstance(found, EngineMissing):
            raise EngineMissing(str(found))
        return found.version

    def capabilities(self) -> Capabilities:
        """What its version can do; the newest known one when the version cannot be told."""
        found = self._found()
        return capabilities("vllm", None if isinstance(found, EngineMissing) else found.version)

    def problems(self, arm: Arm, index: int | None) -> list[Problem]:
        """What vLLM would refuse or ignore in an arm; those of the shared sections come with the baseline."""
        found = self._found()
        site = Site(
            known=self.capabilities(),
            cpu=isinstance(found, Build) and found.on_cpu,
            has=self._package,
            asked=isinstance(found, Build),
        )
        return vllm_problems(self._target, self._config, arm, index, site)

    def memory(self, arm: Arm) -> Memory:
        """How long an arm's drafter remembers the requests that it served."""
        method = self.capabilities().method(arm.method)
        if (
            method is None
            or not method.learns
            or arm.settings.get("suffix_decoding_max_cached_requests") == 0
        ):
            return "none"
        return "until_reset" if method.forgets else "always"

    def context_kept(self, arm: Arm) -> int:
        """What drafting needs: none is done in a step whose longest request, with the K drafts that are being
        verified, has no room for K more (``_input_fits_in_drafter`` of model runner V1).
        """
        method = self.capabilities().method(arm.method)
        reads_context = method is not None and method.draft in (Draft.REQUIRED, Draft.BUNDLED)
        return 2 * (arm.k or 0) if reads_context else 0

    def admission(self, arm: Arm) -> Admission:
        """Requests that it runs at once, over all data-parallel ranks; the least that its default can be."""
        args = merge_args(self._config.args, arm.args)
        ranks = whole_arg(args, "data-parallel-size") or 1
        given = whole_arg(args, "max-num-seqs")
        if given is not None:
            return Admission(given * ranks, "max-num-seqs", "config")
        found = self._found()
        default = CPU_SEQS if isinstance(found, Build) and found.on_cpu else GPU_SEQS
        return Admission(default * ranks, "max-num-seqs", "engine")

    def draft_alone(self, arm: Arm) -> VllmEngine:
        """This engine with an arm's draft as its target."""
        from specbench.config.model import Target

        return VllmEngine(Target.model_validate({"model": arm.draft}), self._config)

    def wrong_output(self, arm: Arm, temperature: float) -> str:  # noqa: ARG002 - every method is hit
        """The temperature that is lost on CPUs.

        ``_expand_kernel_impl`` of ``vllm/utils/cpu_triton_utils.py`` writes the temperatures of drafted tokens
        into a copy and throws it away, so that logits are divided by whatever the memory held.
        """
        found = self._found()
        if (
            temperature > 0
            and isinstance(found, Build)
            and found.on_cpu
            and found.version.startswith("0.32.")
        ):
            return (
                "vLLM 0.32 on CPUs never sets the temperature, top_p and top_k of drafted tokens: at temperature "
                "above 0 drafts are judged by made-up probabilities"
            )
        return ""

    def lossy(self, arm: Arm) -> str:
        """Why an arm's output is not the target's by configuration; empty when it is."""
        known = self.capabilities()
        for name, value in arm.settings.items():
            setting = known.setting(name)
            if setting is not None and isinstance(value, str) and value in setting.lossy:
                return f"{setting.name} {value} accepts drafts that the target would not have written"
        return ""

    def _found(self) -> Build | EngineMissing:
        if self._build is None:
            try:
                self._build = installed_build(self._command)
            except EngineMissing as error:
                self._build = error
        return self._build

    def _package(self, name: str) -> bool | None:
        if name not in self._has:
            found = self._found()
            self._has[name] = found.has(name) if isinstance(found, Build) else None
        return self._has[name]

    def launch(self, arm: Arm, port: int) -> LaunchSpec:
        """The command line and environment of an arm."""
        name = f"specbench-{arm.id}"
        known = self.capabilities()
        speculation = speculation_words(arm, known)
        env = {**SHARED_ENV, **self._config.env, **arm.env}
        prefix = make_prefix(self._command, port, env)
        model = (
            [self._target.model] if takes_model_as_word(self._command) else ["--model", self._target.model]
        )
        own: dict[str, ArgValue] = {"revision": self._target.revision, "tokenizer": self._target.tokenizer}
        args = merge_args(_shared_args(self._config.args, known), self._config.args)
        flags = (
            *model,
            *render_args({"served-model-name": name, "host": prefix.host, "port": port}),
            *render_args(own),
            *render_args(merge_args(args, arm.args)),
            *speculation,
            *observation_words(arm, known),
        )
        return LaunchSpec(
            arm_id=arm.id,
            argv=prefix.argv(flags),
            env=env,
            port=port,
            base_url=f"http://{HOST}:{port}",
            served_model=name,
            speculation_flags=speculation,
            local=is_local_command(self._command),
        )

    async def describe(self, session: aiohttp.ClientSession, base_url: str, log: str) -> Description:
        """What runs: version, resolved settings, KV capacity.

        The settings are missing when the server has no development pages (``VLLM_SERVER_DEV_MODE=0``).
        """
        version = await _get_json(session, base_url + "/version")
        models = await _get_json(session, base_url + "/v1/models")
        info = await _get_json(session, base_url + "/server_info?config_format=json", missing_ok=True)
        async with session.get(base_url + self.metrics_path) as response:
            response.raise_for_status()
            samples = prometheus.parse(await response.text())
        found = describe_from_server_info(
            version=str((version or {}).get("version", "")),
            models=models or {},
            server_info=info,
            samples=samples,
            log=log,
        )
        settings = {
            key: _ADDRESS.sub("", value) if isinstance(value, str) else value
            for key, value in found.settings.items()
            if not _NOT_SETTINGS.search(key)
        }
        speculation = {
            key: value
            for key, value in found.speculation.items()
            if value is not None and (_DRAFT_SETTINGS.match(key) or not _OTHER_CONFIGS.search(key))
        }
        facts = found.facts
        if speculation.get("rejection_sample_method") == "synthetic":
            facts = (*facts, LOSSY_FACT)
        return dataclasses.replace(found, settings=settings, speculation=speculation, facts=facts)

    async def reset_prefix_cache(self, session: aiohttp.ClientSession, base_url: str) -> bool:
        """Forget cached prefixes; tried again for a few seconds while requests still hold blocks."""
        for attempt in range(_RESET_TRIES):
            if attempt:
                await asyncio.sleep(_RESET_PAUSE_S)
            async with session.post(base_url + "/reset_prefix_cache") as response:
                if response.status in (404, 405):
                    return False
                if response.status == 200 and _success(await response.text()):
                    return True
        return False

    def counters(self, samples: Samples) -> EngineCounters:
        """Totals from a parsed metrics page."""
        return counters_from_vllm(samples)

    def scoring(self) -> VllmScoring:
        """How it is asked for token ids and scores."""
        return VllmScoring()

    def explain(self, log: str, returncode: int | None) -> Failure:
        """Root cause of a launch that failed or died."""
        return explain_vllm(log, returncode)


def is_tested(version: str) -> bool:
    """Whether a version lies in the range that this engine was tried with."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and TESTED[0] <= (int(match[1]), int(match[2])) < TESTED[1]


def _shared_args(config: dict[str, ArgValue], known: Capabilities) -> dict[str, ArgValue]:
    """`SHARED_ARGS` without those that the config names and those that the version does not have."""
    named = {normal_name(name).removeprefix("no-").removeprefix("enable-") for name in config}
    return {
        name: value
        for name, value in SHARED_ARGS.items()
        if name.removeprefix("no-").removeprefix("enable-") not in named
        and (name != "generation-config" or known.flag(name) is not None)
    }


def _success(text: str) -> bool:
    """Older servers answer with an empty page, newer ones with ``{"success": true}``."""
    return '"success"' not in text or re.search(r'"success"\s*:\s*true', text) is not None


async def _get_json(
    session: aiohttp.ClientSession, url: str, *, missing_ok: bool = False
) -> dict[str, Any] | None:
    timeout = aiohttp.ClientTimeout(total=_INFO_TIMEOUT_S)
    async with session.get(url, timeout=timeout) as response:
        if missing_ok and response.status != 200:
            return None
        response.raise_for_status()
        body = await response.json(content_type=None)
    return body if isinstance(body, dict) else None
