"""A server that runs already: it is looked at, never started and never stopped."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, Final

import aiohttp

from specbench.engines.base import Failure, FailureClass
from specbench.engines.process import StopReport
from specbench.engines.ready import LaunchFailed, Ready, check_model, send_canary

if TYPE_CHECKING:
    from specbench.engines.base import Engine, LaunchSpec

NOT_THERE: Final = 1
"""Exit code of a server that no longer answers; its real one is nobody's business here."""

CONNECT_TRIES: Final = 3
PAUSE_S: Final = 0.5
PROBE_TIMEOUT_S: Final = 10.0


class Attached:
    """See `specbench.engines.running.Running`. Its log and processes are elsewhere."""

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.started_at = time.monotonic()
        self._gone = False

    def poll(self) -> int | None:
        """Null until `look` has found that nobody answers."""
        return NOT_THERE if self._gone else None

    def pids(self) -> frozenset[int]:
        """None that can be seen."""
        return frozenset()

    def log_text(self) -> str:
        """Nothing: the log is with whoever started the server."""
        return ""

    def read_log(self, offset: int) -> tuple[str, int]:
        """Nothing."""
        return "", offset

    async def stop(self, grace_s: float) -> StopReport:  # noqa: ARG002 - part of the protocol
        """Leave it running."""
        return StopReport(how="left_running", returncode=self.poll())

    async def look(self, engine: Engine, session: aiohttp.ClientSession) -> bool:
        """Whether the server still answers; after a few refused connections it counts as gone."""
        for attempt in range(CONNECT_TRIES):
            if attempt:
                await asyncio.sleep(PAUSE_S)
            try:
                await _status(engine, self.spec, session)
            except TimeoutError:
                return True  # busy is not gone
            except (aiohttp.ClientConnectionError, OSError):
                continue
            return True
        self._gone = True
        return False


async def attach(
    engine: Engine, spec: LaunchSpec, server: Attached, session: aiohttp.ClientSession, timeout_s: float
) -> Ready:
    """Make sure that a running server serves our model and answers.

    Raises:
        LaunchFailed: it does not; the failure says what to change.
    """
    began = time.monotonic()
    try:
        status = await _status(engine, spec, session)
        if status in (401, 403):
            raise LaunchFailed(
                Failure(
                    FailureClass.WRONG_SERVER,
                    f"The server at {spec.base_url} refused the key (HTTP {status}).",
                    'Give it one: engine.headers: {Authorization: "Bearer ${KEY}"}, with KEY exported.',
                )
            )
        if status != 200:
            raise LaunchFailed(
                Failure(
                    FailureClass.WRONG_SERVER,
                    f"The server at {spec.base_url} answers HTTP {status} at {engine.health_path}.",
                    "Give the base URL of an OpenAI-compatible server, without /v1.",
                )
            )
        await check_model(spec, session)
        await send_canary(engine, spec, server, session, timeout_s)
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise LaunchFailed(
            Failure(
                FailureClass.WRONG_SERVER,
                f"The certificate of {spec.base_url} could not be verified: {error}",
                "Name the PEM file of the authority that signed it in engine.ca.",
            )
        ) from None
    except TimeoutError:
        raise LaunchFailed(
            Failure(
                FailureClass.STARTUP_TIMEOUT,
                f"The server at {spec.base_url} did not answer a one-token request in time.",
                "Is somebody else using it? Try again when it is idle, or raise engine.startup_timeout.",
            )
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise LaunchFailed(
            Failure(
                FailureClass.ENGINE_DIED,
                f"There is no server at {spec.base_url}: {error}",
                "Start it, or correct the url; specbench starts nothing at an endpoint.",
            )
        ) from None
    return Ready(startup_s=time.monotonic() - began, phases=())


def connector(spec: LaunchSpec) -> aiohttp.TCPConnector:
    """Connections to a server, with its authority if it has its own; certificates are always verified."""
    if spec.ca is None:
        return aiohttp.TCPConnector()
    return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=spec.ca))


async def _status(engine: Engine, spec: LaunchSpec, session: aiohttp.ClientSession) -> int:
    async with session.get(
        spec.base_url + engine.health_path, timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    ) as response:
        return response.status
