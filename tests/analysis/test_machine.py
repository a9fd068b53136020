"""Energy, clocks and throttling of a window, against sums done by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from specbench.analysis.machine import COUNTER, POWER, arm_machine, machine_use
from specbench.analysis.run import RunAnalysis, analyse
from specbench.analysis.window import Window
from specbench.runs.observation import GpuSeries, HostSeries, Observation
from tests.synthetic import Pace, SyntheticRun

WINDOW = Window(2.5, 7.5, 100)
TIMES = tuple(float(t) for t in range(11))


def gpu(**changes: object) -> GpuSeries:
    """Ten seconds at 400 W, 90 % busy and 1,980 MHz, with an energy counter that says so."""
    n = len(TIMES)
    base = GpuSeries(
        index=0,
        name="NVIDIA H200",
        uuid="GPU-0",
        power_limit_w=700.0,
        t_s=TIMES,
        utilization=(0.9,) * n,
        memory_used_bytes=(100,) * n,
        power_w=(400.0,) * n,
        energy_j=tuple(1e6 + 400.0 * t for t in TIMES),
        sm_clock_mhz=(1980.0,) * n,
        clock_reasons=(0,) * n,
    )
    return msgspec.structs.replace(base, **changes)


NO_COUNTER: tuple[None, ...] = (None,) * len(TIMES)


def energy(*gpus: GpuSeries, window: Window = WINDOW) -> tuple[object, str | None, str | None]:
    """Joules, where they come from, and why there are none."""
    found = machine_use(Observation(gpus=gpus), window, 1000).gpu
    assert found is not None
    return found.energy_j, found.energy_source, found.energy_why_null


def test_the_counter_is_read_at_the_edges_of_the_window() -> None:
    # 2.5 s to 7.5 s, both between samples.
    assert energy(gpu()) == (pytest.approx(400 * 5.0), COUNTER, None)
    found = machine_use(Observation(gpus=(gpu(),)), WINDOW, 1000)
    assert found.tokens_per_joule == pytest.approx(1000 / 2000)


def test_the_counter_comes_before_power() -> None:
    # Power is a sample, the counter does not miss what lies between.
    assert energy(gpu(power_w=(1.0,) * len(TIMES)))[:2] == (pytest.approx(2000), COUNTER)


def test_power_is_integrated_by_trapezoids() -> None:
    ramp = gpu(energy_j=NO_COUNTER, power_w=tuple(100 * t for t in TIMES))
    assert energy(ramp) == (pytest.approx((750 + 250) / 2 * 5.0), POWER, None)
    step = gpu(energy_j=NO_COUNTER, power_w=tuple(100.0 if t <= 5 else 300.0 for t in TIMES))
    # 2.5 to 5 at 100 W, a slope of one second to 300 W, then 1.5 s of it.
    assert energy(step)[0] == pytest.approx(250 + 200 + 450)


@pytest.mark.parametrize("t0", [4, 6])
def test_a_counter_that_went_back_or_stands_still_is_not_used(t0: int) -> None:
    restarted = tuple(400.0 * t + (1e6 if t < t0 else 0.0) for t in TIMES)
    assert energy(gpu(energy_j=restarted)) == (pytest.approx(2000), POWER, None)
    assert energy(gpu(energy_j=(5.0,) * len(TIMES))) == (pytest.approx(2000), POWER, None)


def test_gpus_are_added_up_and_none_is_left_out() -> None:
    two = (gpu(), gpu(index=1, uuid="GPU-1", energy_j=NO_COUNTER, power_w=(100.0,) * len(TIMES)))
    assert energy(*two) == (pytest.approx(2500), f"{COUNTER} and {POWER}", None)
    silent = gpu(
        index=1, uuid="GPU-1", energy_j=NO_COUNTER, power_w=NO_COUNTER, why_null={"power_w": "Not Supported"}
    )
    joules, source, why = energy(gpu(), silent)
    assert (joules, source) == (None, None)
    assert why == "GPU 1 gives no power figure (Not Supported)"
    found = machine_use(Observation(gpus=(gpu(), silent)), WINDOW, 1000)
    assert found.tokens_per_joule is None
    assert found.gpu is not None
    assert found.gpu.power_w is None  # of all GPUs, not of those that tell
    assert found.gpu.utilization == pytest.approx(0.9)


def test_energy_needs_samples_around_and_inside_the_window() -> None:
    assert energy(gpu(), window=Window(2.5, 10.5, 1)) == (
        None,
        None,
        "the steady window reaches beyond the samples",
    )
    assert (
        energy(gpu(), window=Window(2.5, 3.5, 1))[2] == "1 samples fell into the steady window, 2 are needed"
    )
    hole = tuple(None if 3 < t < 9 else 1.0 for t in TIMES)
    assert energy(gpu(energy_j=NO_COUNTER, power_w=hole), window=Window(1.5, 9.5, 1))[2] == (
        "samples are more than 5 s apart"
    )
    one = tuple(None if t == 5 else 400.0 for t in TIMES)  # one lost reading is bridged
    assert energy(gpu(energy_j=NO_COUNTER, power_w=one)) == (pytest.approx(2000), POWER, None)


def test_means_and_peaks_are_of_the_window_alone() -> None:
    outside = [t <= 2.5 or t > 7.5 for t in TIMES]
    found = machine_use(
        Observation(
            gpus=(
                gpu(
                    utilization=tuple(0.0 if o else 0.5 for o in outside),
                    memory_used_bytes=tuple(999 if o else 7 + i for i, o in enumerate(outside)),
                    sm_clock_mhz=tuple(210.0 if o else 1500.0 for o in outside),
                    power_w=tuple(80.0 if o else None for o in outside),
                ),
                gpu(
                    index=1,
                    uuid="GPU-1",
                    utilization=(1.0,) * len(TIMES),
                    sm_clock_mhz=(1700.0,) * len(TIMES),
                ),
            )
        ),
        WINDOW,
        1000,
    ).gpu
    assert found is not None
    assert (found.gpus, found.samples) == (2, 5)
    assert found.utilization == pytest.approx(0.75)
    assert found.memory_peak_bytes == 100
    assert found.sm_clock_mhz == pytest.approx(1600)
    assert found.power_w is None
    assert found.power_limit_w == 1400


def test_an_idle_gpu_or_set_clocks_are_no_throttling() -> None:
    masks = (0, 0, 0, 0x1, 0x2 | 0x100, 0x4, 0x4 | 0x20, 0, 0x40, 0x40, 0x40)
    found = machine_use(Observation(gpus=(gpu(clock_reasons=masks),)), WINDOW, 1000).gpu
    assert found is not None
    assert found.throttled == pytest.approx(2 / 5)  # samples at 3, 4, 5, 6 and 7 s
    assert found.reasons == {"power cap": pytest.approx(2 / 5), "thermal (software)": pytest.approx(1 / 5)}
    unknown = machine_use(Observation(gpus=(gpu(clock_reasons=NO_COUNTER),)), WINDOW, 1000).gpu
    assert unknown is not None
    assert unknown.throttled is None


def test_a_machine_without_gpus_says_why() -> None:
    found = machine_use(Observation(gpu_why_null="no NVIDIA driver answers"), WINDOW, 1000)
    assert (found.gpu, found.gpu_why_null) == (None, "no NVIDIA driver answers")
    old = machine_use(None, WINDOW, 1000)
    assert (old.gpu_why_null, old.host_why_null) == ("not recorded", "not recorded")
    future = machine_use(Observation(schema="specbench.observation/9", gpus=(gpu(),)), WINDOW, 1000)
    assert future.gpu is None
    assert "specbench.observation/9" in (future.gpu_why_null or "")
    early = machine_use(Observation(gpus=(gpu(),)), Window(20, 30, 1), 1000)
    assert early.gpu_why_null == "no sample fell into the steady window"


def test_processor_time_is_a_difference_of_counters() -> None:
    host = HostSeries(
        cores=8,
        t_s=TIMES,
        cpu_s=tuple(1000 + 2.0 * t for t in TIMES),
        memory_used_bytes=tuple(range(11)),
        engine_cpu_s=tuple(1.5 * t for t in TIMES),
        engine_rss_bytes=(5,) * 11,
    )
    found = machine_use(Observation(host=host), WINDOW, 1000).host
    assert found is not None
    assert found.cpu_share == pytest.approx(0.25)
    assert found.engine_cores == pytest.approx(1.5)
    assert (found.memory_peak_bytes, found.engine_peak_bytes) == (7, 5)
    hidden = msgspec.structs.replace(host, engine_cpu_s=(), engine_rss_bytes=())
    unseen = machine_use(Observation(host=hidden), WINDOW, 1000).host
    assert unseen is not None
    assert (unseen.engine_cores, unseen.engine_peak_bytes) == (None, None)
    assert unseen.cpu_share == pytest.approx(0.25)
    short = machine_use(Observation(host=host), Window(2.5, 3.5, 1), 1000)
    assert short.host is None
    assert short.host_why_null == "too few samples fell into the steady window"


def analysed(tmp_path: Path) -> RunAnalysis:
    """Three rounds; the arm is twice as fast and draws 400 W like the baseline."""
    pace = {
        (arm, 4, n): Pace(0.05, tokens_per_step=1 if arm == "baseline" else 2)
        for arm in ("baseline", "ngram-k4")
        for n in (1, 2, 3)
    }
    run = SyntheticRun(loads=(4,), machine=lambda arm, _n, times: Observation(gpus=(at_400_w(times),))).write(
        tmp_path, dict(pace)
    )
    return analyse(run)


def at_400_w(times: tuple[float, ...]) -> GpuSeries:
    n = len(times)
    return GpuSeries(
        index=0,
        name="NVIDIA H200",
        uuid="GPU-0",
        t_s=times,
        utilization=(0.9,) * n,
        memory_used_bytes=(100,) * n,
        power_w=(400.0,) * n,
        energy_j=tuple(400.0 * t for t in times),
        sm_clock_mhz=(1980.0,) * n,
        clock_reasons=(0,) * n,
    )


def test_tokens_per_joule_are_compared_within_rounds(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    x, base = run.at["ngram-k4", "c4"], run.at["baseline", "c4"]
    own = arm_machine(x, base)
    reference = arm_machine(base, base)
    assert own is not None
    assert reference is not None
    # At equal power the ratio is the ratio of throughputs.
    assert len(own.tokens_per_joule_ratio.per_round) == 3
    assert own.tokens_per_joule_ratio.value == pytest.approx(x.speedup.value)
    cell = base.valid[0]
    assert cell.times is not None
    assert reference.tokens_per_joule == pytest.approx((cell.times.output_tokens_per_s or 0) / 400)
    assert own.energy_source == COUNTER
    assert own.memory_peak_bytes == 100
    assert reference.tokens_per_joule_ratio.why_null == "this is the baseline"


def test_joules_of_different_sources_are_not_compared(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    x, base = run.at["ngram-k4", "c4"], run.at["baseline", "c4"]
    for cell in x.cells[:2]:
        assert cell.machine is not None
        assert cell.machine.gpu is not None
        cell.machine = replace(cell.machine, gpu=replace(cell.machine.gpu, energy_source=POWER))
    own = arm_machine(x, base)
    assert own is not None
    assert len(own.tokens_per_joule_ratio.per_round) == 1


def test_runs_from_before_are_read(tmp_path: Path) -> None:
    pace = {("baseline", 4, 1): Pace(0.05), ("ngram-k4", 4, 1): Pace(0.04)}
    run = SyntheticRun(loads=(4,), rounds=1).write(tmp_path, dict(pace))
    for path in (run.path / "cells").glob("*/cell.json"):
        data = msgspec.json.decode(path.read_bytes())
        del data["machine"]
        path.write_bytes(msgspec.json.encode(data))
    found = analyse(run)
    machine = arm_machine(found.at["ngram-k4", "c4"], found.at["baseline", "c4"])
    assert machine is not None
    assert machine.gpu_why_null == "not recorded"
    assert machine.tokens_per_joule is None
