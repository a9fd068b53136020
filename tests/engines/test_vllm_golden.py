"""The exact command line of an arm, by the version of vLLM behind the command.

Each line was checked against the argument parser and the config class of that version's package.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.vllm import VllmEngine


def engine(tmp_path: Path, version: str, build: str = "vllm", **config: Any) -> VllmEngine:
    """An engine whose command's Python says that it has this version."""
    python = tmp_path / "python"
    python.write_text(f'#!{sys.executable}\nprint(\'["{build}", "{version}"]\')\n')
    python.chmod(0o755)
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    return VllmEngine(
        Target.model_validate("org/target"),
        EngineConfig.model_validate({"kind": "vllm", "command": command, **config}),
    )


def arm(method: str, draft: str | None = None, k: int | None = None, **settings: Any) -> Arm:
    return Arm(id="arm", method=method, draft=draft, k=k, settings=settings)


COMMON = (
    "python -m vllm.entrypoints.openai.api_server --model org/target --served-model-name specbench-arm "
    "--host 127.0.0.1 --port 8000"
)
SHARED = f"{COMMON} --generation-config vllm --seed 0 --no-enable-prefix-caching"
OLD_SHARED = f"{COMMON} --seed 0 --no-enable-prefix-caching"
TOLD = "--per-request-spec-decode-metrics summary"

DRAFT = arm("draft_model", "org/draft", 3)
NGRAM = arm("ngram", k=4, prompt_lookup_min=2, prompt_lookup_max=4)
QUANTISED = arm("draft_model", "org/draft", 3, quantization="awq", draft_tensor_parallel_size=1)
TYPICAL = arm(
    "draft_model", "org/draft", 3, acceptance_method="typical_acceptance_sampler", posterior_threshold=0.1
)
DISABLED = arm("ngram", k=4, prompt_lookup_max=4, disable_by_batch_size=8)
SCHEDULE = arm("eagle3", "org/head", 4, num_speculative_tokens_per_batch_size=[[1, 4, 4], [5, 512, 0]])

JSON_NGRAM = '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_min":2,"prompt_lookup_max":4}'
JSON_DRAFT = '{"method":"draft_model","model":"org/draft","num_speculative_tokens":3}'
JSON_EAGLE3 = '{"method":"eagle3","model":"org/head","num_speculative_tokens":3}'

GOLDEN = [
    # Flags of their own
    (
        "0.7.3",
        NGRAM,
        f"{OLD_SHARED} --speculative-model [ngram] --num-speculative-tokens 4 --ngram-prompt-lookup-min 2 "
        "--ngram-prompt-lookup-max 4",
    ),
    ("0.7.3", DRAFT, f"{OLD_SHARED} --speculative-model org/draft --num-speculative-tokens 3"),
    (
        "0.7.3",
        QUANTISED,
        f"{OLD_SHARED} --speculative-model org/draft --num-speculative-tokens 3 "
        "--speculative-model-quantization awq --speculative-draft-tensor-parallel-size 1",
    ),
    (
        "0.7.3",
        TYPICAL,
        f"{OLD_SHARED} --speculative-model org/draft --num-speculative-tokens 3 "
        "--spec-decoding-acceptance-method typical_acceptance_sampler "
        "--typical-acceptance-sampler-posterior-threshold 0.1",
    ),
    (
        "0.7.3",
        DISABLED,
        f"{OLD_SHARED} --speculative-model [ngram] --num-speculative-tokens 4 --ngram-prompt-lookup-max 4 "
        "--speculative-disable-by-batch-size 8",
    ),
    (
        "0.7.3",
        arm("medusa", "org/heads", 3, disable_logprobs=False, disable_mqa_scorer=True),
        f"{OLD_SHARED} --speculative-model org/heads --num-speculative-tokens 3 "
        "--disable-logprobs-during-spec-decoding false --speculative-disable-mqa-scorer",
    ),
    ("0.7.3", arm("mtp", k=1), f"{OLD_SHARED} --num-speculative-tokens 1"),
    (
        "0.8.1",
        arm("eagle", "org/EAGLE-head", 2, max_model_len=2048),
        f"{SHARED} --speculative-model org/EAGLE-head --num-speculative-tokens 2 "
        "--speculative-max-model-len 2048",
    ),
    # JSON
    ("0.8.5", NGRAM, f"{SHARED} --speculative-config {JSON_NGRAM}"),
    ("0.8.5", DRAFT, f"{SHARED} --speculative-config {JSON_DRAFT}"),
    ("0.8.5", arm("mtp", k=1), f'{SHARED} --speculative-config {{"num_speculative_tokens":1}}'),
    (
        "0.8.5",
        TYPICAL,
        f'{SHARED} --speculative-config {{"method":"draft_model","model":"org/draft",'
        '"num_speculative_tokens":3,"acceptance_method":"typical_acceptance_sampler",'
        '"posterior_threshold":0.1}',
    ),
    (
        "0.10.2",
        arm("deepseek_mtp", k=1),
        f'{SHARED} --speculative-config {{"method":"deepseek_mtp","num_speculative_tokens":1}}',
    ),
    (
        "0.11.0",
        arm("mtp", k=1),
        f'{SHARED} --speculative-config {{"method":"mtp","num_speculative_tokens":1}}',
    ),
    ("0.11.0", arm("eagle3", "org/head", 3), f"{SHARED} --speculative-config {JSON_EAGLE3}"),
    (
        "0.11.0",
        arm("medusa", "org/heads", 3),
        f'{SHARED} --speculative-config {{"method":"medusa","model":"org/heads","num_speculative_tokens":3}}',
    ),
    ("0.15.0", DRAFT, f"{SHARED} --speculative-config {JSON_DRAFT}"),
    (
        "0.15.0",
        arm("suffix", k=16, suffix_decoding_max_cached_requests=0),
        f'{SHARED} --speculative-config {{"method":"suffix","num_speculative_tokens":16,'
        '"suffix_decoding_max_cached_requests":0}',
    ),
    (
        "0.28.0",
        SCHEDULE,
        f'{SHARED} --speculative-config {{"method":"eagle3","model":"org/head","num_speculative_tokens":4,'
        '"num_speculative_tokens_per_batch_size":[[1,4,4],[5,512,0]]}',
    ),
    (
        "0.28.0",
        arm("draft_model", "org/draft", 3, use_heterogeneous_vocab=True),
        f'{SHARED} --speculative-config {{"method":"draft_model","model":"org/draft",'
        '"num_speculative_tokens":3,"use_heterogeneous_vocab":true}',
    ),
    # Acceptance per request, on speculative arms only
    ("0.29.0", NGRAM, f"{SHARED} --speculative-config {JSON_NGRAM} {TOLD}"),
    ("0.32.0", DRAFT, f"{SHARED} --speculative-config {JSON_DRAFT} {TOLD}"),
    ("0.32.0", arm("eagle3", "org/head", 3), f"{SHARED} --speculative-config {JSON_EAGLE3} {TOLD}"),
    (
        "0.32.0",
        arm("draft_model", "org/draft", 3, parallel_drafting=True, draft_sample_method="probabilistic"),
        f'{SHARED} --speculative-config {{"method":"draft_model","model":"org/draft",'
        '"num_speculative_tokens":3,"parallel_drafting":true,"draft_sample_method":"probabilistic"}'
        f" {TOLD}",
    ),
    (
        "0.32.0",
        arm("eagle3", "org/head", 3, rejection_sample_method="synthetic", synthetic_acceptance_length=2.5),
        f'{SHARED} --speculative-config {{"method":"eagle3","model":"org/head","num_speculative_tokens":3,'
        f'"rejection_sample_method":"synthetic","synthetic_acceptance_length":2.5}} {TOLD}',
    ),
    (
        "0.32.0",
        arm("dflash", "org/dflash", 15),
        f'{SHARED} --speculative-config {{"method":"dflash","model":"org/dflash",'
        f'"num_speculative_tokens":15}} {TOLD}',
    ),
    (
        "0.32.0",
        arm("dspark", enable_adaptive_verification=True, k=7),
        f'{SHARED} --speculative-config {{"method":"dspark","num_speculative_tokens":7,'
        f'"enable_adaptive_verification":true}} {TOLD}',
    ),
    (
        "0.32.0",
        arm("custom_class", "package.module.Proposer", 2),
        f'{SHARED} --speculative-config {{"method":"custom_class","model":"package.module.Proposer",'
        f'"num_speculative_tokens":2}} {TOLD}',
    ),
    (
        "0.32.0",
        arm("mtp", k=1),
        f'{SHARED} --speculative-config {{"method":"mtp","num_speculative_tokens":1}} {TOLD}',
    ),
    (
        "0.32.0",
        QUANTISED,
        f'{SHARED} --speculative-config {{"method":"draft_model","model":"org/draft",'
        f'"num_speculative_tokens":3,"quantization":"awq","draft_tensor_parallel_size":1}} {TOLD}',
    ),
    (
        "0.32.0",
        arm(
            "draft_model",
            "org/draft",
            3,
            use_heterogeneous_vocab=True,
            num_speculative_tokens_per_batch_size=[[1, 1, 3], [2, 8, 1]],
        ),
        f'{SHARED} --speculative-config {{"method":"draft_model","model":"org/draft",'
        '"num_speculative_tokens":3,"use_heterogeneous_vocab":true,'
        f'"num_speculative_tokens_per_batch_size":[[1,1,3],[2,8,1]]}} {TOLD}',
    ),
    (
        "0.32.0",
        arm("eagle", "org/head", 3, rejection_sample_method="block", draft_sample_method="greedy"),
        f'{SHARED} --speculative-config {{"method":"eagle","model":"org/head","num_speculative_tokens":3,'
        f'"rejection_sample_method":"block","draft_sample_method":"greedy"}} {TOLD}',
    ),
    ("0.32.0", Arm(id="baseline"), SHARED.replace("specbench-arm", "specbench-baseline")),
    ("0.7.3", Arm(id="baseline"), OLD_SHARED.replace("specbench-arm", "specbench-baseline")),
]


@pytest.mark.parametrize(
    ("version", "one", "line"), GOLDEN, ids=[f"{v}-{a.method}-{i}" for i, (v, a, _) in enumerate(GOLDEN)]
)
def test_the_command_line_byte_for_byte(version: str, one: Arm, line: str, tmp_path: Path) -> None:
    it = engine(tmp_path, version)
    assert it.version() == version
    assert [p for p in it.problems(one, 0) if p.fatal] == []
    spec = it.launch(one, 8000)
    assert " ".join(("python", *spec.argv[1:])) == line
    assert set(spec.speculation_flags) <= set(spec.argv)
    assert "--per-request-spec-decode-metrics" not in spec.speculation_flags


def test_a_shell_gets_the_same_words_back(tmp_path: Path) -> None:
    argv = engine(tmp_path, "0.32.0").launch(SCHEDULE, 8000).argv
    assert tuple(shlex.split(shlex.join(argv))) == argv


REFUSED = [
    # version, arm, key, part of the message, part of the mend
    ("0.10.2", arm("mtp", k=1), "method", "no method 'mtp' yet", "deepseek_mtp, ernie_mtp"),
    ("0.11.0", DRAFT, "method", "not supported yet", "remove"),
    ("0.15.0", arm("dflash", "org/head", 3), "method", "vLLM has it since 0.20.0", "use one of: draft_model"),
    ("0.11.0", arm("suffix"), "method", "since 0.11.1", "use one of"),
    ("0.10.0", arm("mlp_speculator", "org/head", 3), "method", "cannot run it", "remove"),
    ("0.32.0", DISABLED, "settings.disable_by_batch_size", "no longer", "per_batch_size with K = 0"),
    ("0.15.0", SCHEDULE, "settings.num_speculative_tokens_per_batch_size", "since 0.24.0", "upgrade"),
    ("0.7.3", arm("ngram", k=2), "settings.prompt_lookup_max", "no default", "prompt_lookup_max: 4"),
    ("0.32.0", TYPICAL, "settings.acceptance_method", "no longer", "rejection_sample_method"),
    (
        "0.32.0",
        arm("ngram", k=2, spec_decoding_acceptance_method="rejection_sampler"),
        "settings.spec_decoding_acceptance_method",
        "no setting",
        "rejection_sample_method",
    ),
    (
        "0.32.0",
        arm("ngram", k=2, rejection_sample_method="strict"),
        "settings.rejection_sample_method",
        "no longer has 'strict'",
        "standard, with draft_sample_method",
    ),
    (
        "0.21.0",
        arm("ngram", k=2, rejection_sample_method="block"),
        "settings.rejection_sample_method",
        "does not have yet 'block'",
        "standard, synthetic",
    ),
    (
        "0.22.1",
        arm("eagle", "org/head", 2, draft_sample_method="gumbel"),
        "settings.draft_sample_method",
        "no longer has 'gumbel'",
        "called probabilistic",
    ),
    (
        "0.32.0",
        arm("eagle", "org/head", 2, synthetic_acceptance_rate=0.7),
        "settings.synthetic_acceptance_rate",
        "no longer",
        "synthetic_acceptance_rates",
    ),
    (
        "0.32.0",
        arm("eagle", "org/head", 2, adaptive_verification=True),
        "settings.adaptive_verification",
        "no setting",
        "enable_adaptive_verification",
    ),
    (
        "0.32.0",
        arm("eagle", "org/head", 2, speculative_token_tree="[(0,)]"),
        "settings.speculative_token_tree",
        "no longer",
        "no longer drafts trees",
    ),
]


@pytest.mark.parametrize(
    ("version", "one", "key", "message", "mend"), REFUSED, ids=[f"{r[0]}-{r[2]}" for r in REFUSED]
)
def test_what_a_version_does_not_have_is_refused_with_its_successor(
    version: str, one: Arm, key: str, message: str, mend: str, tmp_path: Path
) -> None:
    problems = [p for p in engine(tmp_path, version).problems(one, 1) if p.key == f"arms[1].{key}"]
    assert any(p.fatal and message in p.message and mend in p.mend for p in problems), problems


@pytest.mark.parametrize(
    ("flag", "message", "mend"),
    [
        ("speculative-model", "removed in vLLM 0.8.3", "method and draft"),
        ("num_speculative_tokens", "removed in vLLM 0.8.3", "(k)"),
        ("ngram-prompt-lookup-max", "removed in vLLM 0.8.3", "settings"),
        ("spec-decoding-acceptance-method", "removed in vLLM 0.8.3", "settings"),
        ("typical-acceptance-sampler-posterior-alpha", "removed in vLLM 0.8.3", "settings"),
        ("report-speculative-metrics", "no vLLM ever had", "always counted"),
        ("per-request-spec-decode-metrics", "baseline would speculate", "under `arms`"),
    ],
)
def test_old_and_imagined_flags_are_refused(flag: str, message: str, mend: str, tmp_path: Path) -> None:
    it = engine(tmp_path, "0.32.0", args={flag: "1"})
    (problem,) = it.problems(Arm(id="baseline"), None)
    assert problem.key == f"engine.args.{flag}"
    assert message in problem.message
    assert mend in problem.mend


def test_a_dead_setting_is_told_and_passed_on(tmp_path: Path) -> None:
    it = engine(tmp_path, "0.15.0")
    (problem,) = it.problems(DISABLED, 0)
    assert not problem.fatal
    assert "do nothing" in problem.message
    assert "disable_by_batch_size" in " ".join(it.launch(DISABLED, 1).argv)


def test_the_version_of_an_official_image_is_its_tag() -> None:
    command = ["true", "docker", "run", "--network=host", "vllm/vllm-openai:v0.8.1"]
    config = EngineConfig.model_validate({"kind": "vllm", "command": command})
    it = VllmEngine(Target.model_validate("org/target"), config)
    assert it.version() == "0.8.1"
    assert it.launch(NGRAM, 1).speculation_flags[:2] == ("--speculative-model", "[ngram]")


def test_a_version_that_cannot_be_told_is_taken_for_the_newest_and_said_so() -> None:
    command = ["true", "docker", "run", "--network=host", "registry/own-image"]
    config = EngineConfig.model_validate({"kind": "vllm", "command": command})
    it = VllmEngine(Target.model_validate("org/target"), config)
    (problem,) = it.problems(Arm(id="baseline"), None)
    assert not problem.fatal
    assert "0.32.0 is assumed" in problem.message
    assert it.launch(NGRAM, 1).speculation_flags[0] == "--speculative-config"
