"""Engine flags that SGLang refuses together with a speculative method. The baseline would start with them.

Rules are those of ``arg_groups/speculative_hook.py`` of SGLang 0.5.23. What depends on a default that only the
server knows, such as its attention backend, is judged when the config names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from specbench.engines.base import Problem
from specbench.engines.flags import normal_name
from specbench.engines.sglang_speculation import NGRAM, setting_name, tree_numbers

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import EngineConfig
    from specbench.engines.capabilities.schema import Capabilities, Method

NO_ATTENTION_DP: Final = frozenset({"STANDALONE", "NGRAM", "UNO"})
ONE_STAGE: Final = frozenset({"DFLASH", "DSPARK", "UNO"})
"""Algorithms without pipeline parallelism (DSPARK has it where prefill is served apart)."""

NGRAM_BREADTH: Final = 10
_PAGED_TREES: Final = ("flashinfer", "fa3", "triton")


def flag_conflicts(
    engine: EngineConfig, arm: Arm, method: Method, where: str, known: Capabilities
) -> Iterator[Problem]:
    """Flags of the engine or the arm that this method cannot be started with."""
    args = _Args(engine, arm, where)
    settings = {setting_name(name): value for name, value in arm.settings.items() if value is not None}
    algorithm = method.engine_name
    for flag in ("attn-dp-size", "enable-dp-attention"):
        if algorithm in NO_ATTENTION_DP and args.more_than_one(flag):
            yield args.refused(flag, f"{arm.method} has no data-parallel attention")
    for flag in ("pp-size", "pipeline-parallel-size"):
        if algorithm in ONE_STAGE and args.more_than_one(flag):
            yield args.refused(flag, f"{arm.method} has no pipeline parallelism")
    if algorithm == "UNO":
        for flag in ("tp-size", "tensor-parallel-size", "enable-lora", "lora-paths"):
            if args.more_than_one(flag):
                yield args.refused(flag, "uno runs on one device, without other LoRA weights")
        if args.get("enable-deterministic-inference") is True:
            yield args.refused("enable-deterministic-inference", "uno draws without the requests' seeds")
    if args.get("device") == "cpu" and method.devices and "cpu" not in method.devices:
        yield args.refused("device", f"{arm.method} runs on {', '.join(method.devices)} only")
    if args.get("device") == "cpu" and settings.get("use_block_verification") is True:
        yield args.refused("device", "block verification runs on CUDA and ROCm only")
    ngram = algorithm == NGRAM
    breadth = (
        settings.get("ngram_max_bfs_breadth", NGRAM_BREADTH)
        if ngram
        else tree_numbers(arm, method, known).get("eagle_topk", 1)
    )
    if isinstance(breadth, int) and breadth > 1:
        yield from _tree_conflicts(args, ngram=ngram)


def _tree_conflicts(args: _Args, *, ngram: bool) -> Iterator[Problem]:
    """Trees want an attention backend that knows them, and more so in pages of several tokens."""
    backend, page = args.get("attention-backend"), args.get("page-size")
    fitting = ("flashinfer",) if ngram else _PAGED_TREES
    if not isinstance(backend, str):
        return
    if backend == "trtllm_mha" and not ngram:
        yield args.refused("attention-backend", "trtllm_mha verifies chains only (eagle_topk 1)")
    elif isinstance(page, int) and page > 1 and backend not in fitting:
        yield args.refused(
            "page-size", f"trees in pages of {page} need {' or '.join(fitting)} as attention backend"
        )


class _Args:
    """Flags of the engine section with the arm's own over them, and where each was written."""

    def __init__(self, engine: EngineConfig, arm: Arm, where: str) -> None:
        self._found: dict[str, tuple[str, Any]] = {}
        for place, args in (("engine.args", engine.args), (f"{where}.args", arm.args)):
            for name, value in args.items():
                self._found[normal_name(name)] = (f"{place}.{name}", value)

    def get(self, flag: str) -> Any:
        """Its value; null without one."""
        return self._found.get(flag, ("", None))[1]

    def more_than_one(self, flag: str) -> bool:
        """Whether it is a number above 1, or anything that switches it on."""
        value = self.get(flag)
        return value > 1 if isinstance(value, int) and not isinstance(value, bool) else bool(value)

    def refused(self, flag: str, why: str) -> Problem:
        """A problem at the place where the flag is written."""
        return Problem(
            self._found[flag][0],
            f"SGLang refuses --{flag} for this arm: {why}",
            "change it for all arms, or leave this arm out",
        )
