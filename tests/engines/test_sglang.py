"""Golden command lines of SGLang, what is refused before a launch, and the server's pages."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.base import EngineMissing, Problem, lossy, memory
from specbench.engines.registry import make_engine
from specbench.engines.sglang import SglangEngine, is_tested

BASELINE = Arm(id="baseline")
SHARED = (
    "--max-running-requests 256 --enable-metrics --disable-radix-cache --random-seed 0 --stream-interval 1 "
    "--sampling-defaults openai"
)
SERVE = (
    "python -m sglang.launch_server --model-path org/target --served-model-name specbench-arm "
    "--host 127.0.0.1 --port 8000"
)


def engine(
    target: str | dict[str, Any] = "org/target", version: str | None = "0.5.23", **config: Any
) -> SglangEngine:
    """An engine that need not ask a Python for its version, unless ``version`` is null."""
    made = make_engine(
        Target.model_validate(target), EngineConfig.model_validate({"kind": "sglang", **config})
    )
    assert isinstance(made, SglangEngine)
    made._found = version
    return made


def arm(method: str, draft: str | None = None, k: int | None = None, **rest: Any) -> Arm:
    return Arm(id="arm", method=method, draft=draft, k=k, **rest)


CHAIN3 = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


@pytest.mark.parametrize(
    ("one", "flags"),
    [
        (
            arm("draft_model", "org/draft", 3),
            f"--speculative-algorithm STANDALONE --speculative-draft-model-path org/draft {CHAIN3}",
        ),
        (
            arm("Standalone", "org/draft", 3),
            f"--speculative-algorithm STANDALONE --speculative-draft-model-path org/draft {CHAIN3}",
        ),
        (
            arm("EAGLE3", "org/head", 3),
            f"--speculative-algorithm EAGLE3 --speculative-draft-model-path org/head {CHAIN3}",
        ),
        (arm("nextn", k=3), f"--speculative-algorithm EAGLE {CHAIN3}"),
        (arm("mtp", k=3), f"--speculative-algorithm EAGLE {CHAIN3}"),
        (arm("ngram", k=8), "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8"),
        (
            arm("ngram", settings={"speculative_num_draft_tokens": 8, "ngram-max-trie-depth": 12}),
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8 "
            "--speculative-ngram-max-trie-depth 12",
        ),
        (
            arm(
                "eagle",
                "org/head",
                settings={"eagle_topk": 4, "speculative-num-draft-tokens": 8, "num_steps": 5},
            ),
            "--speculative-algorithm EAGLE --speculative-draft-model-path org/head --speculative-num-steps 5 "
            "--speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
        ),
        (
            arm("eagle3", "org/head", 3, settings={"speculative_eagle_topk": 1, "adaptive": True}),
            f"--speculative-algorithm EAGLE3 --speculative-draft-model-path org/head {CHAIN3} "
            "--speculative-adaptive",
        ),
        (
            arm("eagle3", "org/head", 2, settings={"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8}),
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/head "
            "--speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
        ),
        (
            arm("dflash", "org/draft", 15),
            "--speculative-algorithm DFLASH --speculative-draft-model-path org/draft "
            "--speculative-num-draft-tokens 16",
        ),
        (
            arm("eagle3", "org/head", 3, settings={"decoupled_spec_role": "verifier"}),
            f"--speculative-algorithm EAGLE3 --speculative-draft-model-path org/head {CHAIN3} "
            "--decoupled-spec-role verifier",
        ),
    ],
    ids=[
        *("draft", "case", "eagle3", "nextn", "mtp", "ngram", "ngram-settings", "tree", "adaptive"),
        *("tree-over-k", "dflash", "decoupled"),
    ],
)
def test_a_speculative_arm_is_the_baseline_plus_its_flags(one: Arm, flags: str) -> None:
    spec = engine().launch(one, 8000)
    assert " ".join(spec.argv) == f"{SERVE} {SHARED} {flags}"
    assert " ".join(spec.speculation_flags) == flags
    baseline = engine().launch(BASELINE, 8000)
    assert " ".join(baseline.argv) == f"{SERVE} {SHARED}".replace("specbench-arm", "specbench-baseline")
    assert baseline.speculation_flags == ()
    assert baseline.extra_body == spec.extra_body  # every arm gets the same bytes


def test_shared_flags_give_way_to_the_config_and_the_arm() -> None:
    argv = engine(args={"max_running_requests": 64, "random-seed": 7, "disable-radix-cache": False}).launch(
        arm("ngram", k=4, args={"stream-interval": 2}), 8000
    )
    text = " ".join(argv.argv)
    assert "--max-running-requests 64" in text
    assert "--random-seed 7" in text
    assert "--stream-interval 2" in text
    assert "radix" not in text
    assert "--mem-fraction-static" not in text


@pytest.mark.parametrize(
    ("command", "local"),
    [
        (["sglang", "serve"], True),
        (["numactl", "-C", "0", "python3", "-m", "sglang.launch_server"], True),
        (
            ["docker", "run", "--network=host", "lmsysorg/sglang", "python3", "-m", "sglang.launch_server"],
            False,
        ),
        (["srun", "-N1", "python", "-m", "sglang.launch_server"], False),
    ],
)
def test_any_launch_prefix_is_kept(command: list[str], local: bool) -> None:
    spec = engine(command=command).launch(BASELINE, 8000)
    assert list(spec.argv[: len(command)]) == command
    assert spec.argv[len(command) : len(command) + 2] == ("--model-path", "org/target")
    assert spec.local is local


def found(one: Arm, target: str | dict[str, Any] = "org/target", **config: Any) -> list[Problem]:
    config.setdefault("args", {"mem-fraction-static": 0.8})
    return engine(target, **config).problems(one, None if one.is_baseline else 0)


@pytest.mark.parametrize(
    ("one", "key", "says", "fatal"),
    [
        (arm("medusa", "org/heads", 3), "arms[0].method", "does not exist in SGLang; it has eagle", True),
        (arm("hydra"), "arms[0].method", "does not exist in SGLang", True),
        (arm("egale3", "x", 3), "arms[0].method", "no method 'egale3'", True),
        (arm("draft_model", k=3), "arms[0].draft", "load the target a second time", True),
        (arm("eagle3", k=3), "arms[0].draft", "needs a draft model", True),
        (arm("dflash", k=15), "arms[0].draft", "needs a draft model", True),
        (arm("eagle", k=3), "arms[0].draft", "bring their draft layers", False),
        (arm("ngram", "org/draft", 4), "arms[0].draft", "takes no draft", True),
        (arm("ngram", k=1), "arms[0].k", "K is 1", True),
        (arm("eagle3", "x"), "arms[0].k", "there is no K", False),
        (
            arm("eagle3", "x", settings={"num_steps": 5}),
            "arms[0].settings.num_steps",
            "eagle_topk, num",
            True,
        ),
        (
            arm("eagle3", "x", 3, settings={"eagle_topk": 4}),
            "arms[0].settings.eagle_topk",
            "a tree needs",
            True,
        ),
        (
            arm("eagle3", "x", 3, settings={"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8}),
            "arms[0].k",
            "take the place of k",
            False,
        ),
        (
            arm("eagle3", "x", settings={"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 8}),
            "arms[0].settings.num_draft_tokens",
            "changes 8 to num_steps + 1 = 4",
            False,
        ),
        (
            arm("eagle3", "x", 3, settings={"accept_threshold_single": 0.5}),
            "arms[0].settings.accept_threshold_single",
            "lossy by configuration",
            False,
        ),
        (
            arm("ngram", k=4, env={"SGLANG_SIMULATE_ACC_LEN": "3"}),
            "arms[0].env.SGLANG_SIMULATE_ACC_LEN",
            "lossy by configuration",
            False,
        ),
        (
            arm("ngram", k=4, settings={"ngram_branch_length": 4}),
            "arms[0].settings.ngram_branch_length",
            "no longer has",
            True,
        ),
        (
            arm("ngram", k=4, settings={"ngram_max_tree_depth": 4}),
            "arms[0].settings.ngram_max_tree_depth",
            "has no speculative setting",
            True,
        ),
        (arm("ngram", k=4, settings={"shiny": 4}), "arms[0].settings.shiny", "0.5.23 has no", False),
        (
            arm("eagle3", "x", 3, settings={"ngram_capacity": 4}),
            "arms[0].settings.ngram_capacity",
            "ignores",
            False,
        ),
        (
            arm("draft_model", "x", 3, settings={"use_rejection_sampling": True}),
            "arms[0].settings.use_rejection_sampling",
            "not draft_model",
            True,
        ),
        (arm("eagle3", "x", 4, settings={"adaptive": True}), "arms[0].k", "not from 4", True),
        (
            arm("ngram", k=4, args={"speculative-num-steps": 2}),
            "arms[0].args.speculative-num-steps",
            "about speculation",
            True,
        ),
        (arm("uno", k=3), "arms[0].settings", "LoRA", True),
    ],
    ids=lambda v: v.method or "" if isinstance(v, Arm) else None,
)
def test_a_bad_arm_is_told_before_it_is_launched(one: Arm, key: str, says: str, fatal: bool) -> None:
    matching = [p for p in found(one) if p.key == key and says in p.message]
    assert len(matching) == 1, found(one)
    assert matching[0].fatal is fatal
    assert matching[0].mend


@pytest.mark.parametrize(
    "one",
    [
        arm("draft_model", "org/draft", 3),
        arm("eagle3", "org/head", 3, settings={"speculative_eagle_topk": 1}),
        arm("eagle3", "org/head", settings={"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8}),
        arm("ngram", settings={"speculative_num_draft_tokens": 8}),
        arm("eagle3", "org/head", 3, settings={"adaptive": True}),
    ],
)
def test_a_good_arm_has_no_problem(one: Arm) -> None:
    assert found(one) == []


def test_the_shared_section_is_checked_with_the_baseline() -> None:
    assert found(BASELINE) == []
    keys = {
        p.key: p.fatal
        for p in found(
            BASELINE,
            command=["docker", "run", "image", "python", "-m", "sglang.launch_server"],
            args={"speculative-algorithm": "NGRAM", "port": 1, "model_path": "x", "enable-metrics": False},
            env={"SGLANG_SIMULATE_ACC_LEN": "2.5"},
        )
    }
    assert keys == {
        "engine.args.speculative-algorithm": True,
        "engine.args.port": True,
        "engine.args.model_path": True,
        "engine.args.enable-metrics": True,
        "engine.command": True,
        "engine.env.SGLANG_SIMULATE_ACC_LEN": False,
        "engine.args.mem-fraction-static": False,
    }


def checkpoint(folder: Path, vocabulary: dict[str, int], **config: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 4, **config}))
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": vocabulary}, "added_tokens": [{"id": 3, "content": "<s>"}]})
    )
    return str(folder)


def test_vocabularies_are_compared_before_a_standalone_launch(tmp_path: Path) -> None:
    words = {"a": 0, "b": 1, "c": 2}
    target = checkpoint(tmp_path / "target", words, architectures=["LlamaForCausalLM"])
    same = checkpoint(tmp_path / "same", dict(reversed(words.items())))
    other = checkpoint(tmp_path / "other", {"b": 0, "a": 1, "c": 2})
    small = checkpoint(tmp_path / "small", words, vocab_size=3)
    assert found(arm("draft_model", same, 3), target) == []
    assert "different ids" in found(arm("draft_model", other, 3), target)[0].message
    assert (
        "3 tokens in its vocabulary, the target 4" in found(arm("draft_model", small, 3), target)[0].message
    )
    # An EAGLE-3 head may have a vocabulary of its own.
    assert found(arm("eagle3", small, 3), target) == []


def test_only_targets_with_draft_layers_do_without_a_draft(tmp_path: Path) -> None:
    plain = checkpoint(tmp_path / "plain", {}, architectures=["LlamaForCausalLM"])
    bundled = checkpoint(tmp_path / "bundled", {}, architectures=["DeepseekV3ForCausalLM"])
    assert [p.fatal for p in found(arm("nextn", k=1), plain)] == [True]
    assert found(arm("nextn", k=1), bundled) == []


def test_a_context_longer_than_the_model_is_refused(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", {}, max_position_embeddings=2048)
    args = {"context-length": 4096, "max-total-tokens": 1000}
    assert [p.key for p in found(BASELINE, target, args=args)] == ["engine.args.context-length"]


def test_the_version_is_read_from_metadata(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="has no SGLang"):
        engine(version=None, command=[sys.executable, "-m", "sglang.launch_server"]).version()
    with pytest.raises(EngineMissing, match="no program 'no-such-python'"):
        engine(version=None, command=["no-such-python", "-m", "sglang.launch_server"]).version()
    if shutil.which("ssh"):
        over = engine(version=None, command=["ssh", "host", "python", "-m", "sglang.launch_server"])
        assert over.version() == "unknown"
    assert is_tested("0.5.23")
    assert is_tested("0.5.23.post1")
    assert not is_tested("0.5.9")
    assert not is_tested("0.6.0")


def test_flushing_is_tried_again_and_told_when_refused() -> None:
    answers = [400, 200]

    async def flush(request: web.Request) -> web.Response:
        assert request.query["timeout"] == "5"
        return web.Response(status=answers.pop(0))

    async def run() -> list[bool]:
        app = web.Application()
        app.router.add_post("/flush_cache", flush)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession() as session:
                first = await engine().reset_prefix_cache(session, url)
                answers[:] = [404]
                return [first, await engine().reset_prefix_cache(session, url)]
        finally:
            await runner.cleanup()

    assert asyncio.run(run()) == [True, False]


def test_a_published_port_and_a_shell_over_ssh_are_handled() -> None:
    command = "docker run -p 127.0.0.1:{port}:{port} image python -m sglang.launch_server"
    argv = engine(command=command, env={"HF_TOKEN": "x"}).launch(BASELINE, 8000).argv
    text = " ".join(argv)
    assert "--env HF_TOKEN -p 127.0.0.1:8000:8000" in text
    assert "--host 0.0.0.0 --port 8000" in text
    assert found(BASELINE, command=command) == []
    over = engine(command="ssh host python -m sglang.launch_server", args={"chat-template": "a b"})
    assert "--chat-template 'a b'" in " ".join(over.launch(BASELINE, 8000).argv)


@pytest.mark.parametrize(
    ("one", "env", "why"),
    [
        (arm("eagle3", "x", 3), {}, ""),
        (arm("eagle3", "x", 3, settings={"accept_threshold_acc": 0.3}), {}, "accept_threshold_acc 0.3"),
        (arm("eagle3", "x", 3, settings={"accept_threshold_acc": 1.0}), {}, ""),
        (arm("eagle3", "x", 3), {"SGLANG_SIMULATE_ACC_LEN": "2"}, "simulated acceptance"),
        (arm("eagle3", "x", 3, env={"SGLANG_SIMULATE_ACC_LEN": "2"}), {}, "simulated acceptance"),
    ],
)
def test_arms_that_change_the_output_say_why(one: Arm, env: dict[str, str], why: str) -> None:
    told = lossy(engine(env=env), one)
    assert why in told
    assert bool(told) == bool(why)


def test_ngram_forgets_with_the_cache() -> None:
    assert memory(engine(), arm("ngram", k=4)) == "until_reset"
