"""The exact command line of an arm, by the version of SGLang behind the command.

The flags of each line were looked up in the argument parser of that version's package.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.sglang import SglangEngine


def engine(version: str, **config: Any) -> SglangEngine:
    made = SglangEngine(
        Target.model_validate("org/target"), EngineConfig.model_validate({"kind": "sglang", **config})
    )
    made._found = version
    return made


def arm(method: str, draft: str | None = None, k: int | None = None, **settings: Any) -> Arm:
    return Arm(id="arm", method=method, draft=draft, k=k, settings=settings)


OLD = (
    "python -m sglang.launch_server --model-path org/target --served-model-name specbench-arm "
    "--host 127.0.0.1 --port 8000 --max-running-requests 256 --enable-metrics --disable-radix-cache "
    "--random-seed 0 --stream-interval 1"
)
SHARED = f"{OLD} --sampling-defaults openai"
CHAIN3 = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
EAGLE = arm("eagle", "org/head", 3)
EAGLE3 = arm("eagle3", "org/head", 3)
DRAFT = arm("draft_model", "org/draft", 3)
TREE = arm("eagle3", "org/head", num_steps=5, eagle_topk=4, num_draft_tokens=8)
NGRAM = arm("ngram", k=8)
WINDOW = arm("ngram", k=8, ngram_max_match_window_size=12)
DEPTH = arm("ngram", k=8, ngram_max_trie_depth=12)
ADAPTIVE = arm("eagle3", "org/head", 3, adaptive=True)
LOSSY = arm("eagle", "org/head", 3, accept_threshold_single=0.9, accept_threshold_acc=0.9)

E1 = f"--speculative-algorithm EAGLE --speculative-draft-model-path org/head {CHAIN3}"
E3 = f"--speculative-algorithm EAGLE3 --speculative-draft-model-path org/head {CHAIN3}"
N8 = "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8"
S3 = f"--speculative-algorithm STANDALONE --speculative-draft-model-path org/draft {CHAIN3}"

GOLDEN = [
    ("0.4.6.post5", EAGLE, f"{OLD} {E1}"),
    ("0.4.6.post5", EAGLE3, f"{OLD} {E3}"),
    (
        "0.4.10.post2",
        TREE,
        f"{OLD} --speculative-algorithm EAGLE3 --speculative-draft-model-path org/head "
        "--speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
    ),
    (
        "0.4.10.post2",
        LOSSY,
        f"{OLD} {E1} --speculative-accept-threshold-single 0.9 --speculative-accept-threshold-acc 0.9",
    ),
    ("0.5.2", DRAFT, f"{OLD} {S3}"),
    (
        "0.5.2",
        arm("eagle3", "org/head", 3, attention_mode="decode"),
        f"{OLD} {E3} --speculative-attention-mode decode",
    ),
    ("0.5.3.post3", NGRAM, f"{SHARED} {N8}"),
    ("0.5.9", WINDOW, f"{SHARED} {N8} --speculative-ngram-max-match-window-size 12"),
    ("0.5.10.post1", DEPTH, f"{SHARED} {N8} --speculative-ngram-max-trie-depth 12"),
    ("0.5.11", ADAPTIVE, f"{SHARED} {E3} --speculative-adaptive"),
    (
        "0.5.11",
        arm("dflash", "org/dflash", 15, dflash_draft_window_size=512),
        f"{SHARED} --speculative-algorithm DFLASH --speculative-draft-model-path org/dflash "
        "--speculative-num-draft-tokens 16 --speculative-dflash-draft-window-size 512",
    ),
    (
        "0.5.12.post1",
        arm("frozen_kv_mtp", "org/assistant", 3),
        f"{SHARED} --speculative-algorithm FROZEN_KV_MTP --speculative-draft-model-path org/assistant {CHAIN3}",
    ),
    (
        "0.5.14",
        arm("eagle3", "org/head", 3, use_rejection_sampling=True),
        f"{SHARED} {E3} --speculative-use-rejection-sampling",
    ),
    (
        "0.5.16",
        arm("dspark", "org/dspark", 7),
        f"{SHARED} --speculative-algorithm DSPARK --speculative-draft-model-path org/dspark "
        "--speculative-num-draft-tokens 8",
    ),
    (
        "0.5.20",
        arm("uno", uno_lora_path="org/lora", num_draft_tokens=4),
        f"{SHARED} --speculative-algorithm UNO --speculative-num-draft-tokens 4 --uno-lora-path org/lora",
    ),
    (
        "0.5.22",
        arm("eagle3", "org/head", 3, use_block_verification=True),
        f"{SHARED} {E3} --speculative-use-block-verification",
    ),
    (
        "0.5.23",
        arm("dflash", "org/dflash", 15, draft_window_size=512),
        f"{SHARED} --speculative-algorithm DFLASH --speculative-draft-model-path org/dflash "
        "--speculative-num-draft-tokens 16 --speculative-draft-window-size 512",
    ),
    ("0.5.23", DRAFT, f"{SHARED} {S3}"),
    ("0.4.6.post5", Arm(id="baseline"), OLD.replace("specbench-arm", "specbench-baseline")),
    ("0.5.23", Arm(id="baseline"), SHARED.replace("specbench-arm", "specbench-baseline")),
]


@pytest.mark.parametrize(
    ("version", "one", "line"), GOLDEN, ids=[f"{v}-{a.method}-{i}" for i, (v, a, _) in enumerate(GOLDEN)]
)
def test_the_command_line_byte_for_byte(version: str, one: Arm, line: str) -> None:
    it = engine(version, args={})
    assert [p for p in it.problems(one, 0) if p.fatal] == []
    spec = it.launch(one, 8000)
    assert " ".join(spec.argv) == line
    assert tuple(shlex.split(shlex.join(spec.argv))) == spec.argv


REFUSED = [
    # version, arm, key, part of the message, part of the mend
    (
        "0.5.23",
        arm("medusa", "org/heads", 3),
        "method",
        "medusa does not exist in SGLang; it has eagle",
        "vLLM",
    ),
    ("0.4.6.post5", arm("medusa", "org/heads", 3), "method", "it has eagle, eagle3", "vLLM"),
    ("0.5.23", arm("suffix", k=8), "method", "suffix does not exist in SGLang", "vLLM"),
    ("0.5.1.post3", DRAFT, "method", "SGLang has it since 0.5.2", "use one of: eagle, eagle3"),
    ("0.5.2", NGRAM, "method", "since 0.5.3", "draft_model"),
    ("0.5.10.post1", arm("dflash", "org/d", 15), "method", "since 0.5.11", "ngram"),
    ("0.5.10.post1", WINDOW, "settings.ngram_max_match_window_size", "no longer", "use ngram_max_trie_depth"),
    (
        "0.5.23",
        arm("ngram", k=8, ngram_min_match_window_size=1),
        "settings.ngram_min_match_window_size",
        "no longer",
        "every length up to ngram_max_trie_depth",
    ),
    (
        "0.5.23",
        arm("ngram", k=8, speculative_ngram_branch_length=18),
        "settings.speculative_ngram_branch_length",
        "no longer",
        "use ngram_max_trie_depth",
    ),
    ("0.5.9", DEPTH, "settings.ngram_max_trie_depth", "0.5.9 does not have", "since 0.5.10: upgrade"),
    ("0.5.10.post1", ADAPTIVE, "settings.adaptive", "does not have adaptive yet", "since 0.5.11"),
    (
        "0.5.20",
        arm("dflash", "org/d", 15, dflash_draft_window_size=512),
        "settings.dflash_draft_window_size",
        "no longer",
        "use draft_window_size",
    ),
]


@pytest.mark.parametrize(
    ("version", "one", "key", "message", "mend"), REFUSED, ids=[f"{r[0]}-{r[2]}" for r in REFUSED]
)
def test_what_a_version_does_not_have_is_refused_with_its_successor(
    version: str, one: Arm, key: str, message: str, mend: str
) -> None:
    problems = [p for p in engine(version).problems(one, 1) if p.key == f"arms[1].{key}"]
    assert any(p.fatal and message in p.message and mend in p.mend for p in problems), problems


def test_the_version_of_an_official_image_is_its_tag() -> None:
    image = "lmsysorg/sglang:v0.5.9-cu129-amd64"
    command = ["true", "docker", "run", "--network=host", image, "python3", "-m", "sglang.launch_server"]
    config = EngineConfig.model_validate({"kind": "sglang", "command": command})
    it = SglangEngine(Target.model_validate("org/target"), config)
    assert it.version() == "0.5.9"
    assert [p for p in it.problems(WINDOW, 0) if p.fatal] == []
