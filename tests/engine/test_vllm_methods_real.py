"""vLLM's methods besides plain draft models: each starts, serves, counts what the client counts, stops clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.config.grid import Arm
from specbench.config.model import ArgValue
from specbench.engines.base import FailureClass, memory
from specbench.engines.ready import LaunchFailed
from specbench.engines.vllm import VllmEngine
from tests.engine import mtp_target
from tests.engine.conftest import TARGET, make_vllm
from tests.engine.drafts import make_int8, make_other_vocabulary, make_parallel
from tests.engine.heads import make_dflash, make_eagle, make_medusa, make_proposer
from tests.engine.random_heads import make_head
from tests.engine.vllm_serving import TOKENS, Batch, check, serve

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

K = 3
COUNTING = "one two three four one two three four one two three four one two"
PARIS = "The capital of France is Paris. It is a city in"
OTHER = "Water boils when it is hot enough, and then it turns into"


def rate(batch: Batch) -> float:
    """Accepted drafts over drafts."""
    return (batch.moved.accepted_tokens or 0) / (batch.moved.draft_tokens or 1)


@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa", "dflash"])
def test_heads_of_random_weights_run(method: str, vllm_engine: VllmEngine, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    make = {
        "eagle": lambda: make_eagle(TARGET, folder),
        "eagle3": lambda: make_head("eagle3", TARGET, folder),
        "medusa": lambda: make_medusa(TARGET, folder),
        "dflash": lambda: make_dflash(TARGET, folder, block=K + 1),
    }
    draft = str(make[method]())
    served = serve(vllm_engine, Arm(id=method, method=method, draft=draft, k=K), tmp_path, [[COUNTING]])
    check(served, method, K)
    (batch,) = served.batches
    assert batch.moved.draft_tokens == K * (batch.moved.drafts or 0)


def test_a_target_with_a_prediction_layer_of_its_own_runs_and_its_drafts_are_right(tmp_path: Path) -> None:
    """A target whose every token is known beforehand, and whose layer drafts exactly those."""
    target = mtp_target.make_mtp_target(TARGET, tmp_path / "target")
    engine = make_vllm(target, dtype="float32")
    served = serve(engine, Arm(id="mtp", method="mtp", k=K), tmp_path, [[[5, 973]]])
    check(served, "mtp", K)
    (batch,) = served.batches
    (stream,) = batch.streams
    assert stream.ids == mtp_target.next_tokens(0, 49152, 973, TOKENS)
    assert rate(batch) == 1.0
    assert batch.moved.drafts == -(-(TOKENS - 1) // (K + 1))


def test_suffix_decoding_runs_and_remembers_what_it_answered(tmp_path: Path) -> None:
    engine, most = make_vllm(TARGET, dtype="float32"), 8
    arm = Arm(id="suffix", method="suffix", k=most)
    assert memory(engine, arm) == "always"
    served = serve(engine, arm, tmp_path, [[PARIS], [COUNTING], [PARIS]])
    check(served, "suffix", most)
    first, counting, again = served.batches
    assert first.streams[0].ids == again.streams[0].ids
    assert (again.moved.accepted_tokens or 0) > (first.moved.accepted_tokens or 0)
    assert rate(counting) > 0
    assert max(len(chunk) for chunk in counting.streams[0].chunks) > 1


def test_a_draft_of_another_vocabulary_with_k_by_the_number_of_requests(
    vllm_engine: VllmEngine, draft_model: Path, tmp_path: Path
) -> None:
    """The draft's ids mean other words, so without the engine's translation nothing would be accepted."""
    draft = make_other_vocabulary(draft_model, tmp_path / "draft")
    settings: dict[str, ArgValue] = {
        "use_heterogeneous_vocab": True,
        "num_speculative_tokens_per_batch_size": [[1, 1, K], [2, 8, 1]],
    }
    arm = Arm(id="other", method="draft_model", draft=str(draft), k=K, settings=settings)
    served = serve(vllm_engine, arm, tmp_path, [[PARIS], [PARIS, OTHER]])
    check(served, "draft_model", K)
    alone, together = served.batches
    assert rate(alone) > 0
    assert alone.moved.draft_tokens == K * (alone.moved.drafts or 0)
    # One of the two may be alone in the first and the last steps.
    assert 1 <= (together.moved.draft_tokens or 0) / (together.moved.drafts or 1) < 2


def test_a_quantised_draft_sampled_at_a_temperature(
    vllm_engine: VllmEngine, draft_model: Path, tmp_path: Path
) -> None:
    draft = make_int8(draft_model, tmp_path / "draft")
    settings: dict[str, ArgValue] = {
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "block",
        "draft_tensor_parallel_size": 1,
        "max_model_len": 512,
    }
    arm = Arm(id="int8", method="draft_model", draft=str(draft), k=K, settings=settings)
    assert ["ignores block" in p.message for p in vllm_engine.problems(arm, 0)] == [True]
    served = serve(vllm_engine, arm, tmp_path, [[PARIS], [OTHER]], temperature=0.8)
    check(served, "draft_model", K)
    told = served.found.speculation
    assert told["draft_model_config.quantization"] == "compressed-tensors"
    assert {name: told[name] for name in settings if name != "max_model_len"} == {
        name: value for name, value in settings.items() if name != "max_model_len"
    }
    assert told["draft_model_config.max_model_len"] == 512


def test_a_draft_that_fills_all_places_at_once(
    vllm_engine: VllmEngine, draft_model: Path, tmp_path: Path
) -> None:
    """It was not trained for that: only its first place is worth anything."""
    draft = make_parallel(draft_model, tmp_path / "draft")
    arm = Arm(
        id="parallel", method="draft_model", draft=str(draft), k=K, settings={"parallel_drafting": True}
    )
    served = serve(vllm_engine, arm, tmp_path, [[PARIS]])
    check(served, "draft_model", K)
    (batch,) = served.batches
    assert served.found.speculation["parallel_drafting"] is True
    assert batch.moved.draft_tokens == K * (batch.moved.drafts or 0)
    assert batch.moved.accepted_per_position[0] > 0


def test_a_proposer_class_of_ones_own_runs_and_is_accepted(vllm_engine: VllmEngine, tmp_path: Path) -> None:
    path = make_proposer(tmp_path / "proposer")
    arm = Arm(
        id="custom", method="custom_class", draft=path, k=K, env={"PYTHONPATH": str(tmp_path / "proposer")}
    )
    served = serve(vllm_engine, arm, tmp_path, [[COUNTING]])
    check(served, "custom_class", K)
    (batch,) = served.batches
    assert rate(batch) > 0
    assert max(len(chunk) for chunk in batch.streams[0].chunks) > 1


def test_layers_that_the_target_does_not_have_are_told_before_and_explained_after(
    vllm_engine: VllmEngine, tmp_path: Path
) -> None:
    arm = Arm(id="mtp", method="mtp", k=1)
    (warned,) = vllm_engine.problems(arm, 0)
    assert not warned.fatal
    assert "no multi-token-prediction layers" in warned.message
    with pytest.raises(LaunchFailed) as caught:
        serve(vllm_engine, arm, tmp_path, [[COUNTING]])
    assert caught.value.failure.kind is FailureClass.UNSUPPORTED_METHOD
    assert "cannot do mtp" in caught.value.failure.summary
