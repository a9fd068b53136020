"""The failure catalogue against recorded logs of vLLM 0.32, each provoked for real."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.engines.base import FailureClass as F
from specbench.engines.vllm_failures import explain_vllm

LOGS = Path(__file__).parent / "logs"

CASES = [
    # log, exit code, class, part of the summary, part of the mend, part of the root cause
    ("bad_json", 2, F.BAD_SPECULATION, "not JSON", "under `arms`", "cannot be converted"),
    ("unknown_flag", 2, F.BAD_ARGUMENT, "--speculative-model", "removed in vLLM 0.8.3", "unrecognized"),
    (
        "unknown_key",
        1,
        F.BAD_SPECULATION,
        "'disable_by_batch_size'",
        "Use num_speculative_tokens_per_batch_size",
        "for SpeculativeConfig",
    ),
    ("unknown_method", 1, F.UNSUPPORTED_METHOD, "'lookahead'", "draft_model, ngram", "for SpeculativeConfig"),
    ("missing_draft", 1, F.MODEL_NOT_FOUND, "./missing-draft", "Correct the path", "SpeculativeConfig"),
    ("k_zero", 1, F.BAD_SPECULATION, "greater than 0", "at least 1", "for SpeculativeConfig"),
    ("port_in_use", 1, F.PORT_IN_USE, "has the engine's port", "Run again", "Address already in use"),
    (
        "context_too_long",
        1,
        F.CONTEXT_TOO_LONG,
        "100000 is more than the model's 8192",
        "Lower",
        "ModelConfig",
    ),
    ("kv_small", 1, F.KV_TOO_SMALL, "one request of 2048 tokens (at most 128)", "Lower", "To serve at least"),
    ("kv_none", 1, F.KV_TOO_SMALL, "No memory is left", "kv-cache-memory-bytes", "No available memory"),
    (
        "vocabulary",
        1,
        F.VOCABULARY,
        "32000 tokens in its vocabulary, the target 49152",
        "family",
        "Speculative",
    ),
    ("missing_model", 1, F.MODEL_NOT_FOUND, "./missing-model", "Correct the path", "HFValidationError"),
    ("missing_model_hub", 1, F.MODEL_NOT_FOUND, "not in the hub's cache", "HF_HUB_OFFLINE", "LocalEntry"),
    ("suffix_package", 1, F.MISSING_PACKAGE, "suffix", "pip install arctic-inference==0.1.1", "ImportError"),
    ("mtp_unsupported", 1, F.UNSUPPORTED_METHOD, "cannot do mtp", "another method", "NotImplementedError"),
    ("dspark_v1", 1, F.UNSUPPORTED_METHOD, "V1, which is used here, has no dspark", "Triton", "VllmConfig"),
    ("bad_schedule", 1, F.BAD_SPECULATION, "must start at 1", "do not overlap", "ValueError: The first"),
    ("memory_busy", 1, F.OUT_OF_MEMORY, "Less memory is free", "gpu-memory-utilization", "Available memory"),
    ("eagle3_plain", 1, F.BAD_SPECULATION, "weights do not fit", "EAGLE head", "no module or parameter"),
    ("medusa_plain", 1, F.BAD_SPECULATION, "weights do not fit", "this method", "Duplicate layer name"),
    ("proposer_missing", 1, F.BAD_SPECULATION, "module no_such_module", "PYTHONPATH", "No module named"),
    ("medusa_token_map", 1, F.BAD_SPECULATION, "token_map", "whole vocabulary", "not initialized from"),
    ("eagle_naming", 1, F.BAD_SPECULATION, "LlamaForCausalLMEagle", "SGLang's naming", "Model architectures"),
    ("engine_died_seed", 0, F.ENGINE_DIED, "own seed", "temperature 0", "CPU Generator does not use offset"),
    ("worker_killed", 1, F.KILLED, "A worker process", "out of memory", "WorkerProc initialization failed"),
    ("parallel_untrained", 1, F.BAD_SPECULATION, "not trained for parallel", "PARD", "For parallel drafting"),
    ("ngram_gpu", 1, F.UNSUPPORTED_METHOD, "needs a GPU", "Use ngram", "pin_memory"),
    ("mlp_speculator", 1, F.UNSUPPORTED_METHOD, "kept the name", "another method", "NotImplementedError"),
    ("draft_parallelism", 1, F.BAD_SPECULATION, "2 is neither 1 nor", "leave it out", "SpeculativeConfig"),
    ("other_vocabulary_sampled", 1, F.BAD_SPECULATION, "only supports greedy", "plan", "SpeculativeConfig"),
    ("other_vocabulary_eagle", 1, F.BAD_SPECULATION, "only works with method", "plan", "SpeculativeConfig"),
    ("synthetic_cpu", 0, F.UNSUPPORTED_METHOD, "does not work on this CPU", "or a GPU", "AssertionError"),
    ("synthetic_both", 1, F.BAD_SPECULATION, "requires exactly one of", "plan", "SpeculativeConfig"),
    ("synthetic_values", 1, F.BAD_SPECULATION, "are only valid with", "plan", "SpeculativeConfig"),
    ("draft_fp8", 1, F.UNSUPPORTED_METHOD, "cannot quantise to fp8", "int8", "static_scaled_fp8_quant"),
    ("draft_quantization_unknown", 1, F.BAD_ARGUMENT, "'bitsandbytes'", "leave it out", "SpeculativeConfig"),
    ("draft_not_quantised", 1, F.BAD_ARGUMENT, "read as gptq", "Take `quantization` out", "VllmConfig"),
    (
        "draft_length",
        1,
        F.BAD_SPECULATION,
        "9000 is more than the draft's 8192",
        "at most 8192",
        "Speculative",
    ),
    (
        "draft_length_target",
        1,
        F.BAD_SPECULATION,
        "2000 is more than the target's 1024",
        "1024",
        "Speculative",
    ),
    ("mtp_indivisible", 1, F.BAD_SPECULATION, "2 draft layers", "multiple of 2", "SpeculativeConfig"),
    ("dflash_mixed", 1, F.UNSUPPORTED_METHOD, "has no mixed sliding/full", "Triton", "VllmConfig"),
    ("baseline_metrics", 1, F.BAD_SPECULATION, "requires speculative decoding", "plan", "VllmConfig"),
    ("batch_too_small", 1, F.BAD_ARGUMENT, "no room for the draft tokens", "Raise", "VllmConfig"),
    ("logits_processors", 1, F.BAD_ARGUMENT, "custom logits processors", "Remove", "ValueError"),
    ("medusa_schedule", 0, F.BAD_SPECULATION, "asked for another K", "Remove the schedule", "AssertionError"),
    ("suffix_schedule", 0, F.BAD_SPECULATION, "asked for another K", "Remove the schedule", "AssertionError"),
    ("killed_in_start", -9, F.KILLED, "The engine was killed", "out of memory", "INFO"),
]


def recorded(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "code", "kind", "summary", "mend", "line"), CASES, ids=lambda v: str(v)[:20]
)
def test_a_recorded_failure_is_explained(
    name: str, code: int, kind: F, summary: str, mend: str, line: str
) -> None:
    found = explain_vllm(recorded(name), code)
    assert found.kind is kind
    assert summary in found.summary
    assert mend in found.mend
    assert line in " ".join(found.log_lines)
    assert len(found.log_lines) <= 12
    assert not any("Engine core initialization failed" in text for text in found.log_lines)


def test_every_recorded_log_has_a_case() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == {case[0] for case in CASES}


def test_what_comes_after_a_stop_that_was_asked_for_is_noise() -> None:
    log = (
        "(APIServer pid=1) INFO 12-01 05:59:35 [launcher.py:254] [shutdown] API server: shutdown triggered\n"
        "(APIServer pid=1) ERROR 12-01 05:59:36 [async_llm.py:906] CUDA out of memory\n"
    )
    found = explain_vllm(log, 0)
    assert found.kind is F.ENGINE_DIED
    assert "gave no reason" in found.summary


def test_warnings_that_quote_an_error_are_not_the_cause() -> None:
    log = (
        "(APIServer pid=1) WARNING 12-01 06:09:03 [system_utils.py:255] This can cause fd limit errors like "
        "`OSError: [Errno 24] Too many open files`.\n"
        "(APIServer pid=1) INFO 12-01 06:09:03 [x.py:1] Address already in use by nobody\n"
    )
    assert explain_vllm(log, 1).kind is F.UNKNOWN


def test_an_unknown_exception_of_the_engine_core_is_shown_itself() -> None:
    log = (
        "(EngineCore pid=2) ERROR 12-01 06:09:28 [core.py:1510] EngineCore failed to start.\n"
        "(EngineCore pid=2) ERROR 12-01 06:09:28 [core.py:1510] Traceback (most recent call last):\n"
        '(EngineCore pid=2) ERROR 12-01 06:09:28 [core.py:1510]   File "core.py", line 1, in run\n'
        "(EngineCore pid=2) ERROR 12-01 06:09:28 [core.py:1510] KeyError: 'flux capacitor'\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    )
    found = explain_vllm(log, 1)
    assert found.kind is F.ENGINE_DIED
    assert found.summary == "The engine ended with KeyError: 'flux capacitor'"
    assert found.log_lines == ("KeyError: 'flux capacitor'",)


@pytest.mark.parametrize(
    "line",
    [
        "python: No module named vllm",
        "python: Error while finding module specification for 'vllm.entrypoints.openai.api_server' "
        "(ModuleNotFoundError: No module named 'vllm')",
    ],
)
def test_a_python_without_vllm_is_an_engine_that_is_missing(line: str) -> None:
    found = explain_vllm(line + "\n", 1)
    assert found.kind is F.ENGINE_MISSING
    assert found.log_lines == (line,)


def test_a_crash_names_its_signal() -> None:
    found = explain_vllm("INFO something\n", -signal.SIGILL)
    assert found.kind is F.ENGINE_DIED
    assert "illegal instruction" in found.summary


@given(st.text(max_size=400), st.sampled_from([None, 0, 1, 2, -9, 137]))
def test_no_log_makes_it_raise(log: str, code: int | None) -> None:
    found = explain_vllm("ERROR 12-01 06:09:28 [core.py:1510] " + log, code)
    assert found.summary
    assert found.mend
