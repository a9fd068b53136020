"""Fetching public sets, against a server on this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from specbench.workloads.public import FetchError, PublicSet, fetch, public_set, public_sets
from specbench.workloads.traces import trace_names

BODY = b'{"prompt": "hello"}\n' * 1000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/gone.jsonl":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[: len(BODY) // 2] if self.path == "/short.jsonl" else BODY)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join(timeout=10)
    httpd.server_close()


def entry(url: str, sha256: str | None = None) -> PublicSet:
    return PublicSet(title="t", url=url, page="https://example.org", licence="MIT", sha256=sha256)


RIGHT = hashlib.sha256(BODY).hexdigest()


def test_a_file_comes_whole_and_checked(server: str, tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    seen: list[int] = []
    assert fetch(entry(f"{server}/x.jsonl", RIGHT), out, on_bytes=seen.append) == RIGHT
    assert out.read_bytes() == BODY
    assert seen[-1] == len(BODY)
    assert fetch(entry(f"{server}/x.jsonl"), tmp_path / "y.jsonl") == RIGHT
    # What is there and right is not fetched again.
    assert fetch(entry("http://127.0.0.1:9/x.jsonl", RIGHT), out) == RIGHT


@pytest.mark.parametrize(
    ("path", "sha256", "message"),
    [
        ("/x.jsonl", "0" * 64, f"its SHA-256 is {RIGHT}, expected 000"),
        ("/gone.jsonl", None, "HTTP 404"),
        ("/short.jsonl", None, "the transfer broke off|no file came"),
    ],
)
def test_what_is_not_right_leaves_nothing(
    path: str, sha256: str | None, message: str, server: str, tmp_path: Path
) -> None:
    out = tmp_path / "x.jsonl"
    with pytest.raises(FetchError, match=message):
        fetch(entry(server + path, sha256), out)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_download_keeps_the_old_file(server: str, tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    out.write_text("mine")
    with pytest.raises(FetchError):
        fetch(entry(f"{server}/x.jsonl", "0" * 64), out)
    assert out.read_text() == "mine"


def test_no_server_and_no_web_address(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"no file came: .*check the network or a proxy"):
        fetch(entry("http://127.0.0.1:9/x"), tmp_path / "x")
    with pytest.raises(FetchError, match="is no web address"):
        fetch(entry((tmp_path / "secret").as_uri()), tmp_path / "x")


def test_the_registry_is_complete() -> None:
    sets = public_sets()
    assert {"azure-llm-2023-code", "mooncake-conversation", "spec-bench", "burstgpt-1"} <= set(sets)
    for known in sets.values():
        assert known.url.startswith("https://")
        assert known.page.startswith("https://")
        assert known.licence
        assert known.file
        assert known.sha256 is None or len(known.sha256) == 64
    with pytest.raises(FetchError, match="did you mean 'gsm8k'"):
        public_set("gsm8")


def test_no_other_file_of_the_package_has_a_data_address() -> None:
    """Addresses of data stand in one place; pages that are credited are no downloads."""
    root = Path(__file__).parents[2]
    for file in [*(root / "specbench").rglob("*.py"), *(root / "datasets" / "traces").glob("*.yaml")]:
        text = file.read_text(encoding="utf-8")
        assert "raw.githubusercontent.com" not in text, file
        assert "releases/download" not in text, file
    assert trace_names()
