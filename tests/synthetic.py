"""Run directories made of arithmetic: a closed loop in which every request's tokens come at a set pace."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from specbench.load.record import ErrorClass, RequestRecord
from specbench.load.table import records_to_table
from specbench.observe.counters import EngineCounters
from specbench.runs import records as r
from specbench.runs.observation import Observation
from specbench.runs.rundir import RunDir


@dataclass(frozen=True)
class Pace:
    """How a cell behaves: seconds per step of a request, tokens per step, requests that fail."""

    step_s: float
    tokens_per_step: int = 1
    fail: int = 0
    client_bound: bool = False
    preemptions: float = 0.0
    first_s: float | None = None
    """Seconds to the first token; two steps if absent."""
    slower_after_s: float | None = None
    """From then on steps take twice as long."""


def closed_loop(concurrency: int, requests: int, pace: Pace, tokens: int = 40) -> list[RequestRecord]:
    """The records of a cell; request i is of category a or b in turn and has ``tokens`` +- a few tokens."""
    slots = [(0.0, s) for s in range(concurrency)]
    heapq.heapify(slots)
    records = []
    for i in range(requests):
        t, slot = heapq.heappop(slots)
        n = tokens + (i * 7) % 11
        record = RequestRecord(
            id=f"q{i}", index=i, category="ab"[i % 2], intended_s=t, sent_s=t, prompt_tokens=10
        )
        at = t + (2 * pace.step_s if pace.first_s is None else pace.first_s)
        made = 0
        while made < n:
            size = 1 if made == 0 else min(pace.tokens_per_step, n - made)
            record.chunk_s.append(at)
            record.chunk_tokens.append(size)
            made += size
            slow = pace.slower_after_s is not None and at > pace.slower_after_s
            at += 2 * pace.step_s if slow else pace.step_s
        record.end_s = record.chunk_s[-1]
        record.output_tokens = n
        record.finish_reason = "stop"
        if i < pace.fail:
            record.finish_reason, record.error_class, record.error = None, ErrorClass.RESET, "reset by peer"
        records.append(record)
        heapq.heappush(slots, (record.end_s + 0.001 * (slot + 1), slot))
    return records


def counters(records: list[RequestRecord], pace: Pace, *, drafted: bool) -> r.CellCounters:
    """Counters that agree with the records: the whole cell, and its window as the same shares."""
    generated = float(sum(x.output_tokens or 0 for x in records))
    chunks = float(sum(len(x.chunk_s) for x in records))
    n = float(len(records))
    k = pace.tokens_per_step

    def at(share: float) -> EngineCounters:
        steps = (chunks - n) * share
        return EngineCounters(
            generation_tokens=generated * share,
            prompt_tokens=10 * n * share,
            cached_prompt_tokens=0.0,
            first_outputs=n * share,
            decode_outputs=steps,
            engine_steps=steps,
            drafts=steps if drafted else None,
            draft_tokens=steps * k if drafted else None,
            accepted_tokens=steps * (k - 1) if drafted else None,
            accepted_per_position=tuple(steps for _ in range(k - 1)) if drafted else (),
            preemptions=pace.preemptions * share,
            finished=n * share,
            running=0.0,
            waiting=0.0,
            kv_usage=0.1,
        )

    marks = (("start", 0.0), ("window_open", 0.25), ("window_close", 0.75), ("end", 1.0))
    return r.CellCounters(
        scrapes=tuple(
            r.Scrape(at=name, t_s=share, asked_s=share, canonical=dataclasses.asdict(at(share)), raw="")  # type: ignore[arg-type]
            for name, share in marks
        )
    )


def paces_of(
    gains: dict[str, dict[int, float]], base_s: float, spread: float
) -> dict[tuple[str, int, int], Pace | str | None]:
    """Three rounds: the baseline at ``base_s`` a token, each arm faster by its gain at each load, a little spread."""
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    for n in (1, 2, 3):
        for arm, at in gains.items():
            for c, gain in at.items():
                pace["baseline", c, n] = Pace(base_s)
                pace[arm, c, n] = Pace(base_s / (gain * (1 + spread * (n - 2))))
    return pace


@dataclass
class SyntheticRun:
    """Builds a run; ``pace`` maps (arm, concurrency, round) to a `Pace`, a failure text, or None."""

    loads: tuple[int, ...] = (1, 4)
    rounds: int = 3
    arms: tuple[str, ...] = ("ngram-k4",)
    per_slot: int = 10
    min_speedup: float = 1.05
    output_mode: str = "natural"
    text_sources: tuple[str, ...] = ("recorded",)
    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    tpot_limit_ms: float | None = None
    traffic: dict[str, float] | None = None
    rule: r.RuleRecord = field(default_factory=r.RuleRecord)
    stages: dict[int, Literal["explore", "confirm"]] = field(default_factory=dict)
    """Of an adaptive run: round to its stage."""
    arm_facts: dict[str, Any] = field(default_factory=dict)
    """Of every speculative arm's record: how long it remembers, why its output is not the target's."""
    machine: Callable[[str, int, tuple[float, ...]], Observation] | None = None
    """Arm, round and moments a second apart, one beyond the cell's end, to what was observed."""

    def write(self, out: Path, pace: dict[tuple[str, int, int], Pace | str | None]) -> RunDir:
        """Write every file that a sweep would."""
        run = RunDir.create(out, "synthetic")
        arms = (
            r.ArmRecord(id="baseline"),
            *(r.ArmRecord(id=a, method="ngram", k=4, **self.arm_facts) for a in self.arms),
        )
        ids = [a.id for a in arms]
        launches = [
            r.PlannedLaunchRecord(
                id=f"r{n:02d}-{i:02d}-{a}", round=n, arm=a, loads=tuple(f"c{c}" for c in self.loads)
            )
            for n in range(1, self.rounds + 1)
            for i, a in enumerate(ids)
        ]
        run.write_manifest(
            r.Manifest(
                run_id=run.id,
                name="synthetic",
                created_utc="2026-01-01T00:00:00.000Z",
                specbench="0.1.0",
                config={},
                config_text="name: synthetic\n",
                meaning={},
                meaning_digest="0" * 64,
                target="target",
                engine_kind="simulated",
                engine_version="1",
                machine={
                    "hostname": "host",
                    "cpu": "cpu",
                    "cores": 2,
                    "memory_bytes": 8 << 30,
                    "gpus": [],
                    "os": "linux",
                    "python": "3.11",
                    "fingerprint": "f" * 16,
                },
                git=None,
                arms=arms,
                loads=tuple(
                    r.LoadRecord(
                        id=f"c{c}", concurrency=c, requests=c * self.per_slot, workload_digest=str(c) * 64
                    )
                    for c in self.loads
                ),
                launches=tuple(launches),
                rounds=self.rounds,
                min_speedup=self.min_speedup,
                confidence=0.9,
                traffic=self.traffic or {f"c{c}": 1 / len(self.loads) for c in self.loads},
                ttft_p95_limit_ms=None,
                tpot_p95_limit_ms=self.tpot_limit_ms,
                workload="synthetic",
                categories=("a", "b"),
                output_mode=self.output_mode,
                text_sources=self.text_sources,
                rule=self.rule,
            )
        )
        for launch in launches:
            self._launch(run, launch, pace)
        if self.stages:
            run.journal.append("campaign_stopped", reason="the rule said so")
        run.journal.append("sweep_finished", active_s=12.0)
        return run

    def _launch(
        self, run: RunDir, launch: r.PlannedLaunchRecord, pace: dict[tuple[str, int, int], Pace | str | None]
    ) -> None:
        baseline = launch.arm == "baseline"
        run.write_launch(
            r.LaunchRecord(
                id=launch.id,
                arm=launch.arm,
                round=launch.round,
                status="stopped",
                started_utc=f"2026-01-01T00:0{launch.round}:00.000Z-{launch.id}",
                argv=("engine", "--model", "target"),
                speculation_flags=() if baseline else ("--speculative-config", "{}"),
                startup_s=3.0,
                version="1",
                speculating=not baseline,
                max_model_len=100,
                kv_capacity_tokens=1000,
                settings=self.settings.get(launch.arm, {"seed": 0}),
            )
        )
        for c in self.loads:
            how = pace.get((launch.arm, c, launch.round))
            if how is None:
                continue
            failed = isinstance(how, str)
            records = [] if isinstance(how, str) else closed_loop(c, c * self.per_slot, how)
            record = r.CellRecord(
                id=f"{launch.id}-c{c}",
                identity={},
                arm=launch.arm,
                load=f"c{c}",
                concurrency=c,
                round=launch.round,
                launch=launch.id,
                status="failed" if failed else "ok",
                started_utc="2026-01-01T00:00:00.000Z",
                machine=self.machine(launch.arm, launch.round, _moments(records)) if self.machine else None,
                epoch_unix_s=0.0,
                duration_s=10.0,
                stage=self.stages.get(launch.round),
                client={
                    "client_bound": not isinstance(how, str) and how.client_bound,
                    "reasons": ["CPU share 0.99"],
                },
                failure=r.FailureRecord(kind="engine_died", summary=how, mend="look")
                if isinstance(how, str)
                else None,
            )
            table = records_to_table(records) if records else None
            counts = None if isinstance(how, str) else counters(records, how, drafted=not baseline)
            run.write_cell(record, counts, table)


def _moments(records: list[RequestRecord]) -> tuple[float, ...]:
    """Every second from the cell's start to beyond its end."""
    end = max((x.end_s or 0.0 for x in records), default=0.0)
    return tuple(float(t) for t in range(int(end) + 2))
