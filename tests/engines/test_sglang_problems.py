"""What SGLang would refuse or change is told before a launch is paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench.config.grid import Arm
from tests.engines.sglang_arms import BASELINE, TREE, arm, checkpoint, found

UNO_TREE = {"num_steps": 4, "eagle_topk": 2, "num_draft_tokens": 8, "uno_lora_path": "org/uno"}
VERIFIER = {
    "decoupled_spec_role": "verifier",
    "decoupled_spec_rank": 0,
    "decoupled_spec_bind_endpoint": "tcp://127.0.0.1:7001",
    "decoupled_spec_connect_endpoints": ["tcp://127.0.0.1:7002"],
}

_BAD_BLOCKS_AND_TREES = [
    (arm("dflash", "x", 7, settings={"eagle_topk": 4}), "arms[0].settings.eagle_topk", "to 1", False),
    (arm("dspark", "x", settings={"num_steps": 4}), "arms[0].settings.num_steps", "to 1", False),
    (
        arm("dflash", "x", 7, settings={"dflash_block_size": 8}),
        "arms[0].settings.dflash_block_size",
        "same",
        True,
    ),
    (
        arm("dflash", "x", settings={"dflash_block_size": 16, "num_draft_tokens": 8}),
        "arms[0].settings.num_draft_tokens",
        "a block of 16 is 16 draft tokens",
        True,
    ),
    (
        arm("dspark", "x", settings={"dspark_block_size": 7, "num_draft_tokens": 7}),
        "arms[0].settings.num_draft_tokens",
        "a block of 7 is 8 draft tokens",
        True,
    ),
    (
        arm("dspark", "x", settings={"num_draft_tokens": 1}),
        "arms[0].settings.num_draft_tokens",
        "before",
        True,
    ),
    (
        arm("dflash", "x", settings={"dflash_block_size": 0}),
        "arms[0].settings.dflash_block_size",
        "no size",
        True,
    ),
    (
        arm("dflash", "x", 15, settings={"draft_window_size": 8}),
        "arms[0].settings.draft_window_size",
        "smaller than the block of 16",
        True,
    ),
    (arm("dspark", k=7), "arms[0].draft", "bring a DSpark draft", False),
    (arm("frozen_kv_mtp", k=3), "arms[0].draft", "needs a draft model", True),
    (
        arm("draft_model", "x", 3, settings={"draft_window_size": 64}),
        "arms[0].settings.draft_window_size",
        "ignores",
        False,
    ),
    (
        arm("eagle3", "x", 3, settings={"draft_window_size": 0}),
        "arms[0].settings.draft_window_size",
        "range",
        True,
    ),
    (
        arm("eagle", "x", 3, settings={"draft_sink_size": 4}),
        "arms[0].settings.draft_sink_size",
        "needs a window",
        True,
    ),
    (arm("uno", settings={"uno_lora_path": "x"}), "arms[0].k", "needs the number", True),
    (
        arm("uno", k=3, settings={"uno_lora_path": "x", "num_steps": 4}),
        "arms[0].settings.num_steps",
        "to 1",
        False,
    ),
    (
        arm("uno", k=3, settings={"uno_lora_path": "x", "eagle_topk": 2}),
        "arms[0].settings.eagle_topk",
        "depth",
        True,
    ),
    (
        arm("uno", settings={**UNO_TREE, "num_draft_tokens": 9}),
        "arms[0].settings.num_draft_tokens",
        "no tree of 9 nodes",
        True,
    ),
    (
        arm("uno", settings={**UNO_TREE, "num_draft_tokens": 4}),
        "arms[0].settings.num_draft_tokens",
        "no tree of 4",
        True,
    ),
    (
        arm("uno", settings={**UNO_TREE, "accept_threshold_acc": 0.5}),
        "arms[0].settings.eagle_topk",
        "no accept thresholds",
        True,
    ),
    (
        arm("eagle3", "x", settings={**TREE, "use_rejection_sampling": True}),
        "arms[0].settings.use_rejection_sampling",
        "chains only",
        True,
    ),
    (
        arm("eagle", "x", 3, settings={"use_block_verification": True, "accept_threshold_acc": 0.5}),
        "arms[0].settings.use_block_verification",
        "thresholds below 1",
        True,
    ),
    (
        arm("eagle3", "x", settings={**TREE, "adaptive": True}),
        "arms[0].settings.adaptive",
        "off for trees",
        False,
    ),
    (
        arm("eagle3", "x", 3, settings={"adaptive_config": "x"}),
        "arms[0].settings.adaptive_config",
        "nothing",
        False,
    ),
]
_BAD_DECOUPLED = [
    (
        arm("eagle3", "x", 3, settings={"decoupled_spec_role": "verifier", "decoupled_spec_rank": 0}),
        "arms[0].settings.decoupled_spec_role",
        "without decoupled_spec_bind_endpoint, decoupled_spec_connect_endpoints",
        True,
    ),
    (
        arm("eagle3", "x", 3, settings={**VERIFIER, "decoupled_spec_role": "drafter"}),
        "arms[0].settings.decoupled_spec_role",
        "serves no requests",
        True,
    ),
    (
        arm("eagle3", "x", 3, settings=VERIFIER),
        "arms[0].settings.decoupled_spec_role",
        "no part of it uses",
        False,
    ),
    (
        arm("eagle3", "x", 3, settings={**VERIFIER, "decoupled_spec_role": "target"}),
        "arms[0].settings.decoupled_spec_role",
        "no 'target' here",
        True,
    ),
]


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
        *_BAD_BLOCKS_AND_TREES,
        *_BAD_DECOUPLED,
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


@pytest.mark.parametrize(
    "one",
    [
        arm("uno", settings=UNO_TREE),
        arm("uno", k=3, settings={"uno_lora_path": "org/uno"}),
        arm("dflash", "org/draft", settings={"dflash_block_size": 16, "draft_window_size": 16}),
        arm("dspark", "org/draft", settings={"dspark_block_size": 7, "num_draft_tokens": 8}),
        arm("frozen_kv_mtp", "org/assistant", 3),
        arm("eagle", "org/head", 3, settings={"use_rejection_sampling": True}),
        arm("eagle", "org/head", 3, settings={"draft_window_size": 512, "draft_sink_size": 4}),
        arm("eagle3", "org/head", 3, settings={"decoupled_spec_role": "null"}),
    ],
)
def test_a_good_block_tree_or_window_has_no_problem(one: Arm) -> None:
    assert found(one) == []


@pytest.mark.parametrize(
    ("one", "args", "key", "says"),
    [
        (arm("ngram", k=4), {"attn_dp_size": 2}, "engine.args.attn_dp_size", "no data-parallel attention"),
        (
            arm("draft_model", "x", 3),
            {"enable-dp-attention": True},
            "engine.args.enable-dp-attention",
            "refuses",
        ),
        (arm("dflash", "x", 7), {"pp-size": 2}, "engine.args.pp-size", "no pipeline parallelism"),
        (arm("dflash", "x", 7), {"device": "cpu"}, "engine.args.device", "cuda, npu, xpu only"),
        (arm("uno", settings=UNO_TREE), {"tp-size": 2}, "engine.args.tp-size", "one device"),
        (
            arm("uno", settings=UNO_TREE),
            {"enable-deterministic-inference": True},
            "engine.args.enable-deterministic-inference",
            "seeds",
        ),
        (
            arm("eagle", "x", 3, settings={"use_block_verification": True}),
            {"device": "cpu"},
            "engine.args.device",
            "block verification",
        ),
        (
            arm("ngram", k=4, args={"page-size": 16}),
            {"attention-backend": "fa3"},
            "arms[0].args.page-size",
            "need flashinfer as",
        ),
        (
            arm("eagle3", "x", settings=TREE),
            {"attention-backend": "flashmla", "page-size": 64},
            "engine.args.page-size",
            "flashinfer or fa3 or triton",
        ),
        (
            arm("eagle3", "x", settings=TREE),
            {"attention-backend": "trtllm_mha"},
            "engine.args.attention-backend",
            "chains only",
        ),
    ],
)
def test_flags_that_only_a_method_refuses_are_told(
    one: Arm, args: dict[str, Any], key: str, says: str
) -> None:
    matching = [p for p in found(one, args={"mem-fraction-static": 0.8, **args}) if p.key == key]
    assert [p.fatal for p in matching] == [True], matching
    assert says in matching[0].message


@pytest.mark.parametrize(
    ("one", "args"),
    [
        (arm("eagle3", "x", 3), {"attention-backend": "trtllm_mha", "page-size": 64}),
        (arm("eagle3", "x", settings=TREE), {"attention-backend": "fa3", "page-size": 64}),
        (arm("ngram", k=4), {"page-size": 64}),
        (arm("ngram", k=4), {"device": "cpu", "tp-size": 2, "attn-dp-size": 1}),
        (
            arm("ngram", k=4, settings={"ngram_max_bfs_breadth": 1}),
            {"attention-backend": "fa3", "page-size": 64},
        ),
    ],
)
def test_flags_that_a_method_can_live_with_are_not(one: Arm, args: dict[str, Any]) -> None:
    assert found(one, args={"mem-fraction-static": 0.8, **args}) == []


@pytest.mark.parametrize(
    ("text", "k", "says"),
    [
        ('{"1": {"candidate_steps": [1, 3]}, "8": {"candidate_steps": [0]}, "ema_alpha": 0.2}', 3, ""),
        ('{"1": {"candidate_steps": [1, 3]}}', 5, "not from 5"),
        ('{"ema_alpha": 0.2}', 3, "no key is a batch size"),
        ('{"1": {"candidate_steps": [-1]}}', 3, "not a list of whole numbers"),
        ("[", 3, "could not start"),
        (None, 3, "cannot be read here"),
    ],
)
def test_an_adaptive_file_is_read_as_sglang_reads_it(
    tmp_path: Path, text: str | None, k: int, says: str
) -> None:
    file = tmp_path / "steps.json"
    if text is not None:
        file.write_text(text)
    problems = found(arm("eagle3", "x", k, settings={"adaptive": True, "adaptive_config": str(file)}))
    assert [p.fatal for p in problems] == [text is not None] * bool(says)
    assert all(says in p.message for p in problems)


def test_a_gemma_assistant_is_called_by_its_method(tmp_path: Path) -> None:
    draft = checkpoint(tmp_path / "draft", {}, architectures=["Gemma4AssistantForCausalLM"])
    assert [p.fatal for p in found(arm("eagle3", draft, 3))] == [True]
    assert [p.fatal for p in found(arm("eagle", draft, 3))] == [False]
    assert found(arm("frozen_kv_mtp", draft, 3)) == []


def test_a_dspark_draft_may_lie_in_the_target(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", {})
    assert [p.key for p in found(arm("dspark", k=7), target)] == ["arms[0].draft"]
    (tmp_path / "target" / "dspark").mkdir()
    assert found(arm("dspark", k=7), target) == []


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
