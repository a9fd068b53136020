"""Run the launches of a plan, cell by cell. Failed cells are results; nothing measured is lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp

from specbench.engines.attached import Attached, attach, connector
from specbench.engines.base import Description, DraftServing, EngineMissing, Failure, FailureClass
from specbench.engines.ports import free_port
from specbench.engines.process import EngineProcess
from specbench.engines.ready import LaunchFailed, wait_ready
from specbench.load.progress import Progress
from specbench.load.table import records_to_table
from specbench.load.transport import open_client
from specbench.observe.processors import on_cpus, parse_cpus
from specbench.parity.run import judge_run
from specbench.runs import records as r
from specbench.runs.files import RunFileError
from specbench.runs.journal import utc_now
from specbench.sweep.adaptive import Adaptive
from specbench.sweep.cell import How, Measured, Served, measure_cell
from specbench.sweep.eta import Eta
from specbench.sweep.observe import LaunchObserver
from specbench.sweep.open_check import OpenLoopCheck
from specbench.sweep.parity import ParityCheck
from specbench.sweep.prepare import Prepared, launch_id
from specbench.sweep.task import TaskCheck
from specbench.verdict.registered import REGISTERED, rule_digest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from specbench.analysis.run import Stage
    from specbench.config.grid import Arm
    from specbench.config.plan import CellPlan, LaunchPlan
    from specbench.engines.base import Engine, LaunchSpec
    from specbench.engines.ready import Ready
    from specbench.engines.running import Running
    from specbench.runs.rundir import RunDir
    from specbench.sweep.events import Watcher

PARITY_ROUND: Final = 0
"""Of launches that measure no cell."""

MIN_FREE_BYTES: Final = 64 << 20
"""Below this much free disk no new launch starts: its results could not be kept."""

OPEN_CONNECTIONS: Final = 900
"""Connections that an open loop makes sure of: what a usual limit of 1,024 open files leaves."""

STALL_TIMEOUT_S: Final = 300.0
"""A server that is silent for this long inside a request hangs."""

PERMANENT: Final = frozenset(
    {
        FailureClass.ENGINE_MISSING,
        FailureClass.BAD_ARGUMENT,
        FailureClass.BAD_SPECULATION,
        FailureClass.UNSUPPORTED_METHOD,
        FailureClass.MISSING_PACKAGE,
        FailureClass.MODEL_NOT_FOUND,
        FailureClass.VOCABULARY,
        FailureClass.CONTEXT_TOO_LONG,
        FailureClass.KV_TOO_SMALL,
    }
)
"""The same launch would fail the same way again: its arm is not tried in later rounds."""

ONCE_MORE: Final = frozenset({FailureClass.PORT_IN_USE, FailureClass.WRONG_SERVER})
"""Somebody else took the port: one more try on another one."""


class SweepStopped(Exception):
    """The sweep ended before its plan did; the message says why."""


@dataclass(slots=True)
class Conductor:
    """One sweep over one run directory."""

    prepared: Prepared
    run: RunDir
    watcher: Watcher
    started: float = field(default_factory=time.monotonic)
    given_up: dict[str, Failure] = field(default_factory=dict)
    eta: Eta = field(default_factory=lambda: Eta({}, {}))
    current: Running | None = None
    observer: LaunchObserver | None = None
    stage: Stage | None = None
    parity: ParityCheck = field(init=False)
    task: TaskCheck = field(init=False)

    def __post_init__(self) -> None:
        loaded = self.prepared.loaded
        arms = tuple(a for a in self.prepared.plan.arms if not a.matched)
        self.parity = ParityCheck(loaded.config, loaded.base_dir, self.run, arms)
        self.task = TaskCheck(loaded, self.run)

    async def conduct(self) -> None:
        """Run everything that has no result yet.

        Raises:
            SweepStopped: the time budget is used up, the disk is full, or the baseline cannot run.
            asyncio.CancelledError: interrupted; engines are stopped and partial results kept.
            RunFileError: a file of the run could not be written.
        """
        done = {c.id for c in self.run.cells() if c.status != "interrupted"}
        todo = [(x, cells) for x in self.prepared.plan.launches if (cells := self._missing(x, done))]
        self._begin(todo)
        try:
            if self.prepared.plan.adaptive is None:
                await self._all_rounds(todo)
            else:
                await self._rounds_until_clear(done)
            await self.conduct_parity()
            await self._open_check(done)
        except asyncio.CancelledError:
            self._journal_end("sweep_interrupted", "interrupted")
            raise
        except (SweepStopped, RunFileError) as error:
            self._journal_end("sweep_stopped", str(error))
            raise
        self._journal_end("sweep_finished", "all planned cells have a result")

    async def _all_rounds(self, todo: list[tuple[LaunchPlan, list[CellPlan]]]) -> None:
        number = 0
        for round_ in self.prepared.plan.rounds:
            mine = [(x, cells) for x, cells in todo if x.round == round_.number]
            number = await self._round(round_.number, mine, number, len(todo))

    async def _rounds_until_clear(self, done: set[str]) -> None:
        """Rounds as the campaign asks for them; those that were planned before a resume come first."""
        adaptive = Adaptive(self.prepared, self.run)
        number = 0
        while (round_ := adaptive.next_round()) is not None:
            self.stage = adaptive.stage
            mine = [(x, cells) for x in round_.launches if (cells := self._missing(x, done))]
            ahead = adaptive.launches_ahead
            self._expect(mine, ahead)
            number = await self._round(round_.number, mine, number, number + len(mine) + ahead)
        self.run.journal.append("campaign_stopped", reason=adaptive.stopped)

    async def _open_check(self, done: set[str]) -> None:
        """The recommended arm and its baseline at rates; those that were planned before a resume come first."""
        check = OpenLoopCheck(self.prepared, self.run)
        if not check.begin():
            return
        self.prepared, self.stage = check.prepared, None
        number = 0
        while (round_ := check.next_round()) is not None:
            mine = [(x, cells) for x in round_.launches if (cells := self._missing(x, done))]
            self.eta.left = {"startup": len(mine)}
            for cell in (c for _, cells in mine for c in cells):
                kind = f"cell {cell.load.id}"
                self.eta.planned[kind] = cell.estimate_s
                self.eta.left[kind] = self.eta.left.get(kind, 0) + 1
            if mine:
                self._check_budget(round_.number, len(mine))
            number = await self._round(round_.number, mine, number, number + len(mine))

    def _expect(self, mine: list[tuple[LaunchPlan, list[CellPlan]]], ahead: int) -> None:
        """Time left: this round, and the launches that are certain to follow it."""
        self.eta.left = {"startup": len(mine) + ahead}
        for cell in self.prepared.plan.cells_per_launch:
            here = sum(1 for _, cells in mine for c in cells if c.load.id == cell.load.id)
            self.eta.left[f"cell {cell.load.id}"] = here + ahead

    async def _round(
        self, round_: int, mine: list[tuple[LaunchPlan, list[CellPlan]]], number: int, total: int
    ) -> int:
        """Run what is missing of a round; returns how many launches there were so far."""
        if mine and number:  # the first round always runs: without it there is nothing to judge
            self._check_budget(round_, len(mine))
        for launch, cells in mine:
            number += 1
            self._check_disk()
            await self._launch(launch, cells, number, total)
        return number

    def _begin(self, todo: list[tuple[LaunchPlan, list[CellPlan]]]) -> None:
        plan = self.prepared.plan
        planned = {f"cell {c.load.id}": c.estimate_s for c in plan.cells_per_launch}
        left: dict[str, int] = {}
        for launch, cells in todo:
            planned["startup"] = launch.startup_s
            left["startup"] = left.get("startup", 0) + 1
            for cell in cells:
                kind = f"cell {cell.load.id}"
                left[kind] = left.get(kind, 0) + 1
        self.eta = Eta(planned, left)
        cells_left = sum(n for kind, n in left.items() if kind != "startup")
        estimate = self.eta.seconds()
        basis = f"start-up {plan.startup_basis}, speed {plan.speed_basis}"
        if not any(e.get("event") == REGISTERED for e in self.run.journal.read()):
            self.run.journal.append(REGISTERED, digest=rule_digest(self.run.manifest()))
        self.run.journal.append("sweep_started", launches=len(todo), cells=cells_left, estimate_s=estimate)
        self.watcher.sweep_started(str(self.run.path), len(todo), cells_left, estimate, basis)

    def _missing(self, launch: LaunchPlan, done: set[str]) -> list[CellPlan]:
        return [c for c in launch.cells if self.prepared.identity(launch, c.load).id not in done]

    def _check_budget(self, round_: int, launches: int) -> None:
        budget = self.prepared.loaded.config.measure.time_budget
        if budget is None:
            return
        used = time.monotonic() - self.started
        need = self.eta.seconds() * launches / max(1, self.eta.left.get("startup", 0))
        if used + need > budget:
            message = (
                f"round {round_} would not fit measure.time_budget ({budget:.0f} s): "
                f"{used:.0f} s are used and it needs about {need:.0f} s"
            )
            raise SweepStopped(message)

    def _check_disk(self) -> None:
        free = shutil.disk_usage(self.run.path).free
        if free < MIN_FREE_BYTES:
            raise SweepStopped(
                f"only {free >> 20} MiB are free under {self.run.path}: free some space, then --resume"
            )

    def _journal_end(self, event: str, reason: str) -> None:
        # A full disk must not hide the reason for which the sweep ended.
        with contextlib.suppress(RunFileError):
            self.run.journal.append(event, reason=reason, active_s=time.monotonic() - self.started)

    async def _launch(self, launch: LaunchPlan, cells: list[CellPlan], number: int, total: int) -> None:
        name = self._free_launch_name(launch_id(launch))
        planned = r.PlannedLaunchRecord(
            id=name, round=launch.round, arm=launch.arm.id, loads=tuple(c.load.id for c in cells)
        )
        self.watcher.launch_started(planned, number, total)
        failure = self.given_up.get(launch.arm.id)
        if failure is None:
            failure = await self._launch_once(launch, cells, name)
            if failure is not None and failure.kind in ONCE_MORE:
                failure = await self._launch_once(launch, cells, self._free_launch_name(name))
        if failure is None:
            return
        self._fail_cells(launch, cells, name, failure)
        if failure.kind in PERMANENT:
            self.given_up[launch.arm.id] = failure
            if launch.arm.is_baseline and not launch.arm.engine:
                raise SweepStopped(f"the baseline cannot run, so nothing can be judged: {failure.summary}")

    def _free_launch_name(self, name: str) -> str:
        n, free = 1, name
        while self.run.launch_path(free).exists():
            n += 1
            free = f"{name}.{n}"
        return free

    async def _launch_once(self, launch: LaunchPlan, cells: list[CellPlan], name: str) -> Failure | None:
        """Start, measure all cells, stop. Returns the failure that kept the engine from serving."""

        async def work(served: Served) -> Failure | None:
            with on_cpus(self._client_cpus()):
                lost = await self._cells(launch, cells, name, served)
            if lost is None and self.parity.wants(launch.arm):
                self.watcher.launch_phase("parity")
                await self.parity.collect(launch.arm, served)
            return lost

        return await self._serve(launch.arm, launch.round, name, work)

    async def conduct_parity(self) -> None:
        """What is left of the parity check: arms that have written nothing yet, A', and the scores.

        After the cells of a sweep that is A' and the scores; without a sweep before it, the whole check.

        Raises:
            asyncio.CancelledError: interrupted; engines are stopped and outputs kept.
            RunFileError: a file of the run could not be written.
        """
        if self.parity.tier is None:
            return
        number, done = 0, set[str]()
        self.run.journal.append("parity_started", launches=len(self._waiting(done)) + 1)
        # Asked again after each: baselines come first, and what their servers tell decides what the arms write.
        while waiting := self._waiting(done):
            number, arm = number + 1, waiting[0]
            done.add(arm.id)
            work = partial(self.parity.collect, arm)
            await self._parity_launch(arm, number, number + len(waiting), work)
        await self._score_parity(number + 1)

    def _waiting(self, done: set[str]) -> list[Arm]:
        """Arms whose outputs are missing and were not asked for yet, baselines first."""
        given_up = {*done, *self.given_up}
        found = [a for a in self.prepared.plan.arms if a.id not in given_up and self.parity.wants(a)]
        return sorted(found, key=lambda a: not a.is_baseline)

    async def _score_parity(self, number: int = 1) -> None:
        """A launch of each baseline for A' and the scores, of each draft for its own, then the tests."""
        for baseline in [a for a in self.prepared.plan.arms if a.is_baseline]:
            if self.parity.unfinished(baseline):
                await self._parity_launch(baseline, number, number, partial(self._second_baseline, baseline))
        for arm, names in self.parity.drafts_wanted():
            engine = self.prepared.engine(arm.id)
            if arm.draft is not None and isinstance(engine, DraftServing):
                # An arm of its own: the launch must not be taken for one of the baseline's.
                alone = dataclasses.replace(arm, id=f"draft-of-{arm.id}", method=None, k=None, settings={})
                work = partial(self.parity.score_with_draft, arm.draft, names)
                await self._parity_launch(alone, number + 1, number + 1, work, engine.draft_alone(arm))
        problem = await self.task.score()
        if problem is not None:
            self.watcher.warning(f"task level: {problem}")
        result = judge_run(self.run)
        if result is not None:
            self.run.write_parity_result(result)
            for found in result.arms:
                self.run.journal.append("parity_judged", arm=found.arm, decision=found.decision)

    async def _second_baseline(self, baseline: Arm, served: Served) -> None:
        await self.parity.collect(baseline, served, again=True)
        await self.parity.score(baseline, served)

    async def _parity_launch(
        self,
        arm: Arm,
        number: int,
        total: int,
        work: Callable[[Served], Awaitable[None]],
        engine: Engine | None = None,
    ) -> None:
        name = self._free_launch_name(f"parity-{number:02d}-{arm.id}")
        planned = r.PlannedLaunchRecord(id=name, round=PARITY_ROUND, arm=arm.id, loads=())
        self.watcher.launch_started(planned, number, total)

        async def collect(served: Served) -> None:
            self.watcher.launch_phase("parity")
            await work(served)

        failure = await self._serve(arm, PARITY_ROUND, name, collect, engine)
        if failure is not None:
            self.parity.failures[arm.id] = failure.summary

    async def _serve(
        self,
        arm: Arm,
        round_: int,
        name: str,
        work: Callable[[Served], Awaitable[Failure | None]],
        engine: Engine | None = None,
    ) -> Failure | None:
        """Start an arm, work with it, stop it. Returns the failure that kept the engine from serving.

        Args:
            engine: another than the arm's own.
        """
        engine = engine or self.prepared.engine(arm.id)
        spec = engine.launch(arm, free_port())
        began = utc_now()
        record = r.LaunchRecord(
            id=name,
            arm=arm.id,
            round=round_,
            status="failed",
            started_utc=began,
            argv=tuple(self.prepared.loaded.redact(a) for a in spec.argv),
            speculation_flags=tuple(self.prepared.loaded.redact(a) for a in spec.speculation_flags),
        )
        self.run.journal.append("launch_started", launch=name, port=spec.port)
        log = self.run.launch_path(name) / "engine.log"
        try:
            process = _start(spec, log, self.run.path)
        except EngineMissing as error:
            failure = Failure(
                FailureClass.ENGINE_MISSING, str(error), "Run `specbench doctor` with this config."
            )
            return self._launch_failed(record, failure)
        self.current = process
        self.observer = LaunchObserver(process)
        self.observer.start()
        lost: Failure | None = None
        try:
            async with aiohttp.ClientSession(headers=spec.headers, connector=connector(spec)) as session:
                try:
                    ready = await self._ready(engine, spec, process, session)
                    description = await engine.describe(session, spec.base_url, process.log_text())
                except LaunchFailed as error:
                    lost = error.failure
                    self._launch_failed(record, lost)
                    return lost
                except (aiohttp.ClientError, TimeoutError) as error:
                    lost = engine.explain(process.log_text(), process.poll())
                    self._launch_failed(
                        record, dataclasses.replace(lost, summary=f"{lost.summary} ({error})")
                    )
                    return lost
                self.eta.done("startup", ready.startup_s)
                record = _described(record, description, ready.startup_s)
                self.run.write_launch(record)
                self.run.journal.append("launch_ready", launch=name, startup_s=ready.startup_s)
                self.watcher.launch_ready(ready.startup_s)
                served = Served(engine, spec, process, session)
                lost = await work(served)
        finally:
            await self._stop(process, record, lost)
        return None

    async def _ready(
        self, engine: Engine, spec: LaunchSpec, process: Running, session: aiohttp.ClientSession
    ) -> Ready:
        timeout_s = self.prepared.engine_config(spec.arm_id).startup_timeout
        if isinstance(process, Attached):
            return await attach(engine, spec, process, session, timeout_s)
        tell = self.watcher.launch_phase
        return await wait_ready(engine, spec, process, session, timeout_s, lambda phase, _s: tell(phase))

    def _client_cpus(self) -> frozenset[int] | None:
        """Only while cells run: an engine must not inherit them."""
        text = self.prepared.loaded.config.measure.client_cpus
        return parse_cpus(text) if text is not None else None

    async def _cells(
        self, launch: LaunchPlan, cells: list[CellPlan], name: str, served: Served
    ) -> Failure | None:
        """All cells of a launch; when the engine dies, the rest are failed with the same cause."""
        # An open loop may have any number in flight: room for many is asked for, more is not refused.
        sizes = (len(self.prepared.mixes[c.load.id].measured) for c in cells if c.load.kind != "closed")
        top = max(*(c.load.concurrency for c in cells), *(min(n, OPEN_CONNECTIONS) for n in sizes), 1)
        config = self.prepared.loaded.config
        how = How(config.workload.seconds, config.measure.client_lag_limit)
        async with open_client(
            served.spec.base_url,
            served.spec.served_model,
            connections=top,
            stall_timeout_s=min(config.workload.request_timeout, STALL_TIMEOUT_S),
            total_timeout_s=config.workload.request_timeout,
            extra_body=served.spec.extra_body,
            extra_chat=served.spec.extra_chat,
            headers=served.spec.headers,
            ca=served.spec.ca,
        ) as transport:
            for i, cell in enumerate(cells):
                began, t0 = utc_now(), time.monotonic()
                mix = self.prepared.mixes[cell.load.id]
                progress = Progress()
                self.watcher.cell_started(cell.load.id, len(mix.measured), progress)
                measured = await measure_cell(served, transport, cell.load, mix, how, self.watcher, progress)
                self._write_cell(launch, cell, name, began, measured)
                if measured.interrupted:
                    raise asyncio.CancelledError
                self.eta.done(f"cell {cell.load.id}", time.monotonic() - t0)
                self.watcher.time_left(self.eta.seconds())
                if served.process.poll() is not None:
                    cause = measured.failure or served.engine.explain(
                        served.process.log_text(), served.process.poll()
                    )
                    self._fail_cells(launch, cells[i + 1 :], name, cause)
                    return cause
        return None

    def _write_cell(
        self, launch: LaunchPlan, cell: CellPlan, name: str, began: str, measured: Measured
    ) -> None:
        identity = self.prepared.identity(launch, cell.load)
        self.run.set_aside(identity.id)
        record = r.CellRecord(
            id=identity.id,
            identity=identity.content,
            arm=launch.arm.id,
            load=cell.load.id,
            concurrency=cell.load.concurrency,
            round=launch.round,
            launch=name,
            status="interrupted" if measured.interrupted else "failed" if measured.failure else "ok",
            started_utc=began,
            epoch_unix_s=measured.epoch_unix_s,
            duration_s=measured.duration_s,
            window=measured.window,
            client=measured.client,
            prefix_cache_reset=measured.prefix_cache_reset,
            stage=self.stage,
            warmup_ok=measured.warmup_ok,
            load_kind=cell.load.kind,
            offered_per_s=measured.offered_per_s,
            delivered_per_s=measured.delivered_per_s,
            machine=self.observer.cut(measured.epoch_unix_s, measured.duration_s) if self.observer else None,
            failure=_failure_record(measured.failure),
            notes=tuple(measured.notes),
        )
        table = records_to_table(measured.records) if measured.records else None
        self.run.write_cell(record, measured.counters, table)
        self.run.journal.append("cell_" + record.status, cell=record.id, launch=name)
        self.watcher.cell_done(record, measured.tokens_per_s)

    def _fail_cells(self, launch: LaunchPlan, cells: list[CellPlan], name: str, failure: Failure) -> None:
        self.eta.skipped("startup")
        for cell in cells:
            self.eta.skipped(f"cell {cell.load.id}")
            self._write_cell(launch, cell, name, utc_now(), Measured(failure=failure))
        self.watcher.time_left(self.eta.seconds())

    def _launch_failed(self, record: r.LaunchRecord, failure: Failure) -> Failure:
        self.run.write_launch(_with(record, failure=_failure_record(failure)))
        self.run.journal.append(
            "launch_failed", launch=record.id, kind=str(failure.kind), summary=failure.summary
        )
        self.watcher.launch_failed(failure)
        return failure

    async def _stop(
        self,
        process: Running,
        record: r.LaunchRecord,
        lost: Failure | None,
    ) -> None:
        memory_peak_bytes = self.observer.stop() if self.observer is not None else None
        self.observer = None
        report = await process.stop(self.prepared.engine_config(record.arm).stop_timeout)
        self.current = None
        served = record.startup_s is not None
        self.run.write_launch(
            _with(
                record,
                status=("died" if lost is not None else "stopped") if served else "failed",
                failure=_failure_record(lost),
                memory_peak_bytes=memory_peak_bytes,
                stop=dataclasses.asdict(report),
            )
        )
        self.run.journal.append(
            "launch_stopped", launch=record.id, clean=report.clean, seconds=report.seconds
        )
        if not report.clean:
            left = ", ".join(report.left) or f"port {process.spec.port} is still taken"
            self.run.journal.append(
                "warning",
                code="leftover",
                message=f"{record.id} did not stop cleanly: {left}",
                action="Stop these processes: they take memory and time from the next launch.",
            )
            self.watcher.warning(f"{record.id} did not stop cleanly: {left}")
        self.watcher.launch_stopped()


def _start(spec: LaunchSpec, log: Path, cwd: Path) -> Running:
    return Attached(spec) if spec.attached else EngineProcess.start(spec, log, cwd)


def _described(record: r.LaunchRecord, d: Description, startup_s: float) -> r.LaunchRecord:
    return _with(
        record,
        status="ready",
        startup_s=startup_s,
        version=d.version,
        speculating=d.speculating,
        max_model_len=d.max_model_len,
        kv_capacity_tokens=d.kv_capacity_tokens,
        settings=d.settings,
        speculation=d.speculation,
        facts=d.facts,
        weights_bytes=d.weights_bytes,
        draft_weights_bytes=d.draft_weights_bytes,
        weights_load_s=d.weights_load_s,
        max_concurrency=d.max_concurrency,
        max_running_requests=d.max_running_requests,
    )


def _with(record: r.LaunchRecord, **changes: object) -> r.LaunchRecord:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return r.LaunchRecord(**{**fields, **changes})


def _failure_record(failure: Failure | None) -> r.FailureRecord | None:
    if failure is None:
        return None
    return r.FailureRecord(
        kind=str(failure.kind), summary=failure.summary, mend=failure.mend, log_lines=failure.log_lines
    )
