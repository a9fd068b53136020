"""The simulated engine behind the engine protocol."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from specbench import __version__
from specbench.config.grid import BASELINE, Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.base import Description, Engine, EngineMissing
from specbench.engines.ports import free_port
from specbench.engines.ready import wait_ready
from specbench.engines.simulated.engine import SimulatedEngine
from specbench.engines.simulated.options import parse_args
from tests.engines.conftest import Start
from tests.engines.simulated.servers import DRAFT_MODEL, launched

SPEC_ARM = Arm(id="draft-k4", method="draft_model", draft="sim/draft", k=4)


def engine(args: dict[str, Any] | None = None, **section: Any) -> Engine:
    config = EngineConfig.model_validate({"kind": "simulated", "args": args or {}, **section})
    return SimulatedEngine(Target.model_validate("sim/target"), config)


def test_the_arms_differ_in_speculation_only() -> None:
    base = engine({"max_num_seqs": 8}).launch(Arm(id=BASELINE), 18_000)
    spec = engine({"max_num_seqs": 8}).launch(SPEC_ARM, 18_000)
    assert base.speculation_flags == ()
    assert spec.argv[-2:] == spec.speculation_flags
    assert json.loads(spec.speculation_flags[1]) == DRAFT_MODEL
    renamed = [word.replace("draft-k4", BASELINE) for word in spec.argv[:-2]]
    assert renamed == list(base.argv)
    assert base.base_url == "http://127.0.0.1:18000"
    options = parse_args(list(base.argv[3:]))
    assert (options.max_num_seqs, options.seed, options.enable_prefix_caching) == (8, 0, False)


def test_an_arms_own_args_lie_over_the_shared_ones() -> None:
    shared = {
        "max-num-seqs": 8,
        "enable-prefix-caching": True,
        "sim": {"time_scale": 0.5, "costs": {"base_ms": 3}},
    }
    arm = Arm(
        id="x",
        method="ngram",
        k=2,
        args={"max_num_seqs": 4, "sim": {"costs": {"token_ms": 1}, "faults": {"stall_after": 1}}},
    )
    spec = engine(shared).launch(arm, 18_000)
    options = parse_args(list(spec.argv[3:]))
    assert options.max_num_seqs == 4
    assert options.enable_prefix_caching
    assert options.sim.time_scale == 0.5
    assert (options.sim.costs.base_ms, options.sim.costs.token_ms) == (3, 1)
    assert options.sim.faults.stall_after == 1


@pytest.mark.parametrize(
    ("arm", "key"),
    [
        (Arm(id="a", method="guess", k=2), "arms[1].method"),
        (Arm(id="a", method="draft_model", k=2), "arms[1].draft"),
        (Arm(id="a", method="ngram", draft="x", k=2), "arms[1].draft"),
        (Arm(id="a", method="ngram"), "arms[1].k"),
        (Arm(id="a", method="ngram", k=0), "arms[1]"),
        (Arm(id="a", method="eagle3", draft="x", k=2), "arms[1]"),
        (
            Arm(id="a", method="ngram", k=2, settings={"prompt_lookup_min": 5, "prompt_lookup_max": 3}),
            "arms[1]",
        ),
    ],
)
def test_problems_are_named_before_anything_starts(arm: Arm, key: str) -> None:
    (problem,) = engine().problems(arm, 1)
    assert problem.key == key
    assert problem.fatal


def test_good_arms_have_no_problems() -> None:
    assert engine().problems(SPEC_ARM, 0) == []
    assert engine().problems(Arm(id=BASELINE), None) == []


def test_version_and_a_command_that_is_not_there() -> None:
    assert engine().version() == f"simulated-{__version__}"
    with pytest.raises(EngineMissing, match=r"engine\.command.*no-such-program"):
        engine(command=["no-such-program", "serve"]).version()


def describe(url: str, log: str) -> Description:
    async def ask() -> Description:
        async with aiohttp.ClientSession() as session:
            assert await engine().reset_prefix_cache(session, url)
            return await engine().describe(session, url, log)

    return asyncio.run(ask())


def test_arms_describe_themselves_alike_but_for_speculation(tmp_path: Path) -> None:
    with launched(tmp_path) as server:
        base = describe(server.url, server.log.read_text())
    with launched(tmp_path, speculation=DRAFT_MODEL) as server:
        spec = describe(server.url, server.log.read_text())
    assert base.version == spec.version == f"simulated-{__version__}"
    assert base.settings == spec.settings
    assert base.settings["scheduler_config.max_num_seqs"] == 256
    assert (base.speculating, base.speculation) == (False, {})
    assert (spec.speculating, spec.speculation) == (True, DRAFT_MODEL)
    assert (base.max_model_len, base.kv_capacity_tokens) == (2048, 65_536)
    assert spec.kv_capacity_tokens == 55_705


def test_the_supervisor_starts_and_stops_it(start: Start) -> None:
    simulated = engine({"sim": {"time_scale": 0.02}})
    spec = simulated.launch(SPEC_ARM, free_port())
    process = start(spec)

    async def life() -> None:
        async with aiohttp.ClientSession() as session:
            ready = await wait_ready(simulated, spec, process, session, timeout_s=20.0)
        assert "allocating KV memory" in str(ready.phases)
        await process.stop(10.0)

    asyncio.run(life())
    assert process.poll() == 0
