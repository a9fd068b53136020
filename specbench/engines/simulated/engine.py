"""The simulated engine as a sweep sees it."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from specbench import __version__
from specbench.config.model import Target
from specbench.engines.admission import Admission, whole_arg
from specbench.engines.base import Description, EngineMissing, Failure, LaunchSpec, Memory, Problem
from specbench.engines.flags import merge_args, render_args
from specbench.engines.ports import HOST
from specbench.engines.simulated.options import KNOWN_METHODS, BadSpeculation, Speculation
from specbench.engines.vllm_dialect import (
    counters_from_vllm,
    describe_from_server_info,
    speculation_flags,
    speculative_config,
)
from specbench.engines.vllm_failures import explain_vllm
from specbench.engines.vllm_scoring import VllmScoring
from specbench.observe import prometheus

if TYPE_CHECKING:
    import aiohttp

    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue, EngineConfig
    from specbench.observe.counters import EngineCounters
    from specbench.observe.prometheus import Samples

DEFAULT_COMMAND: Final = (sys.executable, "-m", "specbench.engines.simulated")
DEFAULT_SEQS: Final = 256
"""Requests at once when ``max-num-seqs`` is not set; as in `specbench.engines.simulated.options`."""

SHARED_ARGS: Final[dict[str, ArgValue]] = {"seed": 0, "no-enable-prefix-caching": True}
"""Added to every arm unless the config sets them, as for the real engines."""


class SimulatedEngine:
    """The engine of ``kind: simulated``. Everything under ``engine.args.sim`` is a knob of the simulation.

    An arm's ``args.sim`` is laid over the shared one key by key, so that one arm may have a fault.
    """

    kind: str = "simulated"
    health_path: str = "/health"
    metrics_path: str = "/metrics"
    progress_patterns: tuple[tuple[str, str], ...] = (
        ("starting the engine core", r"Initializing a V\d LLM engine"),
        ("loading the draft", r"Loading drafter model"),
        ("allocating KV memory", r"KV cache size: [\d,]+ tokens"),
        ("starting the server", r"Starting vLLM API server"),
    )

    def __init__(self, target: Target, config: EngineConfig) -> None:
        self._target = target
        self._config = config
        self._command = tuple(config.command or DEFAULT_COMMAND)

    def version(self) -> str:
        """``simulated-`` and the version of specbench.

        Raises:
            EngineMissing: ``engine.command`` names no program.
        """
        if shutil.which(self._command[0]) is None:
            raise EngineMissing(
                f"engine.command: there is no program {self._command[0]!r} here. Leave engine.command out to "
                "use the simulated engine that comes with specbench."
            )
        return f"simulated-{__version__}"

    def problems(self, arm: Arm, index: int | None) -> list[Problem]:
        """What the server would refuse at start."""
        if not arm.speculates:
            return []
        where = f"arms[{index}]" if index is not None else f"arm {arm.id}"
        if arm.method not in KNOWN_METHODS:
            return [
                Problem(
                    f"{where}.method",
                    f"the simulated engine has no method {arm.method!r}",
                    "use draft_model, ngram or suffix",
                )
            ]
        found = []
        if arm.method == "draft_model" and arm.draft is None:
            found.append(
                Problem(f"{where}.draft", "draft_model needs a draft model", "add `draft:`, any name")
            )
        if arm.method in ("ngram", "suffix") and arm.draft is not None:
            found.append(Problem(f"{where}.draft", f"{arm.method} takes no draft model", "remove `draft`"))
        if arm.k is None:
            found.append(
                Problem(f"{where}.k", f"{arm.method} needs the number of draft tokens", "add `k: 3`")
            )
        if not found:
            try:
                Speculation.parse(speculative_config(arm))
            except BadSpeculation as error:
                said = str(error).splitlines()[-1].strip()
                found.append(Problem(where, f"the simulated engine refuses it: {said}", "correct the arm"))
        return found

    def memory(self, arm: Arm) -> Memory:
        """As vLLM's: suffix decoding keeps every answer until its engine ends."""
        return "always" if arm.method == "suffix" else "none"

    def launch(self, arm: Arm, port: int) -> LaunchSpec:
        """The command line of an arm: the shared args, the arm's own over them, and its speculation."""
        name = f"specbench-{arm.id}"
        speculation = speculation_flags(arm)
        shared = merge_args(SHARED_ARGS, self._config.args)
        args = merge_args(shared, arm.args)
        base, own = shared.get("sim"), args.get("sim")
        if isinstance(base, dict) and isinstance(own, dict):
            args["sim"] = _overlay(base, own)
        argv = (
            *self._command,
            *render_args(
                {"model": self._target.model, "served-model-name": name, "host": HOST, "port": port}
            ),
            *render_args({"revision": self._target.revision, "tokenizer": self._target.tokenizer}),
            *render_args(args),
            *speculation,
        )
        return LaunchSpec(
            arm_id=arm.id,
            argv=argv,
            env={**self._config.env, **arm.env},
            port=port,
            base_url=f"http://{HOST}:{port}",
            served_model=name,
            speculation_flags=speculation,
        )

    def admission(self, arm: Arm) -> Admission:
        """Requests that it runs at once."""
        given = whole_arg(merge_args(self._config.args, arm.args), "max-num-seqs")
        if given is not None:
            return Admission(given, "max-num-seqs", "config")
        return Admission(DEFAULT_SEQS, "max-num-seqs", "engine")

    def draft_alone(self, arm: Arm) -> SimulatedEngine:
        """This engine with an arm's draft as its target."""
        sim = self._config.args.get("sim")
        own = {**(sim if isinstance(sim, dict) else {}), "draft_of": self._target.model}
        config = self._config.model_copy(update={"args": {**self._config.args, "sim": own}})
        return SimulatedEngine(Target.model_validate({"model": arm.draft}), config)

    async def describe(self, session: aiohttp.ClientSession, base_url: str, log: str) -> Description:
        """What runs, from the server's own pages."""
        pages: dict[str, dict[str, Any]] = {}
        for path in ("/version", "/v1/models", "/server_info?config_format=json"):
            async with session.get(base_url + path) as response:
                response.raise_for_status()
                pages[path] = await response.json()
        async with session.get(base_url + self.metrics_path) as response:
            samples = prometheus.parse(await response.text()) if response.status == 200 else None
        return describe_from_server_info(
            version=str(pages["/version"]["version"]),
            models=pages["/v1/models"],
            server_info=pages["/server_info?config_format=json"],
            samples=samples,
            log=log,
        )

    async def reset_prefix_cache(self, session: aiohttp.ClientSession, base_url: str) -> bool:
        """Forget cached prefixes; False while requests run."""
        async with session.post(base_url + "/reset_prefix_cache") as response:
            response.raise_for_status()
            return bool((await response.json())["success"])

    def counters(self, samples: Samples) -> EngineCounters:
        """Totals from a parsed metrics page."""
        return counters_from_vllm(samples)

    def scoring(self) -> VllmScoring:
        """How it is asked for token ids and scores, in vLLM's dialect."""
        return VllmScoring()

    def explain(self, log: str, returncode: int | None) -> Failure:
        """Root cause of a launch that failed or died; its log is worded like vLLM's."""
        return explain_vllm(log, returncode)


def _overlay(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _overlay(below, value)
        else:
            merged[key] = value
    return merged
