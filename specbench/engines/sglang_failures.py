"""From the log of an SGLang launch that failed to the reason and the mend.

What the main process refuses ends in its own traceback with exit code 1, or in a usage message with code 2.
When a scheduler fails it prints its traceback and the main process is killed by its own family a few seconds
later: the root cause is the last exception before the first word of that, and the exit code says nothing.
"""

from __future__ import annotations

import re
from typing import Final

from specbench.engines.base import Failure, FailureClass
from specbench.engines.capabilities import capabilities
from specbench.engines.failure_table import CRASHES, MAX_LINE_CHARS, Row, find, row, tail
from specbench.engines.sglang_speculation import setting_name

MAX_LINES: Final = 12
_DUMP_CHARS: Final = 1500
"""Longer lines are dumps of all arguments, which hold every word there is."""

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX: Final = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z]+\d+)*\] ?")
_TROUBLE: Final = re.compile(
    r"Traceback \(most recent call last\)|^\S+(?: \S+)?: error: "
    r"|^\S+: (?:No module|Error while finding module)|watchdog timeout|address already in use"
    r"|Scheduler hit an exception|Initialization failed\. warmup error"
)
_EXCEPTION: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|NotFound)(?:: .*|$)"
    r"|^Exception: .*|^\S+(?: \S+)?: error: .*"
)
_CONSEQUENCE: Final = re.compile(
    r"Received sigquit from a child process|SIGQUIT received"
    r"|Rank \d+ scheduler (?:died|is dead)|Subprocess \S+ .*(?:crashed|died)"
)
_GENERIC: Final = re.compile(
    r"^(?:Exception: )?(?:EOFError|BrokenPipeError|asyncio\.\S*CancelledError|KeyboardInterrupt)"
    r"|scheduler died during initialization|^SystemExit"
)
_END_OF_MESSAGE: Final = re.compile(
    r"^(?:Traceback|During handling|The above exception|  File |\s*\^+\s*$|\s*$|\[rank\d+\])"
)
_ASKED_TO_STOP: Final = re.compile(r"SIGTERM received")
_KNOWN: Final = capabilities("sglang")
"""The newest version: a log seldom says which one wrote it."""

_F = FailureClass


def _flag_mend(match: re.Match[str]) -> str:
    for word in match[1].split():
        flag = word.lstrip("-").partition("=")[0]
        hint = _KNOWN.hint(setting_name(flag)) or next(
            (f.hint for f in _KNOWN.table.flags if f.name == flag and f.span.until), ""
        )
        if word.startswith("--") and hint:
            return f"This flag was removed from SGLang: {hint}."
    return (
        "Correct or remove it; `python -m sglang.launch_server --help` lists the flags of your version, "
        "which renames some between releases."
    )


def _unknown_method(match: re.Match[str]) -> str:
    if any(row.name == match[1].lower() for row in _KNOWN.table.never):
        return f"{match[1]} does not exist in SGLang."
    return f"SGLang has no speculative algorithm {match[1]!r}."


TABLE: Final[tuple[Row, ...]] = (
    row(
        r"No module named '?sglang(?:\.launch_server)?'?\)?$",
        _F.ENGINE_MISSING,
        "The Python of engine.command has no SGLang.",
        "Correct engine.command, or install SGLang there (`specbench doctor CONFIG` checks it).",
    ),
    row(
        r"error: unrecognized arguments: (.+)",
        _F.BAD_ARGUMENT,
        "SGLang does not know {1}.",
        _flag_mend,
    ),
    row(
        r"error: argument (--(?:speculative|uno|decoupled)\S*): (.+)",
        _F.BAD_SPECULATION,
        "SGLang refused {1}: {2}.",
        "Correct this setting of the arm.",
    ),
    row(
        r": error: (.+)$",
        _F.BAD_ARGUMENT,
        "SGLang refused its command line: {1}.",
        "Correct the flag in engine.args or the arm's args.",
    ),
    row(
        r"Unknown speculative algorithm name: (\w+)",
        _F.UNSUPPORTED_METHOD,
        _unknown_method,
        f"Use one of: {', '.join(_KNOWN.usable)}.",
    ),
    row(
        r"(?:ValueError: )?(\w+) only supports (CUDA[^\n]*?)\.",
        _F.UNSUPPORTED_METHOD,
        "{1} runs on {2} only.",
        "Use another method on this device.",
    ),
    row(
        r"(\w+) speculative decoding (?:is not supported by|only supports) ([^\n]*?)\.?$",
        _F.UNSUPPORTED_METHOD,
        "{1} does not run here: {0}",
        "Use another method, or the device or setting that it asks for.",
    ),
    row(
        r"(\w+) is not supported in decode attention backend (\w+)",
        _F.UNSUPPORTED_METHOD,
        "The attention backend {2} cannot do {1}.",
        "Set another attention-backend in engine.args, for all arms.",
    ),
    row(
        r"(\w+) speculative decoding requires setting --speculative-draft-model-path",
        _F.BAD_SPECULATION,
        "{1} needs a draft model.",
        "Add `draft:` to the arm.",
    ),
    row(
        r"target vocab_size=(\d+) and draft vocab_size=(\d+)",
        _F.VOCABULARY,
        "The draft has {2} tokens in its vocabulary, the target {1}.",
        "Use a draft of the target's family.",
    ),
    row(
        r"two tokenizers have different token-to-id mappings",
        _F.VOCABULARY,
        "The tokenizers of draft and target give different ids to the same tokens.",
        "Use a draft of the target's family.",
    ),
    row(
        r"--speculative-num-steps=(\d+) is not in the adaptive config candidate_steps (\[[^\]]*\])",
        _F.BAD_SPECULATION,
        "Adaptive speculation cannot start from {1} steps.",
        "Use a k of {2}, or an adaptive_config with it.",
    ),
    row(
        r"(?:Target model's) context_length \((\d+)\) is greater than the derived context_length \((\d+)\)",
        _F.CONTEXT_TOO_LONG,
        "The draft reads {2} tokens, the target's context is {1}.",
        "Set context-length in engine.args to at most {2}.",
    ),
    row(
        r"context_length \((\d+)\) is greater than the derived context_length \((\d+)\)",
        _F.CONTEXT_TOO_LONG,
        "context-length {1} is more than the model's {2} positions.",
        "Lower context-length in engine.args.",
    ),
    row(
        r"speculative_hook\.py[\s\S]*?\nAssertionError",
        _F.BAD_SPECULATION,
        "num_steps, eagle_topk and num_draft_tokens must be given together, or not at all.",
        "Give the arm a k, or all three as settings.",
    ),
    row(
        r"(?:speculative_hook|adaptive_spec_params)\.py[\s\S]*?\n"
        r"(?:ValueError|NotImplementedError): ([^\n]+)",
        _F.BAD_SPECULATION,
        "SGLang refused the arm's speculation: {1}",
        "Correct the arm's settings.",
    ),
    row(
        r"in (?:init_lm_head|set_embed_and_head|set_embed|init_token_map|load_draft_model)\b[\s\S]*?\n"
        r"(?:AttributeError|RuntimeError|ValueError|AssertionError|KeyError|TypeError)\b",
        _F.BAD_SPECULATION,
        "The draft's weights do not fit this method.",
        "Check that the draft was made for this method and target (an EAGLE head is no draft model).",
    ),
    row(
        r"GatedRepoError|gated repo|awaiting a review|401 Client Error",
        _F.MODEL_NOT_FOUND,
        "The hub does not give this model without a login.",
        "Accept its licence on the hub, log in with `hf auth login`, or set HF_TOKEN in engine.env.",
    ),
    row(
        r"Repo id must (?:use alphanumeric chars|be in the form)[^\n]*: '([^'\n]+)'",
        _F.MODEL_NOT_FOUND,
        "The model {1} is neither a folder here nor a name on the hub.",
        "Correct the path; paths start with ./ ../ / or ~.",
    ),
    row(
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|Cannot find an appropriate cached snapshot"
        r"|couldn't connect to 'https?://[^']*'",
        _F.MODEL_NOT_FOUND,
        "The model is not in the hub's cache here, and the hub is not asked (offline).",
        "Download it first, or take HF_HUB_OFFLINE out of the environment.",
    ),
    row(
        r"RepositoryNotFoundError|RevisionNotFoundError|is not a valid model identifier|404 Client Error",
        _F.MODEL_NOT_FOUND,
        "The hub has no such model or revision.",
        "Correct target.model, target.revision or the arm's draft.",
    ),
    row(
        r"leave no GPU memory for the KV cache under --mem-fraction-static=([\d.]+\d)\."
        r" Raise --mem-fraction-static above ([\d.]+\d)",
        _F.KV_TOO_SMALL,
        "The models leave no memory for the KV cache with mem-fraction-static {1}.",
        "Set mem-fraction-static above {2} in engine.args for all arms, or use a smaller draft.",
    ),
    row(
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        _F.KV_TOO_SMALL,
        "No memory is left for the KV cache once the models are loaded.",
        "Raise mem-fraction-static in engine.args for all arms, or use a smaller draft.",
    ),
    row(
        r"(Prefill|Decode) out of memory|alloc_req_slots runs out of memory",
        _F.KV_TOO_SMALL,
        "The KV memory ran out while serving.",
        "Lower max-running-requests or raise mem-fraction-static in engine.args, for all arms.",
    ),
    row(
        r"OutOfMemoryError|out of memory|can't allocate memory|Cannot allocate memory|^MemoryError",
        _F.OUT_OF_MEMORY,
        "The engine ran out of memory.",
        "Lower mem-fraction-static (graphs and buffers need what it leaves), or max-running-requests, in "
        "engine.args for all arms.",
    ),
    row(
        r"at \d+ is not available in \d+ seconds|is used by a process already|[Aa]ddress already in use",
        _F.PORT_IN_USE,
        "Another process has the engine's port.",
        "Run again: every launch gets a free port.",
    ),
    row(
        r"contains custom code which must be executed|requires you to execute|set `?trust_remote_code=True",
        _F.BAD_ARGUMENT,
        "The model brings its own code, which SGLang does not run unasked.",
        "If you trust it, set trust-remote-code: true in engine.args.",
    ),
    row(
        r"Model architectures? (\S+) (?:are|is) not supported|Unsupported architectures: ([^\n]+)",
        _F.BAD_ARGUMENT,
        "This SGLang cannot serve {1}.",
        "Use a model that your SGLang version lists as supported.",
    ),
    row(
        r"(\S+) with minimum required version (\S+) is not installed",
        _F.MISSING_PACKAGE,
        "SGLang needs {1} {2} or later for these settings.",
        "Install it in the engine's environment, or set another attention-backend in engine.args.",
    ),
    row(
        r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'",
        _F.MISSING_PACKAGE,
        "The engine's environment lacks the Python package {1}.",
        "Install it there, or correct engine.command to the right environment's Python.",
    ),
    row(
        r"No accelerator[^\n]*|No CUDA GPUs are available|no NVIDIA driver|libcuda\.so\.1: cannot open",
        _F.ENGINE_MISSING,
        "This SGLang finds no device to run on.",
        "Run it where its GPU is (`specbench doctor` shows the devices), or set `device` in engine.args.",
    ),
    row(
        r"watchdog timeout \(self\.watchdog_timeout=([\d.]+)",
        _F.ENGINE_DIED,
        "A step hung for {1} s and SGLang's watchdog ended the server.",
        "Known of some speculative kernels: try another attention backend, K or version, and report it.",
    ),
    row(
        r"[Ii]llegal memory access",
        _F.ENGINE_DIED,
        "A GPU kernel accessed memory that it must not.",
        "Known of long speculative runs: try another attention backend or version, and report it.",
    ),
    row(
        r"Initialization failed\. warmup error",
        _F.ENGINE_DIED,
        "The server came up but could not answer its own warm-up request.",
        "Read the engine's log above this line; try the printed command by hand.",
    ),
    row(
        r"No space left on device",
        _F.ENGINE_DIED,
        "A disk is full.",
        "Free space for the model cache, /dev/shm and the run directory.",
    ),
)

_EXIT_CODE: Final = re.compile(r"exit code:? (-\d+)")
"""How a child ended, in the words of the process that watched it."""


def explain_sglang(log: str, returncode: int | None) -> Failure:
    """The failure behind a log; never raises, whatever the log holds."""
    stop = _ASKED_TO_STOP.search(log)
    text = _ANSI.sub("", log[: stop.start()] if stop else log)
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    end = next((i for i, line in enumerate(lines) if _CONSEQUENCE.search(line)), len(lines))
    start = next((i for i, line in enumerate(lines) if _TROUBLE.search(line)), len(lines))
    trouble = [x for x in lines[start:end] if len(x) <= _DUMP_CHARS or _EXCEPTION.match(x)]
    cause = _cause(trouble)
    found = find(TABLE, (_message(trouble), "\n".join(trouble)), cause)
    if found is not None:
        return found
    if cause:
        kind = _F.ENGINE_DIED if end < len(lines) else _F.UNKNOWN
        return Failure(
            kind, f"The engine ended with {cause[0]}", "Read the engine's log around these lines.", cause
        )
    if end < len(lines):
        return _child_ended(lines[end:])
    if returncode == -9:
        return _killed("The engine", tail(text))
    if returncode is not None and -returncode in CRASHES:
        name, mend = CRASHES[-returncode]
        return Failure(_F.ENGINE_DIED, f"The engine crashed with {name}.", mend, tail(text))
    code = "an unknown exit code" if returncode is None else f"exit code {returncode}"
    return Failure(
        _F.ENGINE_DIED if returncode is None or returncode <= 0 else _F.UNKNOWN,
        f"The engine ended with {code} and gave no reason.",
        "Read the engine's log; try the printed command by hand.",
        tail(_ANSI.sub("", log)),
    )


def _child_ended(rest: list[str]) -> Failure:
    """A process of the engine ended without an exception; ``rest`` begins where that was noticed."""
    shown = tuple(line[:MAX_LINE_CHARS] for line in rest if _CONSEQUENCE.search(line))[:MAX_LINES]
    ended = next((m for line in rest if (m := _EXIT_CODE.search(line))), None)
    crash = CRASHES.get(-int(ended[1])) if ended else None
    if crash is not None:
        name, mend = crash
        return Failure(_F.ENGINE_DIED, f"A process of the engine crashed with {name}.", mend, shown)
    return _killed("A process of the engine", shown)


def _killed(who: str, shown: tuple[str, ...]) -> Failure:
    return Failure(
        _F.KILLED,
        f"{who} was killed from outside, without an error of its own.",
        "Usually the kernel ran out of memory (see `dmesg`): use a smaller model, KV memory or batch.",
        shown,
    )


def _cause(lines: list[str]) -> tuple[str, ...]:
    """The last exception that is not a mere consequence of another one, with what it says."""
    for first in range(len(lines) - 1, -1, -1):
        if _EXCEPTION.match(lines[first]) and not _GENERIC.search(lines[first]):
            end = first + 1
            while end < min(len(lines), first + MAX_LINES) and not (
                _END_OF_MESSAGE.match(lines[end]) or _EXCEPTION.match(lines[end])
            ):
                end += 1
            return tuple(line.rstrip()[:MAX_LINE_CHARS] for line in lines[first:end])
    return ()


def _message(lines: list[str]) -> str:
    """Every exception line, which says more than the code lines of a traceback do."""
    return "\n".join(line for line in lines if _EXCEPTION.match(line))
