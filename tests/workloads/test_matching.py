"""Real text at recorded lengths: right to 2 %, shared where prefixes are, the same in every process."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench.config.model import Config, Target
from specbench.workloads.build import build_workload
from specbench.workloads.matching import Matcher, Words, filler_requests
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import Prefix, Shape, Source, SourceRequest
from specbench.workloads.tokens import ServedTokens, served_tokens
from tests.workloads.tiny_tokenizer import byte_level


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_level(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokens(model: Path) -> ServedTokens:
    return served_tokens(Target(model=str(model), revision=None, tokenizer=None))


def corpus(n: int = 30, words: int = 40) -> list[SourceRequest]:
    return [
        SourceRequest(
            id=f"{category}{i}",
            category=category,
            source=Source(file="x.jsonl", line=i),
            messages=(
                {"role": "user", "content": f"{category} {i}: " + f"the cat {i} sat on mat {i * 7} " * words},
            )
            if i % 3
            else ({"role": "system", "content": "be brief"}, {"role": "user", "content": f"why {i}?"}),
        )
        for category in ("chat", "code")
        for i in range(n)
    ]


def rows(*targets: int, **prefix: Any) -> list[SourceRequest]:
    return [
        SourceRequest(
            id=f"t{i}",
            source=Source(file="t.jsonl", line=i),
            shape=Shape(prompt_tokens=n),
            prompt_tokens=n,
            output_tokens=5,
            arrival_s=float(i),
            text_source="none",
        )
        for i, n in enumerate(targets)
    ]


def shared(
    ids: tuple[int, ...], target: int, name: str, scope: Any = "global", session: str | None = None
) -> SourceRequest:
    return SourceRequest(
        id=name,
        source=Source(file="t.jsonl", line=1),
        shape=Shape(prompt_tokens=target, prefix=Prefix(block_tokens=64, ids=ids, scope=scope)),
        prompt_tokens=target,
        session_id=session,
        text_source="none",
    )


def shared_tokens(tokens: ServedTokens, one: str, other: str) -> int:
    pairs = zip(tokens.encode(one), tokens.encode(other), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_prompts_have_their_recorded_length(tokens: ServedTokens) -> None:
    matcher = Matcher("mine", corpus(), tokens, "1")
    targets = [80, 81, 100, 150, 333, 1000, 2222, 6000]
    made = matcher.match(rows(*targets), "trace", None)
    for request, target in zip(made, targets, strict=True):
        assert abs(tokens.prompt_tokens(request) - target) <= 0.02 * target
        assert request.text_source == "matched:mine"
        assert (request.shape, request.output_tokens) == (None, 5)
        assert request.messages is not None
        assert request.messages[-1]["role"] == "user"
    assert not any("miss" in remark for remark in matcher.remarks())


def test_a_miss_is_told_with_its_numbers(tokens: ServedTokens) -> None:
    matcher = Matcher("mine", corpus(), tokens, "1")
    matcher.match(rows(2, 500), "trace", None)  # the chat template alone is longer than 2 tokens
    told = "\n".join(matcher.remarks())
    assert "1 of 2 prompts miss their recorded length by more than 2%: the worst, 't0', has" in told


def test_text_that_runs_out_is_told(tokens: ServedTokens) -> None:
    matcher = Matcher("mine", corpus(2, words=3), tokens, "1")
    matcher.match(rows(4000), "trace", None)
    assert any("longer than the text there is and repeat it" in remark for remark in matcher.remarks())


def test_categories_keep_their_weights(tokens: ServedTokens) -> None:
    matcher = Matcher("mine", corpus(), tokens, "1")
    made = matcher.match(rows(*[200] * 40), "trace", {"chat": 3, "code": 1})
    assert sum(r.category == "chat" for r in made) == 30


def test_equal_leading_blocks_are_equal_leading_text(tokens: ServedTokens) -> None:
    matcher = Matcher("mine", [r for r in corpus() if r.category == "chat"], tokens, "1")
    one, two, three = (
        tokens.render(r)
        for r in matcher.match(
            [
                shared((1, 2, 3, 4, 5, 6), 380, "a"),
                shared((1, 2, 3, 7, 8, 9), 384, "b"),
                shared((11, 12, 13, 14, 15, 16), 384, "c"),
            ],
            "trace",
            None,
        )
    )
    alike = shared_tokens(tokens, one, two)
    assert alike >= 2.5 * 64  # the question may take the place of part of the last block
    assert alike < 380
    assert shared_tokens(tokens, one, three) < 64
    # The same blocks to the end are the same prompt; another trace has other text.
    again = matcher.match([shared((1, 2, 3, 4, 5, 6), 380, "other")], "trace", None)[0]
    assert tokens.render(again) == one
    elsewhere = matcher.match([shared((1, 2, 3, 4, 5, 6), 380, "a")], "another trace", None)[0]
    assert tokens.render(elsewhere) != one


def test_blocks_of_a_session_are_its_own(tokens: ServedTokens) -> None:
    matcher = Matcher("mine", [r for r in corpus() if r.category == "chat"], tokens, "1")
    made = matcher.match(
        [shared((1, 2, 3), 192, name, "session", name) for name in ("x", "y")], "trace", None
    )
    assert tokens.render(made[0])[:100] != tokens.render(made[1])[:100]


def test_filler_is_marked_and_needs_no_tokenizer() -> None:
    matcher = Matcher("words", filler_requests(), Words(), "1", filler=True)
    made = matcher.match(rows(50, 700), "trace", {"chat": 1})
    assert {r.text_source for r in made} == {"filler:words"}
    assert [len((r.text() or "").split()) for r in made] == [50, 700]
    assert "one word per token" in matcher.remarks()[0]


def test_filler_in_the_corpus_stays_filler(tokens: ServedTokens) -> None:
    made = Matcher("mine", filler_requests(), tokens, "1").match(rows(300), "trace", None)
    assert made[0].text_source == "filler:words"


def config(model: Path, **changes: Any) -> Config:
    content: dict[str, Any] = {
        "name": "x",
        "target": {"model": str(model)},
        "engine": {"kind": "simulated", "args": {"max-model-len": 4096}},
        "arms": [{"method": "ngram", "k": 3}],
        "loads": {"closed": [2], "open": [{"rate": 4}], "trace": {"seconds": 6}},
        "workload": {"source": "chat", "lengths": {"source": "azure-llm-2023-conv"}, "min_requests": 6},
    }
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    return Config.model_validate(content)


def test_a_whole_workload_from_a_shipped_trace(model: Path, tokens: ServedTokens) -> None:
    built = build_workload(config(model), Path())
    assert set(built.mixes) == {"c2", "r4.0", "trace"}
    off = 0
    for mix in built.mixes.values():
        assert {r.text_source for r in mix.measured} == {"matched:chat"}
        ids = [r.id for r in mix.measured + mix.warmup]
        assert len(set(ids)) == len(ids)
        off += sum(1 for r in mix.measured if r.messages is None)
    assert off == 0
    assert len(built.mixes["r4.0"].schedule) == len(built.mixes["r4.0"].measured) == 120
    assert built.trace is not None
    assert built.trace.seconds < 6
    text = "\n".join(built.account.sentences())
    assert "azure-llm-2023-conv" in text
    assert "CC-BY-4.0" in text
    assert "workload.max_output_tokens" in text


def test_real_text_without_the_tokenizer_is_refused_and_filler_is_not(model: Path) -> None:
    with pytest.raises(
        WorkloadError, match=r"workload\.lengths: real text can only be packed.*lengths\.text: filler"
    ):
        build_workload(config(model, target={"model": "sim/target"}), Path())
    lengths = {"source": "azure-llm-2023-conv", "text": "filler"}
    built = build_workload(
        config(model, target={"model": "sim/target"}, workload={"lengths": lengths}), Path()
    )
    assert {r.text_source for mix in built.mixes.values() for r in mix.measured} == {"filler:words"}


def test_lengths_and_times_of_a_trace_file(model: Path, tmp_path: Path, tokens: ServedTokens) -> None:
    lines = [
        json.dumps(
            {
                "timestamp": 1000 * i,
                "input_length": 100 + 10 * i,
                "output_length": 3 + i,
                "hash_ids": [i],
            }
        )
        for i in range(40)
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    made = build_workload(
        config(
            model,
            loads={"trace": {"time_scale": 0.5}, "open": [], "closed": [1]},
            workload={"lengths": {"source": "./trace.jsonl"}, "source": "code"},
        ),
        tmp_path,
    )
    mix = made.mixes["trace"]
    assert [a.at_s for a in mix.schedule] == [i * 0.5 for i in range(40)]
    assert [r.max_tokens for r in mix.measured] == [3 + i for i in range(40)]
    got = [
        tokens.prompt_tokens(SourceRequest(id="x", source=Source(file="", line=1), messages=r.messages))
        for r in mix.measured
    ]
    assert all(abs(n - (100 + 10 * i)) <= 0.02 * n for i, n in enumerate(got))


def test_over_context_rows_are_dropped_for_all_arms_and_told(model: Path, tmp_path: Path) -> None:
    rows_text = ['{"prompt": "why?"}'] * 20 + ['{"prompt": "' + "the cat sat on a mat " * 900 + '"}']
    (tmp_path / "x.jsonl").write_text("\n".join(rows_text))
    loads = {"closed": [1], "open": [], "trace": None}
    built = build_workload(
        config(model, loads=loads, workload={"source": "./x.jsonl", "lengths": None}), tmp_path
    )
    assert built.account.dropped == {"over_context": 1}
    assert built.account.used == 20
    assert any("do not fit the context of 4096 tokens" in s for s in built.account.remarks)


def test_a_trace_of_lengths_as_the_source_says_what_to_do(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,900,12\n")
    with pytest.raises(
        WorkloadError, match=r"t\.csv:2: .*no text to send: name this file in workload\.lengths\.source"
    ):
        build_workload(
            config(
                model,
                loads={"open": [], "trace": None},
                workload={"source": "./t.csv", "lengths": None},
            ),
            tmp_path,
        )


def test_the_same_bytes_whatever_the_hash_seed(model: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.workloads.test_matching import config;"
        "from specbench.workloads.build import build_workload;"
        "built = build_workload(config(Path(sys.argv[1])), Path());"
        "print({k: m.digest for k, m in sorted(built.mixes.items())})"
    )
    here = str({k: m.digest for k, m in sorted(build_workload(config(model), Path()).mixes.items())})
    for seed in ("0", "4242"):
        out = subprocess.run(
            [sys.executable, "-c", code, str(model)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=90,
        )
        assert out.stdout.strip() == here
