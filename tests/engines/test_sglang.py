"""Golden command lines of SGLang, what is refused before a launch, and the server's pages."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from specbench.config.grid import Arm
from specbench.engines.base import EngineMissing, lossy, memory
from specbench.engines.sglang import is_tested
from tests.engines.sglang_arms import BASELINE, arm, engine, found

SHARED = (
    "--max-running-requests 256 --enable-metrics --disable-radix-cache --random-seed 0 --stream-interval 1 "
    "--sampling-defaults openai"
)
SERVE = (
    "python -m sglang.launch_server --model-path org/target --served-model-name specbench-arm "
    "--host 127.0.0.1 --port 8000"
)


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
            arm(
                "eagle3",
                "org/head",
                3,
                settings={
                    "decoupled_spec_role": "verifier",
                    "decoupled_spec_rank": 0,
                    "decoupled_spec_bind_endpoint": "tcp://127.0.0.1:7001",
                    "decoupled_spec_connect_endpoints": ["tcp://127.0.0.1:7002", "tcp://127.0.0.1:7003"],
                },
            ),
            f"--speculative-algorithm EAGLE3 --speculative-draft-model-path org/head {CHAIN3} "
            "--decoupled-spec-role verifier --decoupled-spec-rank 0 "
            "--decoupled-spec-bind-endpoint tcp://127.0.0.1:7001 --decoupled-spec-connect-endpoints "
            '["tcp://127.0.0.1:7002", "tcp://127.0.0.1:7003"]',
        ),
        (
            arm("frozen_kv_mtp", "org/assistant", 3),
            f"--speculative-algorithm FROZEN_KV_MTP --speculative-draft-model-path org/assistant {CHAIN3}",
        ),
        (
            arm(
                "dspark", "org/draft", settings={"dspark_block_size": 7, "dspark_sps_table_path": "sps.json"}
            ),
            "--speculative-algorithm DSPARK --speculative-draft-model-path org/draft "
            "--speculative-dspark-block-size 7 --speculative-dspark-sps-table-path sps.json",
        ),
        (arm("dspark", k=7), "--speculative-algorithm DSPARK --speculative-num-draft-tokens 8"),
        (
            arm("dflash", "org/draft", settings={"dflash_block_size": 16, "draft_window_size": 512}),
            "--speculative-algorithm DFLASH --speculative-draft-model-path org/draft "
            "--speculative-dflash-block-size 16 --speculative-draft-window-size 512",
        ),
        (
            arm("uno", k=3, settings={"uno_lora_path": "org/uno"}),
            "--speculative-algorithm UNO --speculative-num-draft-tokens 4 --uno-lora-path org/uno",
        ),
        (
            arm(
                "uno",
                settings={"num_steps": 4, "eagle_topk": 2, "num_draft_tokens": 8, "uno_lora_path": "org/uno"},
            ),
            "--speculative-algorithm UNO --speculative-num-steps 4 --speculative-eagle-topk 2 "
            "--speculative-num-draft-tokens 8 --uno-lora-path org/uno",
        ),
        (
            arm("eagle", "org/head", 3, settings={"adaptive": True, "adaptive_config": "steps.json"}),
            f"--speculative-algorithm EAGLE --speculative-draft-model-path org/head {CHAIN3} "
            "--speculative-adaptive --speculative-adaptive-config steps.json",
        ),
        (
            arm(
                "eagle",
                "org/head",
                3,
                settings={"accept_threshold_single": 0.5, "speculative_accept_threshold_acc": 0.9},
            ),
            f"--speculative-algorithm EAGLE --speculative-draft-model-path org/head {CHAIN3} "
            "--speculative-accept-threshold-single 0.5 --speculative-accept-threshold-acc 0.9",
        ),
        (
            arm("eagle", "org/head", 3, settings={"use_block_verification": True, "token_map": "hot.pt"}),
            f"--speculative-algorithm EAGLE --speculative-draft-model-path org/head {CHAIN3} "
            "--speculative-use-block-verification --speculative-token-map hot.pt",
        ),
    ],
    ids=[
        *("draft", "case", "eagle3", "nextn", "mtp", "ngram", "ngram-settings", "tree", "adaptive"),
        *("tree-over-k", "dflash", "decoupled", "frozen", "dspark-block", "dspark-bundled", "dflash-block"),
        *("uno", "uno-tree", "adaptive-file", "thresholds", "block-verification"),
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
