"""Servers that already run, one for each arm: ``engine.kind: endpoint``.

What a server is shows in what it answers: ``/version`` is vLLM's page, ``/server_info`` SGLang's. From then
on that engine's own file reads its pages. Any other server that speaks the OpenAI dialect is measured too,
with what its streams tell.
"""

from __future__ import annotations

import dataclasses
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp

from specbench.config.attach import base_url as base_of
from specbench.config.model import EngineConfig
from specbench.engines import sglang, vllm
from specbench.engines.base import Description, EngineMissing, Failure, FailureClass, LaunchSpec, Problem
from specbench.engines.sglang_dialect import counters_from_sglang
from specbench.engines.vllm_dialect import counters_from_vllm
from specbench.engines.vllm_scoring import VllmScoring
from specbench.observe.counters import EngineCounters

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import Target
    from specbench.engines.base import Engine
    from specbench.engines.scoring import Scoring
    from specbench.observe.prometheus import Samples

UNKNOWN: Final = "unknown"
PROBE_TIMEOUT_S: Final = 10.0
NOT_RELAUNCHED: Final = "a server that was running already: rounds measure one and the same launch again"
NOT_DESCRIBED: Final = (
    "the server does not tell its settings: that the arms differ in speculation only is for its owner to know"
)


class EndpointEngine:
    """The engine of ``kind: endpoint``. Its config was checked by `specbench.config.attach`."""

    kind: str = "endpoint"
    health_path: str = "/v1/models"
    metrics_path: str = "/metrics"
    progress_patterns: tuple[tuple[str, str], ...] = ()

    def __init__(self, target: Target, config: EngineConfig) -> None:
        self._target = target
        self._config = config
        self._version: str | None = None
        self._like: Engine | None = None
        """The engine whose pages the baseline's server has."""

    def version(self) -> str:
        """What the baseline's server says: ``vllm 0.32.0``, ``sglang 0.5.23`` or ``unknown``; asked once.

        Raises:
            EngineMissing: it does not answer, or refuses.
        """
        if self._version is None:
            self._version = self._ask_version()
        return self._version

    def problems(self, arm: Arm, index: int | None) -> list[Problem]:  # noqa: ARG002 - part of the protocol
        """What stands in the way before anything is sent."""
        ca = self._config.ca
        if not arm.is_baseline or ca is None or Path(ca).is_file():
            return []
        return [Problem("engine.ca", f"there is no file {ca}", "a path starts with ./ or /")]

    def launch(self, arm: Arm, port: int) -> LaunchSpec:  # noqa: ARG002 - the server has its own
        """Where the arm's server is; nothing is started."""
        url = base_of(arm.url or "")
        sglang_like = isinstance(self._like, sglang.SglangEngine)
        return LaunchSpec(
            arm_id=arm.id,
            argv=(),
            env={},
            port=urlsplit(url).port or (443 if url.startswith("https:") else 80),
            base_url=url,
            served_model=arm.served_model or self._target.model,
            local=False,
            extra_body=dict(sglang.EXTRA_BODY) if sglang_like else {},
            extra_chat=dict(sglang.EXTRA_CHAT) if sglang_like else {},
            attached=True,
            headers=dict(self._config.headers),
            ca=self._config.ca,
        )

    async def describe(self, session: aiohttp.ClientSession, base_url: str, log: str) -> Description:
        """What the server tells about itself, by the pages that it has."""
        self.version()
        found: Description | None = None
        if self._like is not None:
            try:
                found = await self._like.describe(session, base_url, log)
            except (aiohttp.ClientResponseError, ValueError, KeyError):
                found = None  # no metrics, or no development pages
        if found is None:
            return Description(version=self.version(), facts=(NOT_RELAUNCHED, NOT_DESCRIBED))
        facts = (*found.facts, NOT_RELAUNCHED, *(() if found.settings else (NOT_DESCRIBED,)))
        return dataclasses.replace(found, version=found.version or UNKNOWN, facts=facts)

    async def reset_prefix_cache(self, session: aiohttp.ClientSession, base_url: str) -> bool:
        """Forget cached prefixes, where the server lets us."""
        return self._like is not None and await self._like.reset_prefix_cache(session, base_url)

    def counters(self, samples: Samples) -> EngineCounters:
        """Totals from a parsed metrics page, by the names on it."""
        if any(name.startswith("vllm:") for name in samples):
            return counters_from_vllm(samples)
        if any(name.startswith("sglang:") for name in samples):
            return counters_from_sglang(samples)
        return EngineCounters()

    def scoring(self) -> Scoring:
        """That of the engine whose pages it has; vLLM's dialect elsewhere."""
        return VllmScoring() if self._like is None else self._like.scoring()

    def explain(self, log: str, returncode: int | None) -> Failure:  # noqa: ARG002 - there is no log here
        """A server that went away: why, only its owner can see."""
        return Failure(
            FailureClass.ENGINE_DIED,
            "The server does not answer any more.",
            "Look at its own log: specbench did not start it. Start it again, then --resume.",
        )

    def _ask_version(self) -> str:
        url = base_of(self._config.url or "")
        page = self._get(url, "/version")
        if page is not None and "version" in page:
            self._like = vllm.VllmEngine(self._target, EngineConfig.model_validate({"kind": "vllm"}))
            return f"vllm {page['version']}"
        page = self._get(url, "/server_info")
        if page is not None and "version" in page:
            self._like = sglang.SglangEngine(self._target, EngineConfig.model_validate({"kind": "sglang"}))
            return f"sglang {page['version']}"
        self._get(url, "/v1/models")
        return UNKNOWN

    def _get(self, url: str, path: str) -> dict[str, Any] | None:
        """A JSON page; null when the server has none there."""
        context = ssl.create_default_context(cafile=self._config.ca)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(url + path, headers=self._config.headers)  # noqa: S310 - http(s) only
        try:
            with opener.open(request, timeout=PROBE_TIMEOUT_S) as answer:
                page = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise EngineMissing(
                    f"the server at {url} refused the key (HTTP {error.code}). Give it one in "
                    'engine.headers, for example Authorization: "Bearer ${KEY}", with KEY exported'
                ) from None
            return None
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError):
                return None
            reason = getattr(error, "reason", error)
            mend = (
                "Name the PEM file of the authority that signed its certificate in engine.ca"
                if isinstance(reason, ssl.SSLError)
                else "Start it, or correct engine.url: specbench starts nothing at an endpoint"
            )
            raise EngineMissing(f"the server at {url} cannot be reached ({reason}). {mend}") from None
        return page if isinstance(page, dict) else None
