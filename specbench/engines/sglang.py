"""SGLang, driven over HTTP as users run it. Written for and tried with SGLang 0.5.23."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from specbench.config.model import Target
from specbench.engines.admission import Admission, whole_arg
from specbench.engines.base import Description, EngineMissing, Failure, LaunchSpec, Memory, Problem
from specbench.engines.capabilities import capabilities
from specbench.engines.command import is_local_command
from specbench.engines.flags import merge_args, normal_name, render_args
from specbench.engines.ports import HOST
from specbench.engines.prefix import make_prefix
from specbench.engines.sglang_command import DEFAULT_COMMAND, installed_version
from specbench.engines.sglang_dialect import (
    counters_from_sglang,
    describe_from_server_info,
)
from specbench.engines.sglang_failures import explain_sglang
from specbench.engines.sglang_problems import sglang_problems, simulates_acceptance
from specbench.engines.sglang_scoring import SglangScoring
from specbench.engines.sglang_setting_problems import THRESHOLDS
from specbench.engines.sglang_speculation import setting_name, speculation_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue, EngineConfig
    from specbench.engines.capabilities.schema import Capabilities
    from specbench.observe.counters import EngineCounters
    from specbench.observe.prometheus import Samples

TESTED: Final = ((0, 5, 23), (0, 6, 0))
"""Versions from (included) and to (excluded) that this file was written for; it was run with the first."""

DEFAULT_RUNNING: Final = 256
"""Requests at once, unless the config says otherwise."""

SHARED_ARGS: Final[dict[str, ArgValue]] = {
    "max-running-requests": DEFAULT_RUNNING,
    "enable-metrics": True,
    "disable-radix-cache": True,
    "random-seed": 0,
    "stream-interval": 1,
    "sampling-defaults": "openai",
}
"""Added to every arm unless the config sets them. Left alone, a speculative server, and only that, admits
48 requests at once; requests carry their whole sampling parameters, so a model's own generation config must
not add any; rounds repeat prompts, so prefixes are not kept; a stream shows every step."""

EXTRA_BODY: Final[dict[str, Any]] = {"return_spec_tokens_details": True}
"""What every request asks for, in every arm so that the bytes are the same: acceptance is told per request."""

CUT_BEFORE_END: Final = 2
"""``max_req_len - input - 1``, where ``max_req_len`` is the context less one."""

EXTRA_CHAT: Final[dict[str, Any]] = {"return_token_ids": False}
"""Chat streams refuse token ids: there tokens are counted by continuous usage."""

_RESET_TIMEOUT_S: Final = 5.0
_INFO_TIMEOUT_S: Final = 120.0


class SglangEngine:
    """SGLang's OpenAI-compatible server, bound to a target and an engine section.

    ``/health`` answers 503 without further cost until the server has warmed up, and then generates one token;
    it is read while starting only.
    """

    kind: str = "sglang"
    health_path: str = "/health"
    metrics_path: str = "/metrics"
    progress_patterns: tuple[tuple[str, str], ...] = (
        ("reading the configuration", r"\] server_args="),
        ("loading weights", r"Load weight begin"),
        ("allocating KV memory", r"KV Cache is allocated"),
        ("capturing graphs", r"Capture (?:cuda|cpu|draft|target).* begin"),
        ("starting the server", r"Started server process|Uvicorn running"),
        ("warming up", r"GET /model_info|Prefill batch"),
    )

    def __init__(self, target: Target, config: EngineConfig) -> None:
        self._target = target
        self._config = config
        self._command = tuple(config.command or DEFAULT_COMMAND)
        self._found: str | EngineMissing | None = None

    def version(self) -> str:
        """Version of the SGLang that the command would start; asked once.

        Raises:
            EngineMissing: the command is not there, or its Python has no SGLang.
        """
        if self._found is None:
            try:
                self._found = installed_version(self._command)
            except EngineMissing as error:
                self._found = error
        if isinstance(self._found, EngineMissing):
            raise EngineMissing(str(self._found))
        return self._found

    def problems(self, arm: Arm, index: int | None) -> list[Problem]:
        """What SGLang would refuse or change; problems of the shared sections come with the baseline."""
        return sglang_problems(self._target, self._config, arm, index, self.capabilities())

    def capabilities(self) -> Capabilities:
        """What its version can do; the newest known one when the version cannot be told."""
        try:
            return capabilities("sglang", self.version())
        except EngineMissing:
            return capabilities("sglang")

    def memory(self, arm: Arm) -> Memory:
        """How long an arm's drafter remembers the requests that it served."""
        method = self.capabilities().method(arm.method)
        if method is None or not method.learns:
            return "none"
        return "until_reset" if method.forgets else "always"

    def context_kept(self, arm: Arm) -> int:  # noqa: ARG002 - the same for every arm
        """What it cuts off: an answer ends there, in every arm (``managers/scheduler.py``)."""
        return CUT_BEFORE_END

    def admission(self, arm: Arm) -> Admission:
        """Requests that it runs at once, over all data-parallel ranks."""
        flag = "max-running-requests"
        given = whole_arg(merge_args(self._config.args, arm.args), flag)
        if given is not None:
            return Admission(given, flag, "config")
        return Admission(DEFAULT_RUNNING, flag, "specbench")

    def draft_alone(self, arm: Arm) -> SglangEngine:
        """This engine with an arm's draft as its target."""
        return SglangEngine(Target.model_validate({"model": arm.draft}), self._config)

    def lossy(self, arm: Arm) -> str:
        """Why an arm's output is not the target's by configuration; empty when it is."""
        if simulates_acceptance({**os.environ, **self._config.env, **arm.env}):
            return "simulated acceptance: drafts are accepted whatever they say"
        for name, value in arm.settings.items():
            if setting_name(name) in THRESHOLDS and isinstance(value, int | float) and value < 1:
                return f"{setting_name(name)} {value:g} accepts drafts that the target would not have drawn"
        return ""

    def launch(self, arm: Arm, port: int) -> LaunchSpec:
        """The command line and environment of an arm."""
        name = f"specbench-{arm.id}"
        known = self.capabilities()
        speculation = speculation_words(arm, known)
        env = {**self._config.env, **arm.env}
        prefix = make_prefix(self._command, port, env)
        own: dict[str, ArgValue] = {
            "revision": self._target.revision,
            "tokenizer-path": self._target.tokenizer,
        }
        args = merge_args(_shared_args(self._config.args, known), self._config.args)
        flags = (
            *render_args({"model-path": self._target.model, "served-model-name": name}),
            *render_args({"host": prefix.host, "port": port}),
            *render_args(own),
            *render_args(merge_args(args, arm.args)),
            *speculation,
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
            extra_body=dict(EXTRA_BODY),
            extra_chat=dict(EXTRA_CHAT),
        )

    async def describe(self, session: aiohttp.ClientSession, base_url: str, log: str) -> Description:
        """What runs: version, resolved settings, speculation as the server resolved it, KV capacity."""
        info = await _get_json(session, base_url + "/server_info")
        models = await _get_json(session, base_url + "/v1/models")
        return describe_from_server_info(info, models, log)

    async def reset_prefix_cache(self, session: aiohttp.ClientSession, base_url: str) -> bool:
        """Forget cached prefixes, and with them NGRAM's corpus of earlier requests.

        The server itself waits a few seconds for requests that still run.
        """
        # Its timeout asks the scheduler again and again; an older server ignores it and is asked twice.
        for attempt in range(2):
            if attempt:
                await asyncio.sleep(1.0)
            async with session.post(f"{base_url}/flush_cache?timeout={_RESET_TIMEOUT_S:g}") as response:
                if response.status == 200:
                    return True
                if response.status in (404, 405):
                    return False
        return False

    def counters(self, samples: Samples) -> EngineCounters:
        """Totals from a parsed metrics page; see `counters_from_sglang` for what it does not hold."""
        return counters_from_sglang(samples)

    def scoring(self) -> SglangScoring:
        """How it is asked for token ids and scores."""
        return SglangScoring()

    def explain(self, log: str, returncode: int | None) -> Failure:
        """Root cause of a launch that failed or died."""
        return explain_sglang(log, returncode)


def is_tested(version: str) -> bool:
    """Whether a version lies in the range that this engine was written for."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return match is not None and TESTED[0] <= (int(match[1]), int(match[2]), int(match[3])) < TESTED[1]


def _shared_args(config: Mapping[str, ArgValue], known: Capabilities) -> dict[str, ArgValue]:
    """`SHARED_ARGS` without those that the config names and those that the version does not have."""
    named = {normal_name(name).removeprefix("no-") for name in config}
    radix = any("radix" in name for name in named)
    return {
        name: value
        for name, value in SHARED_ARGS.items()
        if name not in named
        and not (radix and name == "disable-radix-cache")
        and (name != "sampling-defaults" or known.flag(name) is not None)
    }


async def _get_json(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=_INFO_TIMEOUT_S)) as response:
        response.raise_for_status()
        body = await response.json(content_type=None)
    return body if isinstance(body, dict) else {}
