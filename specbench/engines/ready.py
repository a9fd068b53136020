"""Wait until an engine really serves: it is ours, it is healthy, it has our model, it answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp

from specbench.engines.base import Engine, Failure, FailureClass, LaunchSpec
from specbench.engines.ports import listener_pids
from specbench.engines.running import Running

POLL_S: Final = 0.1
TAIL_LINES: Final = 20
_STARTING: Final = "starting"
_PROBE_TIMEOUT_S: Final = 10.0
_REFUSED: Final = 0

Progress = Callable[[str, float], None]
"""Called with the name of a start-up phase and the seconds since the launch, when a new phase begins."""


@dataclass(frozen=True, slots=True)
class Ready:
    """How the start went.

    Attributes:
        startup_s: from the start of the process to the first answer.
        phases: each phase that was seen in the log and the second at which it began.
    """

    startup_s: float
    phases: tuple[tuple[str, float], ...]


class LaunchFailed(Exception):
    """An engine did not become ready; ``failure`` says why and what to do."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.summary} {failure.mend}")
        self.failure = failure


async def wait_ready(
    engine: Engine,
    spec: LaunchSpec,
    process: Running,
    session: aiohttp.ClientSession,
    timeout_s: float,
    on_progress: Progress | None = None,
) -> Ready:
    """Poll until the engine serves ``spec.served_model``.

    Raises:
        LaunchFailed: it died, another server has the port, or ``timeout_s`` passed. The process is not
            stopped here.
    """
    watch = _PhaseWatch(engine, process, on_progress)
    deadline = process.started_at + timeout_s
    owned = not spec.local
    while True:
        watch.update()
        _check_alive(engine, process)
        health = await _health(engine, spec, session)
        if health != _REFUSED:
            owned = owned or _check_owner(spec, process)
            try:
                if owned and health == 200:
                    await check_model(spec, session)
                    await send_canary(engine, spec, process, session, max(deadline - time.monotonic(), 1.0))
                    break
            except (aiohttp.ClientConnectionError, TimeoutError):
                pass  # it went away or is too busy to answer: the next pass looks at the process
        if time.monotonic() > deadline:
            raise LaunchFailed(_timed_out(process, timeout_s, watch.phase))
        await asyncio.sleep(POLL_S)
    watch.update()
    return Ready(startup_s=time.monotonic() - process.started_at, phases=tuple(watch.phases))


class _PhaseWatch:
    """Reads the log as it grows and names the phase that the start is in."""

    def __init__(self, engine: Engine, process: Running, on_progress: Progress | None) -> None:
        self._patterns = [(name, re.compile(pattern)) for name, pattern in engine.progress_patterns]
        self._process = process
        self._tell = on_progress
        self._offset = 0
        self.phases: list[tuple[str, float]] = []
        self._enter(_STARTING)

    @property
    def phase(self) -> str:
        return self.phases[-1][0]

    def update(self) -> None:
        text, self._offset = self._process.read_log(self._offset)
        for line in text.splitlines():
            for name, pattern in self._patterns:
                if pattern.search(line):
                    self._enter(name)
                    break

    def _enter(self, name: str) -> None:
        if all(name != seen for seen, _ in self.phases):
            elapsed_s = time.monotonic() - self._process.started_at
            self.phases.append((name, elapsed_s))
            if self._tell is not None:
                self._tell(name, elapsed_s)


def _check_alive(engine: Engine, process: Running) -> None:
    returncode = process.poll()
    if returncode is not None:
        raise LaunchFailed(engine.explain(process.log_text(), returncode))


def _check_owner(spec: LaunchSpec, process: Running) -> bool:
    """Whether our engine listens; false when nobody can be seen to.

    Raises:
        LaunchFailed: somebody else listens on the port.
    """
    ours = process.pids()
    if listener_pids(spec.port, ours):
        return True
    others = listener_pids(spec.port) - process.pids()
    if not others:
        return False
    raise LaunchFailed(
        Failure(
            kind=FailureClass.WRONG_SERVER,
            summary=f"Port {spec.port} is served by another process (pid {min(others)}), not by this engine.",
            mend="Stop that server, or run again: a free port is chosen for every launch.",
        )
    )


async def _health(engine: Engine, spec: LaunchSpec, session: aiohttp.ClientSession) -> int | None:
    """HTTP status of the health page; `_REFUSED` when nobody listens; null for one who speaks no HTTP."""
    try:
        async with session.get(
            spec.base_url + engine.health_path, timeout=aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
        ) as response:
            return response.status
    except aiohttp.ClientConnectorError:
        return _REFUSED
    except (aiohttp.ClientError, TimeoutError):
        return None


async def check_model(spec: LaunchSpec, session: aiohttp.ClientSession) -> None:
    """Ask the server for its models.

    Raises:
        LaunchFailed: it does not offer ``spec.served_model``.
    """
    names: list[str] = []
    async with session.get(
        spec.base_url + "/v1/models", timeout=aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
    ) as response:
        if response.status == 200:
            try:
                names = [str(model["id"]) for model in (await response.json(content_type=None))["data"]]
            except (ValueError, KeyError, TypeError):
                names = []
    if spec.served_model not in names:
        raise LaunchFailed(
            Failure(
                kind=FailureClass.WRONG_SERVER,
                summary=f"The server on port {spec.port} offers {', '.join(names) or 'no model'}, "
                f"not {spec.served_model}.",
                mend="Set engine.model (or the arm's `model`) to the name that the server uses."
                if spec.attached
                else "Stop the server that was started before; leave --served-model-name to specbench.",
            )
        )


async def send_canary(
    engine: Engine,
    spec: LaunchSpec,
    process: Running,
    session: aiohttp.ClientSession,
    timeout_s: float,
) -> None:
    """One tiny completion: an engine can be healthy and yet fail in its first step.

    Raises:
        LaunchFailed: the engine died or refused.
        aiohttp.ClientConnectionError, TimeoutError: there was no answer.
    """
    body = {"model": spec.served_model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
    try:
        async with session.post(
            spec.base_url + "/v1/completions", json=body, timeout=aiohttp.ClientTimeout(total=timeout_s)
        ) as response:
            status, text = response.status, await response.text()
            if status == 200 and "choices" in await response.json(content_type=None):
                return
    except (aiohttp.ClientPayloadError, ValueError) as error:
        status, text = 200, f"unreadable answer: {error}"
    # An engine that dies in its first step answers 500 and needs a few seconds to end.
    for _ in range(60 if status >= 500 else 0):
        _check_alive(engine, process)
        await asyncio.sleep(POLL_S)
    raise LaunchFailed(
        Failure(
            kind=FailureClass.REQUESTS_FAILED,
            summary=f"The engine is up but refused a one-token request with HTTP {status}: {text[:300]}",
            mend="Try the printed command by hand and send it a request.",
            log_lines=_tail(process),
        )
    )


def _timed_out(process: Running, timeout_s: float, phase: str) -> Failure:
    return Failure(
        kind=FailureClass.STARTUP_TIMEOUT,
        summary=f"The engine was not ready after {timeout_s:.0f} s; it was last seen {phase}.",
        mend="Raise engine.startup_timeout if the log shows progress; a model that is downloaded first "
        "can be fetched beforehand.",
        log_lines=_tail(process),
    )


def _tail(process: Running) -> tuple[str, ...]:
    lines = [line.rstrip() for line in process.log_text().splitlines() if line.strip()]
    return tuple(lines[-TAIL_LINES:])
