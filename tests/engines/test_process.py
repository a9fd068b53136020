"""Start and stop of real processes: nothing survives a stop, and nothing else is hit."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from specbench.engines import ledger
from specbench.engines.base import EngineMissing, LaunchSpec
from specbench.engines.process import EngineProcess
from specbench.observe.host import Gpu
from tests.engines.children import FAMILY, POLITE, STUBBORN, child, server
from tests.engines.conftest import Start, wait_for


def gone(pid: int, timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_polite_child_ends_on_sigterm(start: Start) -> None:
    process = start(child(POLITE))
    wait_for(process, "polite")
    assert process.poll() is None
    report = asyncio.run(process.stop(20.0))
    assert (report.how, report.returncode, report.killed, report.clean) == ("terminated", -15, (), True)
    assert process.poll() == -15
    assert process.pids() == frozenset()


def test_a_child_that_ignores_sigterm_is_killed(start: Start) -> None:
    process = start(child(STUBBORN))
    wait_for(process, "stubborn")
    report = asyncio.run(process.stop(0.2))
    assert report.how == "killed"
    assert report.returncode == -9
    assert [line.split()[0] for line in report.killed] == [str(process.pid)]
    assert report.clean


def test_grandchildren_in_other_sessions_and_orphans_are_found_and_killed(start: Start) -> None:
    process = start(child(FAMILY))
    text = wait_for(process, "family")
    pids = {
        int(line.split()[1]) for line in text.splitlines() if line.split()[0] in ("same", "other", "orphan")
    }
    assert len(pids) == 3
    assert pids | {process.pid} <= process.pids()
    report = asyncio.run(process.stop(0.2))
    assert {int(line.split()[0]) for line in report.killed} >= pids
    assert report.clean
    assert all(gone(pid) for pid in pids)


def test_death_is_seen_with_its_exit_code_and_its_helpers_are_still_stopped(start: Start) -> None:
    source = """
        import subprocess, sys
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
        print("helper", helper.pid, flush=True)
        sys.exit(7)
    """
    process = start(child(source))
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() == 7
    helper = int(process.log_text().split()[1])
    assert helper in process.pids()
    report = asyncio.run(process.stop(5.0))
    assert (report.how, report.returncode, report.clean) == ("already_dead", 7, True)
    assert gone(helper)


def test_stop_twice_gives_the_same_report(start: Start) -> None:
    async def both(process: EngineProcess) -> None:
        first, second = await asyncio.gather(process.stop(5.0), process.stop(0.0))
        assert first is second
        assert await process.stop(1.0) is first

    process = start(child(POLITE))
    wait_for(process, "polite")
    asyncio.run(both(process))


def test_a_cancelled_stop_still_stops(start: Start) -> None:
    async def cancel(process: EngineProcess) -> None:
        task = asyncio.create_task(process.stop(0.5))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert process.pids() == frozenset()

    process = start(child(STUBBORN))
    wait_for(process, "stubborn")
    asyncio.run(cancel(process))
    assert gone(process.pid)


def test_the_port_is_free_again_after_a_stop(start: Start) -> None:
    spec = server()
    process = start(spec)
    wait_for(process, "capturing")
    report = asyncio.run(process.stop(5.0))
    assert report.port_free
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", spec.port))


def test_a_port_that_somebody_else_took_is_reported(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench.engines.process._PORT_WAIT_S", 0.1)
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        process = start(child(POLITE, port=foreign.getsockname()[1]))
        report = asyncio.run(process.stop(5.0))
    assert not report.port_free
    assert not report.clean


def test_a_stop_waits_until_the_gpus_memory_is_back(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([1 << 30, 40 << 30, 40 << 30, (1 << 30) + 5])
    monkeypatch.setattr(
        "specbench.engines.process.nvidia_gpus", lambda: (Gpu("H200", 80 << 30, next(used), "570"),)
    )
    process = start(child(POLITE))
    wait_for(process, "polite")
    report = asyncio.run(process.stop(5.0))
    assert report.gpu_held_bytes == 5
    assert next(used, None) is None


def test_without_gpus_nothing_is_said_of_their_memory(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench.engines.process.nvidia_gpus", lambda: ())
    assert asyncio.run(start(child(POLITE)).stop(5.0)).gpu_held_bytes is None


def test_a_missing_command_says_how_to_mend_it(tmp_path: Path) -> None:
    spec = LaunchSpec("arm", ("no-such-engine", "serve"), {}, 1, "http://127.0.0.1:1", "specbench-arm")
    with pytest.raises(EngineMissing, match=r"no-such-engine.*No such file.*engine\.command"):
        EngineProcess.start(spec, tmp_path / "engine.log", tmp_path)


def test_the_environment_is_ours_plus_the_arms_without_stale_metrics(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "stale")
    monkeypatch.setenv("FROM_OUTSIDE", "kept")
    source = (
        "import os; print(*(os.environ.get(k) for k in ('PROMETHEUS_MULTIPROC_DIR', 'FROM_OUTSIDE', 'OWN')))"
    )
    process = start(child(source, env={"OWN": "set"}))
    wait_for_end(process)
    assert process.log_text().split() == ["None", "kept", "set"]


def test_the_log_is_appended_and_only_this_launch_is_read(start: Start, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("an earlier launch\n")
    process = start(child("print('first'); print('second', end='')"))
    wait_for_end(process)
    assert process.log_text() == "first\nsecond"
    assert process.read_log() == ("first\n", 6)
    assert process.read_log(6) == ("", 6)
    assert (tmp_path / "engine.log").read_text().startswith("an earlier launch\nfirst")


def test_a_huge_log_is_read_in_bounds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench.engines.process.HEAD_BYTES", 100)
    monkeypatch.setattr("specbench.engines.process.TAIL_BYTES", 50)
    process = start(child("print('a' * 100 + 'b' * 1000 + 'c' * 49)"))
    wait_for_end(process)
    assert process.log_text() == "a" * 100 + "\n... 1000 bytes left out ...\n" + "c" * 49 + "\n"


def test_nothing_outlives_a_specbench_that_was_killed(tmp_path: Path) -> None:
    """The whole point of the guard: SIGKILL of the parent, engine with stubborn and detached children."""
    script = f"""
        import time
        from pathlib import Path
        from specbench.engines.process import EngineProcess
        from tests.engines.children import FAMILY, child
        process = EngineProcess.start(child(FAMILY), Path({str(tmp_path)!r}) / "engine.log",
                                      Path({str(tmp_path)!r}), grace_s=0.2)
        while "family" not in process.log_text():
            time.sleep(0.02)
        print(*process.pids(), flush=True)
        time.sleep(120)
    """
    root = Path(__file__).parents[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) == 4
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert all(gone(pid) for pid in pids)


def test_a_killed_guard_is_replaced_by_a_direct_stop(start: Start) -> None:
    process = start(child(STUBBORN))
    wait_for(process, "stubborn")
    assert process.pid in process.pids()
    os.kill(process._guard.pid, signal.SIGKILL)
    process._guard.wait()
    assert process.poll() is None
    report = asyncio.run(process.stop(0.2))
    assert report.how == "killed"
    assert report.clean
    assert gone(process.pid)


def test_the_ledger_names_leftovers_only_when_the_guard_is_gone(start: Start, state_folder: Path) -> None:
    process = start(child(STUBBORN))
    wait_for(process, "stubborn")
    assert len(list(ledger.folder().glob("*.json"))) == 1
    assert ledger.leftovers() == ()
    os.kill(process._guard.pid, signal.SIGKILL)
    process._guard.wait()
    (found,) = ledger.leftovers()
    assert found.entry.arm == "arm"
    assert [pid for pid, _ in found.processes] == [process.pid]
    asyncio.run(process.stop(0.0))
    assert ledger.leftovers() == ()
    assert list(ledger.folder().glob("*.json")) == []


def test_a_ledger_entry_whose_pid_was_reused_is_forgotten(state_folder: Path) -> None:
    later = time.time() + 1000  # every process that now has these numbers is older than the engine
    ledger.record(ledger.Entry("arm", os.getsid(0), later, os.getpid(), later, 1, "engine.log"))
    (ledger.folder() / "broken.json").write_text("{")
    assert ledger.leftovers() == ()
    assert list(ledger.folder().iterdir()) == []


def wait_for_end(process: EngineProcess) -> None:
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() == 0, process.log_text()
