"""Small programs that play an engine: real processes, real signals, real sockets."""

from __future__ import annotations

import sys
import textwrap

from specbench.engines.base import LaunchSpec
from specbench.engines.ports import free_port

SERVER = """
    import http.server, json, sys
    port, model = int(sys.argv[1]), sys.argv[2]
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        def do_GET(self):
            if self.path == "/health":
                self.answer(200, {})
            else:
                self.answer(200, {"data": [{"id": model}]})
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            status = int(sys.argv[3]) if len(sys.argv) > 3 else 200
            self.answer(status, {"choices": [{"text": "!"}]} if status == 200 else {"error": "no"})
            if status == 500:
                sys.stdout.flush()
                import os
                print("ERROR the engine fell over", flush=True)
                os._exit(0)
        def log_message(self, *args):
            pass
    print("loading weights", flush=True)
    print("capturing graphs", flush=True)
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("stubborn", flush=True)
    time.sleep(120)
"""

POLITE = """
    import time
    print("polite", flush=True)
    time.sleep(120)
"""

FAMILY = """
    import os, subprocess, sys, time
    sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"
    # One stubborn child in the group, one in a session of its own, and one that was orphaned at once.
    same = subprocess.Popen([sys.executable, "-c", sleeper])
    other = subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
    orphan = (
        "import os, subprocess, sys;"
        "print('orphan', subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
        " start_new_session=True).pid, flush=True)"
    )
    subprocess.run([sys.executable, "-c", orphan, sleeper], check=True)
    print("same", same.pid, flush=True)
    print("other", other.pid, flush=True)
    print("family", flush=True)
    time.sleep(120)
"""


def child(source: str, *args: str, port: int | None = None, env: dict[str, str] | None = None) -> LaunchSpec:
    """A launch of ``python -c source args``."""
    port = port or free_port()
    return LaunchSpec(
        arm_id="arm",
        argv=(sys.executable, "-c", textwrap.dedent(source), *args),
        env=env or {},
        port=port,
        base_url=f"http://127.0.0.1:{port}",
        served_model="specbench-arm",
    )


def server(model: str = "specbench-arm", *args: str, port: int | None = None) -> LaunchSpec:
    """A launch of the small HTTP server."""
    port = port or free_port()
    return child(SERVER, str(port), model, *args, port=port)
