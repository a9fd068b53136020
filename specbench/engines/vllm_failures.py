"""From the log of a vLLM launch that failed to the reason and the mend.

The last line of such a log is generic; the root cause is in the first traceback of an engine-core or
worker process, or in the API process when arguments were refused. What comes after the server
was asked to stop is noise.
"""

from __future__ import annotations

import re
from typing import Final

from specbench.engines.base import Failure, FailureClass
from specbench.engines.capabilities import capabilities
from specbench.engines.capabilities.schema import near
from specbench.engines.failure_table import CRASHES, MAX_LINE_CHARS, Row, find, tail
from specbench.engines.failure_table import row as _row

MAX_LINES: Final = 12

_PREFIX: Final = re.compile(
    r"^(?:\([^()]*\bpid=\d+\)\s)?(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? "
    r"\[[^\]]*\] ?)?"
)
_TROUBLE: Final = re.compile(
    r"^(?:\([^()]*pid=\d+\) )?"
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d |Traceback \(most recent call last\)|\S+: error: "
    r"|\S+: (?:No module|Error while finding module))",
    re.MULTILINE,
)
_EXCEPTION: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|NotFound)(?:: .*|$)"
    r"|^Exception: .*|^\S+: error: .*"
)
_MESSAGE: Final = re.compile(rf"{_EXCEPTION.pattern}|^\s+(?:Value error|Assertion failed), ")
"""Lines that are kept however long they are: vLLM lists all its architectures in one."""
_GENERIC: Final = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|EngineDeadError|died unexpectedly"
    r"|EngineCore encountered|Worker failed with error|CancelledError|^Exception: Exception$"
)
_END_OF_MESSAGE: Final = re.compile(
    r"^(?:Traceback|During handling|The above exception|\s*For further information|  File |\s*\^+\s*$|\s*$"
    r"|Worker proc |Process \w+:|\[shutdown\])"
)
_ASKED_TO_STOP: Final = re.compile(r"\[shutdown\] (?:API server|MPClient)")
_DUMP_CHARS: Final = 1500
"""Longer lines are dumps of a whole config, which hold every word there is."""


def _setting_mend(match: re.Match[str]) -> str:
    name, known = match[1], capabilities("vllm")
    hint = known.hint(name) or near(name, (setting.name for setting in known.settings))
    return hint or "Remove it from the arm's settings, or use a newer vLLM if it is a newer setting."


def _value_mend(match: re.Match[str]) -> str:
    setting = capabilities("vllm").setting(match[1])
    return setting.hint if setting and setting.hint else "Use one of those values."


def _method_mend(match: re.Match[str]) -> str:
    known = capabilities("vllm")
    return near(match[1], known.usable) or f"Use one of: {', '.join(known.usable)}."


def _flag_mend(match: re.Match[str]) -> str:
    if re.search(r"--(?:speculative-(?!config)|num-speculative|ngram-prompt|spec-decoding)", match[1]):
        return "Such flags were removed in vLLM 0.8.3: describe the arm under `arms`."
    return "Correct or remove it in engine.args; `vllm serve --help=all` lists the flags of your version."


_F = FailureClass

TABLE: Final[tuple[Row, ...]] = (
    _row(
        r"PackageNotFoundError: No package metadata was found for vllm",
        _F.ENGINE_MISSING,
        "The vllm command of this build does not start: it looks for a package called vllm.",
        "Use the module: engine.command: [PYTHON, -m, vllm.entrypoints.openai.api_server].",
    ),
    _row(
        r"No module named '?vllm\b",
        _F.ENGINE_MISSING,
        "The Python of engine.command has no vLLM.",
        "Correct engine.command, or install vLLM there (`specbench doctor CONFIG` checks it).",
    ),
    _row(
        r"error: argument (--speculative-config)\S*: Value .* cannot be converted",
        _F.BAD_SPECULATION,
        "The value of {1} is not JSON.",
        "Describe speculation under `arms`; specbench writes the JSON.",
    ),
    _row(
        r"error: unrecognized arguments: (.+)",
        _F.BAD_ARGUMENT,
        "vLLM does not know {1}.",
        _flag_mend,
    ),
    _row(
        r": error: (argument .+|the following arguments .+|.+)$",
        _F.BAD_ARGUMENT,
        "vLLM refused its command line: {1}.",
        "Correct the flag in engine.args or the arm's args.",
    ),
    _row(
        r"for SpeculativeConfig\n(\w+)\n\s+Unexpected keyword argument",
        _F.BAD_SPECULATION,
        "vLLM has no speculative setting {1!r}.",
        _setting_mend,
    ),
    _row(
        r"for SpeculativeConfig\nmethod\n\s+Input should be .*input_value='(\w+)'",
        _F.UNSUPPORTED_METHOD,
        "vLLM has no speculative method {1!r}.",
        _method_mend,
    ),
    _row(
        r"for SpeculativeConfig\nnum_speculative_tokens\n\s+(.+?) \[",
        _F.BAD_SPECULATION,
        "vLLM refused K: {1}.",
        "Give the arm a k of at least 1.",
    ),
    _row(
        r"for SpeculativeConfig\n(\w+)\n\s+Input should be (.+?) \[type=literal_error",
        _F.BAD_SPECULATION,
        "vLLM does not take that value of {1}: it should be {2}.",
        _value_mend,
    ),
    _row(
        r"speculative_draft_tensor_parallel_size=(\d+) cannot be other value than 1",
        _F.BAD_SPECULATION,
        "draft_tensor_parallel_size {1} is neither 1 nor the target's.",
        "Use one of them, or leave it out.",
    ),
    _row(
        r"speculative_max_model_len=(\d+) cannot be larger than (draft|target)_max_model_len=(\d+)",
        _F.BAD_SPECULATION,
        "The arm's max_model_len {1} is more than the {2}'s {3} positions.",
        "Use at most {3}, or leave it out.",
    ),
    _row(
        r"for SpeculativeConfig\n\s+Value error, User-specified max_model_len \((\d+)\) is greater than the "
        r"derived max_model_len \(\w+=(\d+)",
        _F.BAD_SPECULATION,
        "The arm's max_model_len {1} is more than the draft's {2} positions.",
        "Use at most {2}, or leave it out.",
    ),
    _row(
        r"Unknown quantization method: ([\w-]+)",
        _F.BAD_ARGUMENT,
        "This vLLM has no quantisation {1!r} on this device.",
        "Correct `quantization`, or leave it out: a quantised checkpoint says itself what it is.",
    ),
    _row(
        r"Cannot find the config file for ([\w-]+)",
        _F.BAD_ARGUMENT,
        "A model is to be read as {1}, and its checkpoint is not quantised that way.",
        "Take `quantization` out of the arm's settings and engine.args, or use a checkpoint of that kind.",
    ),
    _row(
        r"_C::(?:static|dynamic)\w*_scaled_fp8_quant\(\) expected at most 0 argument",
        _F.UNSUPPORTED_METHOD,
        "This vLLM build cannot quantise to fp8.",
        "Use a GPU, or a checkpoint of another kind (int8 of compressed-tensors runs on CPUs).",
    ),
    _row(
        r"For parallel drafting, the draft model config must have",
        _F.BAD_SPECULATION,
        "This draft was not trained for parallel drafting: its config.json names no token for it.",
        "Take parallel_drafting out, or use a draft made for it (PARD, P-EAGLE).",
    ),
    _row(
        r"[Cc]ustom logits processors are not supported when speculative",
        _F.BAD_ARGUMENT,
        "vLLM does not start with custom logits processors and speculation.",
        "Remove logits-processors from engine.args.",
    ),
    _row(
        r"must be divisible by n_predict=(\d+)",
        _F.BAD_SPECULATION,
        "The checkpoint has {1} draft layers, and K is no multiple of them.",
        "Use a multiple of {1}.",
    ),
    _row(
        r"Value error, (synthetic_acceptance_\w+ must [^\n]*?|use_heterogeneous_vocab \w+ [^\n]*?"
        r"|rejection_sample_method='synthetic' requires [^\n]*?|synthetic_acceptance_rates / [^\n]*?"
        r"|--per-request-spec-decode-metrics requires [^\n]*?|\w+ is only supported (?:by|with) [^\n]*?)"
        r"\.?(?: \[type=|$)",
        _F.BAD_SPECULATION,
        "vLLM refused the arm: {1}.",
        "Correct that setting; `specbench plan CONFIG` checks it before a launch.",
    ),
    _row(
        r"Target model vocab_size=(\d+)\. Draft model vocab_size=(\d+)",
        _F.VOCABULARY,
        "The draft has {2} tokens in its vocabulary, the target {1}.",
        "Use a draft of the target's family, or set use_heterogeneous_vocab: true for this arm.",
    ),
    _row(
        r"Arctic Inference is required.*?(arctic-inference[=<>.\d]*)",
        _F.MISSING_PACKAGE,
        "The suffix method needs the package arctic-inference in the engine's environment.",
        "Install it there: pip install {1}. It is compiled; docs/engines.md says with what.",
    ),
    _row(
        r"custom_class_proposer[\s\S]*?No module named '([\w.]+)'",
        _F.BAD_SPECULATION,
        "The module {1} of the proposer class cannot be imported by the engine.",
        "Correct the arm's draft (package.module.Class), or put its folder in the arm's env PYTHONPATH.",
    ),
    _row(
        r"drafter\.load_model[\s\S]*?'(\w+)' object has no attribute 'load_model'",
        _F.BAD_SPECULATION,
        "The proposer class {1} has no load_model, which vLLM calls on CPUs.",
        "Add `def load_model(self, model): pass` to the class.",
    ),
    _row(
        r"_ngram_pinned|NgramProposerGPU[\s\S]*?pin(?:ned)?.memory",
        _F.UNSUPPORTED_METHOD,
        "ngram_gpu needs a GPU.",
        "Use ngram.",
    ),
    _row(
        r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'",
        _F.MISSING_PACKAGE,
        "The engine's environment lacks the Python package {1}.",
        "Install it there, or correct engine.command to the right environment's Python.",
    ),
    _row(
        r"Unsupported speculative method: 'mlp_speculator'",
        _F.UNSUPPORTED_METHOD,
        "vLLM kept the name mlp_speculator and cannot run it any more.",
        "Use another method.",
    ),
    _row(
        r"Unsupported speculative method: '(\w+)'",
        _F.UNSUPPORTED_METHOD,
        "This target cannot do {1}: its checkpoint has no such draft layers.",
        "Use a target with them, or another method.",
    ),
    _row(
        r"Model Runner (V\d) does not support: (.+?)(?: \[type=|$)",
        _F.UNSUPPORTED_METHOD,
        "vLLM's model runner {1}, which is used here, has no {2}.",
        "Use another method, or an environment where the other runner works (it needs Triton).",
    ),
    _row(
        r"Synthetic acceptance not supported with CPU sampling",
        _F.UNSUPPORTED_METHOD,
        "Synthetic acceptance does not work on this CPU build.",
        "Use rejection_sample_method: standard, or a GPU.",
    ),
    _row(
        r"assert num_speculative_tokens == self\.num_speculative_tokens",
        _F.BAD_SPECULATION,
        "num_speculative_tokens_per_batch_size asked for another K than the arm's, and the drafter has only that.",
        "Remove the schedule: suffix, medusa and ngram_gpu always draft K tokens.",
    ),
    _row(
        r"(?:The first batch-size range must start at 1|batch-size range)[^\n]*",
        _F.BAD_SPECULATION,
        "vLLM refused num_speculative_tokens_per_batch_size: {0}",
        "Write ranges [from, to, K] that start at 1 and do not overlap.",
    ),
    _row(
        r"drafter\.load_model[\s\S]*?(?:There is no module or parameter named|Duplicate layer name|"
        r"size mismatch|shape mismatch)",
        _F.BAD_SPECULATION,
        "The draft's weights do not fit this method.",
        "Check that the draft was made for this method and target (an EAGLE head is no draft model).",
    ),
    _row(
        r"drafter\.load_model[\s\S]*?weights were not initialized from checkpoint: \{'token_map'\}",
        _F.BAD_SPECULATION,
        "This vLLM does not load Medusa heads with a vocabulary of their own (token_map).",
        "Use heads of the whole vocabulary (no truncated_vocab_size), or another vLLM version.",
    ),
    _row(
        r"drafter\.load_model[\s\S]*?weights were not initialized from checkpoint: \{([^}]*)\}",
        _F.BAD_SPECULATION,
        "The draft's checkpoint lacks weights: {1}.",
        "Check that the draft is whole and was made for this method; Medusa needs at least K heads.",
    ),
    _row(
        r"(?:GatedRepoError|gated repo|awaiting a review|401 Client Error)",
        _F.MODEL_NOT_FOUND,
        "The hub does not give this model without a login.",
        "Accept its licence on the hub, log in with `hf auth login`, or set HF_TOKEN in engine.env.",
    ),
    _row(
        r"Repo id must use alphanumeric chars[^\n]*: '([^'\n]+)'",
        _F.MODEL_NOT_FOUND,
        "The model {1} is neither a folder here nor a name on the hub.",
        "Correct the path; paths start with ./ ../ / or ~.",
    ),
    _row(
        r"(?:Invalid repository ID or local directory specified: '([^'\n]+)')",
        _F.MODEL_NOT_FOUND,
        "The model {1} is neither a folder with a config.json nor a name on the hub.",
        "Correct the path or the name.",
    ),
    _row(
        r"LocalEntryNotFoundError|Cannot find an appropriate cached snapshot|couldn't connect to 'https?://[^']*hub",
        _F.MODEL_NOT_FOUND,
        "The model is not in the hub's cache here, and the hub is not asked (offline).",
        "Download it first, or take HF_HUB_OFFLINE out of the environment.",
    ),
    _row(
        r"RepositoryNotFoundError|RevisionNotFoundError|is not a valid model identifier|404 Client Error",
        _F.MODEL_NOT_FOUND,
        "The hub has no such model or revision.",
        "Correct target.model, target.revision or the arm's draft.",
    ),
    _row(
        r"max_model_len \((\d+)\) is greater than the derived max_model_len \(\w+=(\d+)",
        _F.CONTEXT_TOO_LONG,
        "max-model-len {1} is more than the model's {2} positions.",
        "Lower max-model-len in engine.args.",
    ),
    _row(
        r"max seq len \((\d+)\).*?estimated maximum model length is (\d+)",
        _F.KV_TOO_SMALL,
        "The KV memory does not hold one request of {1} tokens (at most {2}).",
        "Lower max-model-len in engine.args, or give more memory (gpu-memory-utilization, "
        "kv-cache-memory-bytes) to all arms.",
    ),
    _row(
        r"No available memory for the cache blocks",
        _F.KV_TOO_SMALL,
        "No memory is left for the KV cache once the models are loaded.",
        "Raise gpu-memory-utilization or kv-cache-memory-bytes in engine.args, or use a smaller draft.",
    ),
    _row(
        r"(?:Free|Available) memory on (?:device|node) [^\n]*? is less than desired",
        _F.OUT_OF_MEMORY,
        "Less memory is free than the engine was told to take.",
        "Stop what else uses the device (`specbench doctor` shows leftovers), "
        "or lower gpu-memory-utilization.",
    ),
    _row(
        r"OutOfMemoryError|out of memory|not enough GPU memory|can't allocate memory|Cannot allocate memory"
        r"|^MemoryError",
        _F.OUT_OF_MEMORY,
        "The engine ran out of memory.",
        "Lower gpu-memory-utilization, max-num-seqs or max-num-batched-tokens in engine.args for all arms.",
    ),
    _row(
        r"Address already in use",
        _F.PORT_IN_USE,
        "Another process has the engine's port.",
        "Run again: every launch gets a free port.",
    ),
    _row(
        r"does not have enough slots to schedule a token"
        r"|max_num_batched_tokens \(?\d+\)? (?:is smaller|must be)",
        _F.BAD_ARGUMENT,
        "max-num-batched-tokens leaves no room for the draft tokens.",
        "Raise max-num-batched-tokens in engine.args, for all arms alike.",
    ),
    _row(
        r"contains custom code which must be executed|requires you to execute|set `?trust_remote_code=True",
        _F.BAD_ARGUMENT,
        "The model brings its own code, which vLLM does not run unasked.",
        "If you trust it, set trust-remote-code: true in engine.args.",
    ),
    _row(
        r"Model architectures \['(\w+)Eagle'\] are not supported",
        _F.BAD_SPECULATION,
        "vLLM does not know the head's architecture {1}Eagle.",
        "It is an EAGLE head in SGLang's naming: for vLLM its config.json must name {1}.",
    ),
    _row(
        r"Model architectures (\[[^\]]*\]) (?:are not supported|failed to be inspected)",
        _F.BAD_ARGUMENT,
        "This vLLM cannot serve {1}.",
        "Use a model that your vLLM version lists as supported.",
    ),
    _row(
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver",
        _F.ENGINE_MISSING,
        "This vLLM build finds no device to run on.",
        "Use the build for your hardware (`specbench doctor` shows the devices).",
    ),
    _row(
        r"No space left on device",
        _F.ENGINE_DIED,
        "A disk is full.",
        "Free space for the model cache, /dev/shm and the run directory.",
    ),
    _row(
        r"CPU Generator does not use offset",
        _F.ENGINE_DIED,
        "A request with its own seed and temperature above 0 killed the engine: a vLLM bug on CPUs.",
        "Send no per-request seed, or use temperature 0.",
    ),
)

_WORKER_GONE: Final = re.compile(r"died unexpectedly|WorkerProc initialization failed")
_FATAL: Final = re.compile(r"EngineCore encountered|EngineDeadError|EngineCore failed|died unexpectedly")


def explain_vllm(log: str, returncode: int | None) -> Failure:
    """The failure behind a log; never raises, whatever the log holds."""
    stop = _ASKED_TO_STOP.search(log)
    text = log[: stop.start()] if stop else log
    start = _TROUBLE.search(text)
    lines = [_PREFIX.sub("", line) for line in text[start.start() :].splitlines()] if start else []
    lines = [line for line in lines if len(line) <= _DUMP_CHARS or _MESSAGE.match(line)]
    trouble = "\n".join(lines)
    first, end = _cause_span(lines)
    cause = tuple(line.rstrip()[:MAX_LINE_CHARS] for line in lines[first:end])
    # What led to the cause explains it better than what came of it.
    known = find(TABLE, ("\n".join(lines[:end]), trouble), cause)
    if known is not None:
        return known
    if cause:
        kind = _F.ENGINE_DIED if _FATAL.search(trouble) else _F.UNKNOWN
        return Failure(
            kind, f"The engine ended with {cause[0]}", "Read the engine's log around these lines.", cause
        )
    if returncode == -9 or _WORKER_GONE.search(trouble):
        who = "The engine" if returncode == -9 else "A worker process of the engine"
        gone = tuple(line[:MAX_LINE_CHARS] for line in lines if _WORKER_GONE.search(line))
        return Failure(
            _F.KILLED,
            f"{who} was killed from outside, without an error of its own.",
            "Usually the kernel ran out of memory (see `dmesg`): use a smaller model, KV memory or batch.",
            gone or tail(text),
        )
    if returncode is not None and -returncode in CRASHES:
        name, mend = CRASHES[-returncode]
        return Failure(_F.ENGINE_DIED, f"The engine crashed with {name}.", mend, tail(text))
    code = "an unknown exit code" if returncode is None else f"exit code {returncode}"
    return Failure(
        _F.ENGINE_DIED if returncode is None or returncode <= 0 else _F.UNKNOWN,
        f"The engine ended with {code} and gave no reason.",
        "Read the engine's log; try the printed command by hand.",
        tail(log),
    )


def _cause_span(lines: list[str]) -> tuple[int, int]:
    """Where the first exception is that is not a mere consequence of another one; (0, 0) if nowhere."""
    for first, line in enumerate(lines):
        if _EXCEPTION.match(line) and not _GENERIC.search(line):
            end = first + 1
            while end < min(len(lines), first + MAX_LINES) and not (
                _END_OF_MESSAGE.match(lines[end]) or _EXCEPTION.match(lines[end])
            ):
                end += 1
            return first, end
    return 0, 0
