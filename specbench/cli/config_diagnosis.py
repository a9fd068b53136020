"""Whether a config can run on this machine, as far as that shows without starting an engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from specbench.cli.diagnosis import Check, Level, sglang_version_check, vllm_version_check
from specbench.cli.errors import CliError
from specbench.cli.preview import Preview, make_preview
from specbench.config.source import ConfigError, LoadedConfig, load_config
from specbench.engines.base import EngineMissing
from specbench.engines.checkpoint import read_checkpoint
from specbench.engines.flags import normal_name
from specbench.engines.registry import make_engine
from specbench.observe.client import OpenFileLimitError, require_open_files, require_ports
from specbench.observe.host import GIB, nvidia_gpus
from specbench.observe.processors import ProcessorError, format_cpus, require_cpus
from specbench.workloads.context import context_limit

if TYPE_CHECKING:
    from specbench.config.model import Config
    from specbench.workloads.request import Request

CHARS_PER_TOKEN: Final = 4.0
"""Of English text, for a first guess at prompt lengths without a tokenizer."""

RUNTIME_BYTES: Final = 1 * GIB
"""What an engine takes beside weights and KV memory, at the least."""


def examine_config(path: Path) -> list[Check]:
    """Everything that is wrong with a config here, or one check that all is well."""
    try:
        loaded = load_config(path, check_paths=False)
    except ConfigError as error:
        return [_fail("config", problem) for problem in error.problems]
    checks = [_fail("config", line) for line in loaded.missing]
    checks += _engines(loaded)
    try:
        preview = make_preview(loaded)
    except CliError as error:
        return [*checks, _fail("config", str(error))]
    missing = set(loaded.missing)
    for finding in preview.findings:
        message = f"{finding.place}: {finding.key}: {finding.message}"
        if any(line.startswith(message) for line in missing):
            continue  # said already, as a failure
        level = Level.FAIL if finding.fatal else Level.WARN
        checks.append(Check("config", level, message, finding.mend))
    checks += _resources(preview)
    if not any(check.area == "config" and check.level is not Level.OK for check in checks):
        arms, loads = len(preview.arms), len(preview.plan.loads)
        checks.insert(0, Check("config", Level.OK, f"{path} is valid: {arms} arms, {loads} loads"))
    return checks


def _fail(area: str, text: str) -> Check:
    """A failure from one line of ``place: what: mend``."""
    message, colon, mend = text.rpartition(": ")
    whole = colon and mend.count("(") == mend.count(")")
    return Check(area, Level.FAIL, message, mend) if whole else Check(area, Level.FAIL, text, "correct it")


def _engines(loaded: LoadedConfig) -> Iterator[Check]:
    for name in ("", *loaded.config.other_engines):
        yield from _engine(loaded, name)


def _engine(loaded: LoadedConfig, name: str) -> Iterator[Check]:
    config, section = loaded.config, loaded.config.engine_named(name)
    where = f"behind other_engines.{name}.command" if name else "behind engine.command"
    try:
        engine = make_engine(config.target, section)
        version = engine.version()
    except EngineMissing as error:
        message, _, mend = loaded.redact(str(error)).partition(". ")
        yield Check("engine", Level.FAIL, message, mend or "correct engine.command")
    except ValueError:
        return  # an unknown kind: told with its place by the preview
    else:
        if section.kind == "vllm" and version != "unknown":
            yield vllm_version_check(version, where)
        elif section.kind == "sglang" and version != "unknown":
            yield sglang_version_check(version, where)
        else:
            yield Check("engine", Level.OK, f"{section.kind} {version}")


def _resources(preview: Preview) -> Iterator[Check]:
    config = preview.loaded.config
    if config.engine.kind != "simulated":
        yield from _memory(config)
    most = max((x.concurrency for x in preview.plan.loads if x.kind == "closed"), default=1)
    try:
        require_open_files(most)
        require_ports(most)
        yield Check("files", Level.OK, f"enough open files for {most} requests in flight")
    except OpenFileLimitError as error:
        yield _fail("files", str(error))
    yield from _client_cpus(config)
    yield from _context(preview)


def _client_cpus(config: Config) -> Iterator[Check]:
    if config.measure.client_cpus is None:
        return
    try:
        cpus = require_cpus(config.measure.client_cpus)
    except ProcessorError as error:
        yield Check("client", Level.FAIL, f"measure.client_cpus: {error}", "name others, or remove the key")
    else:
        yield Check("client", Level.OK, f"the client runs on the processors {format_cpus(cpus)}")


def _memory(config: Config) -> Iterator[Check]:
    """Weights and KV memory against what there is; only for local model folders."""
    model = read_checkpoint(config.target.model)
    if model is None:
        return
    drafts = {
        d for arm in config.arms for d in ([arm.draft] if isinstance(arm.draft, str) else arm.draft or [])
    }
    sizes = [found.weight_bytes for draft in drafts if (found := read_checkpoint(draft)) is not None]
    weights = model.weight_bytes + max(sizes, default=0)
    args = {normal_name(name): value for name, value in config.engine.args.items()}
    kv = args.get("kv-cache-memory-bytes")
    kv_bytes = kv if isinstance(kv, int) else 0
    gpus = nvidia_gpus()
    if gpus:
        ways = args.get("tensor-parallel-size", 1)
        used = gpus[: ways if isinstance(ways, int) else 1]
        room = sum(gpu.total_bytes - gpu.used_bytes for gpu in used)
        where = f"{len(used)} GPU(s)"
    else:
        room = psutil.virtual_memory().available
        kv_bytes += RUNTIME_BYTES
        where = "memory"
    needed = weights + kv_bytes
    text = f"weights and KV memory take about {needed / GIB:.1f} of {room / GIB:.1f} GiB of {where}"
    if needed > room:
        yield Check("memory", Level.FAIL, text, "use a smaller model or less KV memory, or free some")
    else:
        yield Check("memory", Level.OK, text)


def _context(preview: Preview) -> Iterator[Check]:
    """Whether the longest prompt with its answer fits, by a rough count of tokens."""
    config = preview.loaded.config
    model = read_checkpoint(config.target.model)
    limit = context_limit(config.engine.args) or (model.max_positions if model else None)
    requests = [request for mix in preview.mixes.values() for request in mix.measured]
    if limit is None or not requests:
        return
    longest = max(requests, key=_characters)
    k = max((arm.arm.k or 0 for arm in preview.arms), default=0)
    tokens = round(_characters(longest) / CHARS_PER_TOKEN) + longest.max_tokens + k
    text = f"the longest request ({longest.id}) takes about {tokens} of {limit} tokens"
    if tokens > limit:
        mend = "raise max-model-len, lower workload.max_output_tokens, or leave that request out"
        yield Check("context", Level.WARN, text, mend)
    else:
        yield Check("context", Level.OK, text)


def _characters(request: Request) -> int:
    if request.prompt is not None:
        return len(request.prompt)
    return sum(len(str(message.get("content", ""))) for message in request.messages or ())
