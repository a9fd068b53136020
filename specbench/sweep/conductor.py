"""Run the launches of a plan, cell by cell. Failed cells are results; nothing measured is lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import aiohttp

from specbench.engines.base import Description, EngineMissing, Failure, FailureClass
from specbench.engines.ports import free_port
from specbench.engines.process import EngineProcess
from specbench.engines.ready import LaunchFailed, wait_ready
from specbench.load.progress import Progress
from specbench.load.table import records_to_table
from specbench.load.transport import open_client
from specbench.observe.host import ProcessTreeSampler
from specbench.runs import records as r
from specbench.runs.files import RunFileError
from specbench.runs.journal import utc_now
from specbench.sweep.cell import How, Measured, Served, measure_cell
from specbench.sweep.eta import Eta
from specbench.sweep.prepare import Prepared, launch_id

if TYPE_CHECKING:
    from specbench.config.plan import CellPlan, LaunchPlan
    from specbench.runs.rundir import RunDir
    from specbench.sweep.events import Watcher

MIN_FREE_BYTES: Final = 64 << 20
"""Below this much free disk no new launch starts: its results could not be kept."""

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
    current: EngineProcess | None = None

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
        number = 0
        try:
            for round_ in self.prepared.plan.rounds:
                mine = [(x, cells) for x, cells in todo if x.round == round_.number]
                if mine and number:  # the first round always runs: without it there is nothing to judge
                    self._check_budget(round_.number, len(mine))
                for launch, cells in mine:
                    number += 1
                    self._check_disk()
                    await self._launch(launch, cells, number, len(todo))
        except asyncio.CancelledError:
            self._journal_end("sweep_interrupted", "interrupted")
            raise
        except (SweepStopped, RunFileError) as error:
            self._journal_end("sweep_stopped", str(error))
            raise
        self._journal_end("sweep_finished", "all planned cells have a result")

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
            if launch.arm.is_baseline:
                raise SweepStopped(f"the baseline cannot run, so nothing can be judged: {failure.summary}")

    def _free_launch_name(self, name: str) -> str:
        n, free = 1, name
        while self.run.launch_path(free).exists():
            n += 1
            free = f"{name}.{n}"
        return free

    async def _launch_once(self, launch: LaunchPlan, cells: list[CellPlan], name: str) -> Failure | None:
        """Start, measure all cells, stop. Returns the failure that kept the engine from serving."""
        engine, config = self.prepared.engine, self.prepared.loaded.config
        spec = engine.launch(launch.arm, free_port())
        began = utc_now()
        record = r.LaunchRecord(
            id=name,
            arm=launch.arm.id,
            round=launch.round,
            status="failed",
            started_utc=began,
            argv=tuple(self.prepared.loaded.redact(a) for a in spec.argv),
            speculation_flags=tuple(self.prepared.loaded.redact(a) for a in spec.speculation_flags),
        )
        self.run.journal.append("launch_started", launch=name, port=spec.port)
        log = self.run.launch_path(name) / "engine.log"
        try:
            process = EngineProcess.start(spec, log, self.run.path)
        except EngineMissing as error:
            failure = Failure(
                FailureClass.ENGINE_MISSING, str(error), "Run `specbench doctor` with this config."
            )
            return self._launch_failed(record, failure)
        self.current = process
        sampler = ProcessTreeSampler(process.pids)
        sampler.start()
        lost: Failure | None = None
        try:
            async with aiohttp.ClientSession() as session:
                try:
                    ready = await wait_ready(
                        engine,
                        spec,
                        process,
                        session,
                        config.engine.startup_timeout,
                        lambda phase, _s: self.watcher.launch_phase(phase),
                    )
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
                lost = await self._cells(launch, cells, name, served)
        finally:
            await self._stop(process, record, sampler, lost)
        return None

    async def _cells(
        self, launch: LaunchPlan, cells: list[CellPlan], name: str, served: Served
    ) -> Failure | None:
        """All cells of a launch; when the engine dies, the rest are failed with the same cause."""
        top = max(c.load.concurrency for c in cells)
        config = self.prepared.loaded.config
        how = How(config.workload.seconds, config.measure.client_lag_limit)
        async with open_client(
            served.spec.base_url,
            served.spec.served_model,
            connections=top,
            stall_timeout_s=min(config.workload.request_timeout, STALL_TIMEOUT_S),
            total_timeout_s=config.workload.request_timeout,
        ) as transport:
            for i, cell in enumerate(cells):
                began, t0 = utc_now(), time.monotonic()
                mix = self.prepared.mixes[cell.load.id]
                progress = Progress()
                self.watcher.cell_started(launch.arm.id, cell.load.id, len(mix.measured), progress)
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
            warmup_ok=measured.warmup_ok,
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
        process: EngineProcess,
        record: r.LaunchRecord,
        sampler: ProcessTreeSampler,
        lost: Failure | None,
    ) -> None:
        sampler.stop()
        report = await process.stop(self.prepared.loaded.config.engine.stop_timeout)
        self.current = None
        served = record.startup_s is not None
        self.run.write_launch(
            _with(
                record,
                status=("died" if lost is not None else "stopped") if served else "failed",
                failure=_failure_record(lost),
                memory_peak_bytes=sampler.use.peak_rss_bytes or None,
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
