"""Start the simulated engine: ``python -m specbench.engines.simulated --port P --model M``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from typing import Final

from specbench.engines.simulated import logs
from specbench.engines.simulated.faults import spawn_stubborn_child
from specbench.engines.simulated.options import BadSpeculation, ServerOptions, Speculation, parse_args
from specbench.engines.simulated.server import Server, serve

START_FAILURES: Final = {
    "oom": (
        logs.ENGINE,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
        "GPU 0 has a total capacity of 1.00 GiB of which 0.10 GiB is free.",
    ),
    "kv": (
        logs.ENGINE,
        "ValueError: To serve at least one request with the models's max seq len (2048), "
        "(0.50 GiB KV cache is needed, which is larger than the available KV cache memory (0.25 GiB). "
        "Based on the available memory, the estimated maximum model length is 1024.",
    ),
    "vocabulary": (
        logs.API,
        "ValueError: Target and draft model should have the same vocabulary size. "
        "Target model vocab_size=256. Draft model vocab_size=320.",
    ),
    "exit": (logs.API, "RuntimeError: simulated fault: start-up failed"),
}


def main(argv: list[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    options = parse_args(argv)
    if options.sim.faults.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    speculation = None
    if options.speculative_config:
        try:
            speculation = Speculation.parse(options.speculative_config)
        except BadSpeculation as error:
            logs.traceback_and_exit(str(error))
    with socket.socket() as listener:
        # vLLM binds its port first and listens only when the engine is ready: probes are refused until then.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, options.port))
        except OSError as error:
            logs.traceback_and_exit(f"OSError: [Errno {error.errno}] {error.strerror}")
        asyncio.run(_run(options, speculation, listener))
    return 0


async def _run(options: ServerOptions, speculation: Speculation | None, listener: socket.socket) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    if not options.sim.faults.ignore_sigterm:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    logs.starting(options, speculation)
    faults = options.sim.faults
    if faults.spawn_child_that_ignores_sigterm:
        logs.line(f"worker pid {spawn_stubborn_child()}", process=logs.ENGINE)
    if faults.startup_hang or options.sim.startup_s:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), None if faults.startup_hang else options.sim.startup_s)
    if stop.is_set():
        return
    if faults.fail_start is not None:
        process, root_cause = START_FAILURES[faults.fail_start]
        logs.traceback_and_exit(root_cause, process=process)
    server = Server(options, speculation)
    logs.kv_size(server.core.kv_tokens, options.max_model_len)
    await serve(server, listener, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
