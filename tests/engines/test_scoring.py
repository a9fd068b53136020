"""How engines are asked for token ids and scores, and how their answers are read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.endpoint import EndpointEngine
from specbench.engines.scoring import NotTold, TokenScore
from specbench.engines.sglang import SglangEngine
from specbench.engines.sglang_scoring import SglangScoring
from specbench.engines.vllm_scoring import VllmScoring
from specbench.workloads.request import Request

PAGES = Path(__file__).parent / "pages" / "sglang"
PROMPT = [1, 4093, 198, 9302, 318, 351, 805, 260, 2229, 9805, 30, 2, 198, 1, 520, 9531, 198]
OUTPUT = [10539, 30, 2, 253]
"""``Yes.``, the end of text, and a token that does not belong there."""

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def page(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PAGES / name).read_text())
    return found


def request(**changes: Any) -> Request:
    return Request(id="r", category="chat", max_tokens=8, **changes)


def test_sglangs_tokenizer_is_asked_for_a_prompt() -> None:
    chat = ({"role": "user", "content": "Reply with only the word yes."},)
    asked = SglangScoring().ask_prompt_ids("m", request(messages=chat))
    assert (asked.path, asked.body) == ("/v1/tokenize", {"model": "m", "messages": chat})
    ids = SglangScoring().read_prompt_ids(page("tokenize_chat.json"))
    assert len(ids) == 38
    assert ids[0] == 1
    text = SglangScoring().ask_prompt_ids("m", request(prompt="one two"))
    assert text.body == {"model": "m", "prompt": "one two"}
    tools = SglangScoring().ask_prompt_ids("m", request(messages=chat, tools=(TOOL,)))
    assert tools.body["tools"] == (TOOL,)
    assert tools.body["tool_choice"] == "none"
    with pytest.raises(NotTold, match="/v1/tokenize"):
        SglangScoring().read_prompt_ids({"detail": "Not Found"})


def test_sglang_scores_an_output_as_the_end_of_a_prompt() -> None:
    asked = SglangScoring().ask_scores("m", PROMPT, OUTPUT, 20)
    assert asked.path == "/generate"
    assert asked.body == {
        "input_ids": [*PROMPT, *OUTPUT],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": 16,
        "top_logprobs_num": 20,
    }


def test_sglangs_scores_are_read_from_a_recorded_answer() -> None:
    scores = SglangScoring().read_scores(page("generate_scores.json"), PROMPT, OUTPUT, 20)
    assert [round(s.logprob, 3) for s in scores] == [-2.745, -1.13, -0.502, -20.478]
    for score in scores:
        assert len(score.top) == 20
        assert [x for _, x in score.top] == sorted((x for _, x in score.top), reverse=True)
        assert math.fsum(math.exp(x) for _, x in score.top) <= 1 + 1e-6
    assert [dict(s.top)[t] for s, t in zip(scores[:3], OUTPUT, strict=False)] == [
        s.logprob for s in scores[:3]
    ]
    assert scores[2].rank == 1  # the end of text was the likeliest token
    assert scores[3].rank is None  # none of the 20: SGLang does not tell how far down


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"input_token_logprobs": None},
            "input_token_logprobs of 3 tokens were asked for, the answer has None",
        ),
        ({"input_top_logprobs": [None]}, "input_top_logprobs of 3 tokens were asked for, the answer has 1"),
        (
            {"input_token_logprobs": [[None, 5, None], [-1.0, 8, None], [-1.0, 9, None]]},
            "no score for token 7",
        ),
        ({"input_top_logprobs": [None, [[-0.5, 7, None]], None]}, "fewer than 2 alternatives"),
    ],
)
def test_sglang_answers_without_scores_are_refused(change: dict[str, Any], says: str) -> None:
    pair = [[-0.5, 7, None], [None, 8, None]]
    good = {
        "input_token_logprobs": [[None, 5, None], [-0.5, 7, None], [None, 9, None]],
        "input_top_logprobs": [None, pair, pair],
    }
    read = SglangScoring().read_scores
    assert read({"meta_info": good}, [5], [7, 9], 2) == [
        TokenScore(-0.5, 1, ((7, -0.5), (8, -math.inf))),
        TokenScore(-math.inf, None, ((7, -0.5), (8, -math.inf))),
    ]
    with pytest.raises(NotTold, match=says):
        read({"meta_info": {**good, **change}}, [5], [7, 9], 2)
    with pytest.raises(NotTold, match="has None"):
        read({"text": "no meta_info"}, [5], [7, 9], 2)


ROW = {
    "7": {"logprob": -0.5, "rank": 1},
    "8": {"logprob": -1.5, "rank": 2},
    "9": {"logprob": None, "rank": 300},
}


def prompt_logprobs(rows: Any) -> dict[str, Any]:
    return {"choices": [{"text": "", "prompt_logprobs": rows}]}


def test_prompt_logprobs_as_vllm_writes_them() -> None:
    found = VllmScoring().read_scores(prompt_logprobs([None, ROW, ROW]), [1], [9, 7], 2)
    best = ((7, -0.5), (8, -1.5))
    assert found == [TokenScore(-math.inf, 300, best), TokenScore(-0.5, 1, best)]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (None, "the answer has None"),
        ([None, ROW], "the answer has 2"),
        ([None, ROW, {}], "no score for token 7"),
        ([None, ROW, {"7": {"logprob": -0.5}}], "raise the engine's max-logprobs"),
        ([None, ROW, None], "no score for token 7"),
    ],
)
def test_vllm_answers_without_scores_are_refused(rows: Any, says: str) -> None:
    with pytest.raises(NotTold, match=says):
        VllmScoring().read_scores(prompt_logprobs(rows), [1], [8, 7], 2)


def test_an_attached_server_is_asked_in_its_own_way() -> None:
    target = Target.model_validate("org/target")
    attached = EndpointEngine(target, EngineConfig.model_validate({"kind": "endpoint"}))
    assert isinstance(attached.scoring(), VllmScoring)
    attached._like = SglangEngine(target, EngineConfig.model_validate({"kind": "sglang"}))
    assert isinstance(attached.scoring(), SglangScoring)


def test_a_draft_can_be_served_alone_to_score() -> None:
    engine = SglangEngine(
        Target.model_validate("org/target"),
        EngineConfig.model_validate({"kind": "sglang", "args": {"context-length": 64}}),
    )
    alone = engine.draft_alone(Arm(id="a", method="draft_model", draft="org/draft", k=3))
    words = alone.launch(Arm(id="draft-of-a"), 8000).argv
    assert words[words.index("--model-path") + 1] == "org/draft"
    assert "--context-length" in words
    assert not any("speculative" in word for word in words)
