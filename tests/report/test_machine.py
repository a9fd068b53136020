"""From what was observed to tables, context and warnings; what was not measured is not shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from specbench.analysis.run import analyse
from specbench.report.build import build
from specbench.report.cost_table import cost_table
from specbench.report.html import to_html
from specbench.report.jsonfile import from_json, to_json
from specbench.report.machine import headroom, unlike_machines
from specbench.report.machine_tables import machine_section
from specbench.report.markdown import to_markdown
from specbench.report.model import ArmSummary, Ratio, Result
from specbench.report.tables import ordered_loads
from specbench.runs.observation import GpuSeries, HostSeries, Observation
from specbench.runs.rundir import RunDir
from tests.report import samples
from tests.synthetic import Pace, SyntheticRun

SPECULATIVE = "ngram-k4"


@dataclasses.dataclass(frozen=True)
class Gpu:
    """How one arm's GPU behaved."""

    busy: float | None = 0.97
    clock_mhz: float | None = 1980.0
    mask: int | None = 0
    power_w: float | None = 400.0


def observed(gpu: Gpu | None, times: tuple[float, ...]) -> Observation:
    n = len(times)
    host = HostSeries(
        cores=4,
        t_s=times,
        cpu_s=tuple(2.0 * t for t in times),
        memory_used_bytes=(3 << 30,) * n,
        engine_cpu_s=times,
        engine_rss_bytes=(1 << 30,) * n,
    )
    if gpu is None:
        return Observation(gpu_why_null="no NVIDIA driver answers (not found)", host=host)
    series = GpuSeries(
        index=0,
        name="NVIDIA H200",
        uuid="GPU-0",
        power_limit_w=800.0 if gpu.power_w else None,
        t_s=times,
        utilization=(gpu.busy,) * n,
        memory_used_bytes=(100 << 30,) * n,
        power_w=(gpu.power_w,) * n,
        energy_j=(None,) * n,
        sm_clock_mhz=(gpu.clock_mhz,) * n,
        clock_reasons=(gpu.mask,) * n,
        why_null={} if gpu.power_w else {"power_w": "Not Supported", "energy_j": "Not Supported"},
    )
    return Observation(gpus=(series,), gpu_basis="processes of the engine on it", host=host)


Make = Callable[..., RunDir]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run of two rounds whose arms had these GPUs; null is a machine without any."""

    def write(baseline: Gpu | None, speculative: Gpu | None) -> RunDir:
        pace: dict[tuple[str, int, int], Pace | str | None] = {
            (arm, c, n): Pace(0.05 if arm == "baseline" else 0.03 + 0.0001 * n)
            for arm in ("baseline", SPECULATIVE)
            for c in (1, 4)
            for n in (1, 2)
        }
        gpus = {"baseline": baseline, SPECULATIVE: speculative}
        run = SyntheticRun(rounds=2, machine=lambda arm, _round, times: observed(gpus[arm], times))
        return run.write(tmp_path, pace)

    return write


def section_of(result: Result) -> str:
    return to_markdown(result).partition("### Machine during the measurement")[2]


def test_figures_reach_the_result_and_every_format(make: Make) -> None:
    result = build(make(Gpu(), Gpu(power_w=500.0)))
    item = result.at(SPECULATIVE, "c4")
    assert item is not None
    found = item.machine
    assert found is not None
    assert found.gpus == 1
    assert found.gpu_utilization == pytest.approx(0.97)
    assert found.gpu_power_w == pytest.approx(500)
    assert found.gpu_power_limit_w == pytest.approx(800)
    assert found.energy_source == "power samples"
    assert item.output_tokens_per_s is not None
    assert found.tokens_per_joule == pytest.approx(item.output_tokens_per_s / 500, rel=0.01)
    assert found.tokens_per_joule_ratio.value == pytest.approx((item.speedup.value or 0) * 400 / 500)
    assert found.tokens_per_joule_ratio.low is not None
    assert found.cpu_share == pytest.approx(0.5)
    assert found.engine_cores == pytest.approx(1.0)
    assert from_json(to_json(result)) == result
    for text in (to_html(result), to_markdown(result)):
        assert "Machine during the measurement" in text
        assert "GPU was 97% busy in the baseline at concurrency 4" in text
        assert "500 W (62% of limit)" in text
        assert "how many SMs" in text


def test_a_machine_without_gpus_shows_the_host_and_says_why(make: Make) -> None:
    result = build(make(None, None))
    assert result.headroom == ()
    item = result.at("baseline", "c1")
    assert item is not None
    assert item.machine is not None
    assert item.machine.tokens_per_joule is None
    assert item.machine.energy_why_null == "no NVIDIA driver answers (not found)"
    text = section_of(result)
    assert "CPU busy" in text
    assert "GPU busy" not in text
    assert "joule" not in text.lower().split("<sub>")[0]
    assert "how many SMs" not in text
    assert "GPUs: not measured (no NVIDIA driver answers (not found))" in text
    assert "GPUs: not measured (no NVIDIA driver answers (not found))" in to_html(result)


def test_without_power_figures_there_are_no_joules(make: Make) -> None:
    result = build(make(Gpu(power_w=None), Gpu(power_w=None)))
    section = machine_section(result, ordered_loads(result))
    assert section is not None
    assert "GPU busy" in section.columns
    assert not [c for c in section.columns if "joule" in c or "power" in c or "baseline" in c]
    assert section.missing == (
        "Tokens per joule: not measured (GPU 0 gives no power figure (Not Supported))",
    )


def test_nothing_measured_shows_nothing() -> None:
    result = samples.inconclusive()
    assert all(r.machine is None for r in result.results)
    assert machine_section(result, ordered_loads(result)) is None
    assert "Machine during" not in to_markdown(result)
    assert 'id="machine"' not in to_html(result)
    assert 'id="machine"' in to_html(samples.go())


@pytest.mark.parametrize(
    ("busy", "words"),
    [
        (0.97, "GPU was 97% busy in the baseline at concurrency 1, at 50% of the power limit: "
               "speculation competes for time on it."),
        (0.9, "speculation competes for time on it."),
        (0.7, "GPU was 70% busy in the baseline at concurrency 1, at 50% of the power limit: "
              "it is idle for part of the time."),
        (0.3, "it waits for something else, the host or requests, more than half of the time."),
    ],
)  # fmt: skip
def test_headroom_is_the_baselines(make: Make, busy: float, words: str) -> None:
    notes = headroom(analyse(make(Gpu(busy=busy), Gpu(busy=0.123))))
    assert [n.code for n in notes] == ["gpu_busy"] * 2  # one for each load
    assert words in notes[0].message
    assert "12%" not in notes[0].message


def test_no_utilisation_no_headroom(make: Make) -> None:
    assert headroom(analyse(make(Gpu(busy=None), Gpu()))) == ()


@pytest.mark.parametrize(
    ("baseline", "speculative", "codes"),
    [
        (Gpu(), Gpu(), []),
        (Gpu(), Gpu(mask=0x4), ["gpu_throttling"]),
        (Gpu(mask=0x40), Gpu(), ["gpu_throttling"]),
        (Gpu(mask=0x4), Gpu(mask=0x4), []),  # both alike
        (Gpu(), Gpu(mask=0x1), []),  # idle is no throttling
        (Gpu(), Gpu(mask=None), []),
        (Gpu(), Gpu(clock_mhz=1980 * 0.975), []),
        (Gpu(), Gpu(clock_mhz=1980 * 0.965), ["gpu_clock"]),
        (Gpu(), Gpu(clock_mhz=1980 * 1.035), ["gpu_clock"]),
        (Gpu(), Gpu(clock_mhz=None), []),
        (Gpu(), Gpu(clock_mhz=1500, mask=0x20), ["gpu_throttling", "gpu_clock"]),
        (None, None, []),
        (None, Gpu(mask=0x20), []),
    ],
)
def test_arms_whose_machines_differ_are_named(
    make: Make, baseline: Gpu | None, speculative: Gpu | None, codes: list[str]
) -> None:
    run = make(baseline, speculative)
    found = unlike_machines(analyse(run))
    assert [n.code for n in found] == codes * 2  # at both loads
    told = [n for n in build(run).warnings if n.code.startswith("gpu_")]
    assert told == found


def test_the_warning_names_reasons_and_sizes(make: Make) -> None:
    throttled, clock = unlike_machines(analyse(make(Gpu(), Gpu(clock_mhz=1485, mask=0x20))))[:2]
    assert throttled.message == (
        "ngram-k4 at concurrency 1: the GPU's clocks were held down in 100% of the samples, in the baseline in 0% "
        "(thermal (software))."
    )
    assert clock.message == (
        "ngram-k4 at concurrency 1: the SM clock was 1,485 MHz on average, in the baseline 1,980 MHz (-25.0%)."
    )
    assert "differ in more than speculation" in clock.action


def costs(*arms: ArmSummary) -> tuple[tuple[str, ...], dict[str, list[str]], tuple[str, ...]]:
    table = cost_table(msgspec.structs.replace(samples.go(), arms=arms))
    rows = {name: [c.text for c in cells] for name, cells in table.rows}
    return table.columns, rows, table.left_out


def summary(arm: str, method: str | None, **changes: object) -> ArmSummary:
    base = samples.summary(arm, method, "head" if method else None, None, Ratio(), "GO")
    return msgspec.structs.replace(base, **changes)


def test_costs_are_beside_the_baselines_of_the_same_engine() -> None:
    gib = 1 << 30
    columns, rows, left_out = costs(
        summary("baseline", None, weights_bytes=15 * gib, memory_peak_bytes=8 * gib, startup_s=(60.0, 62.0)),
        summary(
            "eagle3",
            "eagle3",
            weights_bytes=16 * gib,
            draft_weights_bytes=gib // 2,
            memory_peak_bytes=7 * gib,
            startup_s=(80.0,),
            max_running_requests=48,
        ),
        summary("baseline@sglang", None, engine="sglang", kv_capacity_tokens=100),
        summary("other", "eagle", engine="sglang", kv_capacity_tokens=50),
    )
    assert left_out == ()
    eagle = dict(zip(columns, rows["eagle3"], strict=True))
    assert eagle["Start-up"] == "80.0 s (+19.0 s)"
    assert eagle["Weights"] == "16.0 GiB (+1.00 GiB)"
    assert eagle["Draft's weights"] == "512 MiB"
    assert eagle["KV capacity, tokens"] == "701,440 (-5%)"
    assert eagle["Requests run at once, at most"] == "48 (-81%)"
    assert eagle["Memory of its processes, peak"] == "7.00 GiB (-1.00 GiB)"
    base = dict(zip(columns, rows["baseline"], strict=True))
    assert base["Draft's weights"] == "–"
    assert "(" not in "".join(rows["baseline"])
    assert dict(zip(columns, rows["other"], strict=True))["KV capacity, tokens"] == "50 (-50%)"


def test_what_no_engine_tells_has_no_column() -> None:
    nothing = {"weights_bytes": None, "weights_load_s": None, "max_running_requests": None}
    columns, rows, left_out = costs(
        summary("baseline", None, **nothing), summary("ngram", "ngram", **nothing)
    )
    assert left_out == ("Weights", "Draft's weights", "Weights loaded in", "Requests run at once, at most")
    assert not set(left_out) & set(columns)
    assert {len(row) for row in rows.values()} == {len(columns)}


def test_costs_reach_the_result(tmp_path: Path) -> None:
    pace: dict[tuple[str, int, int], Pace | str | None] = {
        (arm, 4, 1): Pace(0.05) for arm in ("baseline", SPECULATIVE)
    }
    run = SyntheticRun(loads=(4,), rounds=1).write(tmp_path, pace)
    arm = next(a for a in build(run).arms if a.arm == SPECULATIVE)
    assert (arm.weights_bytes, arm.max_concurrency) == (None, 10.0)  # 1,000 tokens over 100
    for launch in run.launches():
        run.write_launch(
            msgspec.structs.replace(
                launch,
                weights_bytes=5,
                draft_weights_bytes=2,
                weights_load_s=1.5,
                max_concurrency=9.25,
                max_running_requests=48,
            )
        )
    arm = next(a for a in build(run).arms if a.arm == SPECULATIVE)
    assert (arm.weights_bytes, arm.draft_weights_bytes, arm.weights_load_s) == (5, 2, 1.5)
    assert (arm.max_concurrency, arm.max_running_requests) == (9.25, 48)  # the engine's own figure
