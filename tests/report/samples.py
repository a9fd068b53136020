"""Results to print: every shape a report has to survive. Made of formulas, so always the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from specbench.report.model import (
    Acceptance,
    ArmAtLoad,
    ArmSummary,
    CategoryCut,
    Decision,
    FailureNote,
    Machine,
    MachineAtLoad,
    Note,
    Quantiles,
    Ratio,
    Recommended,
    Result,
)

NO_QUANTILES = Quantiles(n=0)

MACHINE = Machine(
    hostname="bench-07",
    cpu="AMD EPYC 9354 32-Core Processor",
    cores=32,
    memory_gib=377.4,
    gpus=("NVIDIA H200 141 GB",),
    os="Linux 6.8.0, Ubuntu 24.04",
    python="3.12.7",
    fingerprint="9f2c41d07be3",
)

CONFIG_YAML = """\
name: qwen-chat
target: Qwen/Qwen3-8B
engine:
  kind: vllm
  args:
    max-model-len: 8192
arms:
  - method: eagle3
    draft: AngelSlim/Qwen3-8B_eagle3
    k: [3, 5]
  - method: ngram
    k: 4
    settings: {prompt_lookup_max: 4}
loads:
  closed: [1, 4, 16, 64]
"""


def ratio(value: float, spread: float, rounds: int) -> Ratio:
    """A ratio whose rounds lie evenly around ``value``."""
    if rounds < 2:
        return Ratio(value=value, per_round=(value,))
    steps = [value * (1 + spread * (i - (rounds - 1) / 2) / rounds) for i in range(rounds)]
    return Ratio(value=value, low=value * (1 - spread), high=value * (1 + spread), per_round=tuple(steps))


def quantiles(n: int, p50: float, skew: float) -> Quantiles:
    """Log-normal quantiles with a histogram of 36 bins."""

    def at(z: float) -> float:
        return p50 * math.exp(skew * z)

    edges = [at(-2.6 + 5.6 * (i + 1) / 36) for i in range(36)]
    zs = [-2.6 + 5.6 * (i + 0.5) / 36 for i in range(36)]
    bins = tuple((e, round(n * 0.062 * math.exp(-z * z / 2))) for e, z in zip(edges, zs, strict=True))
    return Quantiles(
        n=n,
        mean=p50 * math.exp(skew * skew / 2),
        p50=p50,
        p90=at(1.2816),
        p95=at(1.6449),
        p99=at(2.3263) if n >= 1000 else None,
        thin=n < 200,
        histogram=bins,
    )


def acceptance(k: int, first: float, decay: float, coverage: float) -> Acceptance:
    """Acceptance that falls geometrically from position to position."""
    positions = tuple(first * decay**i for i in range(k))
    length = 1 + sum(positions)
    return Acceptance(
        length=length,
        rate=sum(positions) / k,
        per_position=positions,
        coverage=coverage,
        tokens_per_step=1 + coverage * (length - 1),
        client_tokens_per_chunk=1 + coverage * (length - 1) * 0.98,
    )


BASELINE_ACCEPTANCE = Acceptance(why_null="the baseline does not speculate")


def cell(
    arm: str,
    concurrency: int,
    speedup: Ratio,
    decision: Decision,
    reasons: Sequence[str] = (),
    *,
    tokens_per_s: float,
    accepted: Acceptance = BASELINE_ACCEPTANCE,
    rounds: int = 5,
    factor: float = 1.0,
    categories: Sequence[tuple[str, float]] = (),
) -> ArmAtLoad:
    """One arm at one load; latencies scale with ``factor`` over a plausible baseline."""
    n = 60 * concurrency + 90
    tpot = 9.0 + 0.12 * concurrency
    per_chunk = accepted.client_tokens_per_chunk or 1.0
    return ArmAtLoad(
        arm=arm,
        load=f"c{concurrency}",
        concurrency=concurrency,
        cells=rounds,
        failed_cells=0,
        invalid_cells=0,
        output_tokens_per_s=tokens_per_s,
        per_launch_tokens_per_s=tuple(tokens_per_s * (1 + 0.01 * (i - rounds // 2)) for i in range(rounds)),
        speedup=speedup,
        decision=decision,
        reasons=tuple(reasons),
        ttft_ms=quantiles(n, 28 + 1.9 * concurrency * factor, 0.35),
        tpot_ms=quantiles(n, tpot * factor, 0.16),
        chunk_gap_ms=quantiles(n * 80, tpot * factor * per_chunk, 0.12),
        acceptance=accepted,
        categories=tuple(
            CategoryCut(
                category=name,
                requests=n // 4,
                tpot_ms=tpot / s,
                tpot_speedup=ratio(s, 0.04, rounds),
                tokens_per_chunk=per_chunk * s / 1.3,
            )
            for name, s in categories
        ),
        requests=n,
        failed_requests=0,
        mean_output_tokens=231.4,
        cached_prompt_share=0.031,
        kv_usage_peak=min(0.9, 0.01 * concurrency + 0.02),
        preemptions=0.0,
    )


def summary(
    arm: str,
    method: str | None,
    draft: str | None,
    k: int | None,
    mix: Ratio,
    decision: Decision,
    reasons: Sequence[str] = (),
    **changes: Any,
) -> ArmSummary:
    """One arm over all loads; ``changes`` replace fields."""
    config = {"method": method, "num_speculative_tokens": k} | ({"model": draft} if draft else {})
    text = msgspec.json.encode(config).decode()
    flags = () if method is None else ("--speculative-config", text)
    base = ArmSummary(
        arm=arm,
        method=method,
        draft=draft,
        k=k,
        settings={"prompt_lookup_max": 4} if method == "ngram" else {},
        command=("vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "8192", "--port", "41273", *flags),
        speculation_flags=flags,
        mix_speedup=mix,
        decision=decision,
        reasons=tuple(reasons),
        startup_s=(62.1, 61.4, 63.8, 61.9, 62.5) if method != "eagle3" else (81.0, 79.6, 82.2, 80.4, 80.8),
        kv_capacity_tokens=742_112 if method != "eagle3" else 701_440,
        max_concurrency=90.6 if method != "eagle3" else 85.6,
        memory_peak_bytes=int(127.4 * 2**30),
        launches=5,
        failed_launches=0,
        weights_bytes=int((15.27 if method != "eagle3" else 16.02) * 2**30),
        weights_load_s=4.1 if method != "eagle3" else 4.6,
        max_running_requests=256,
    )
    return msgspec.structs.replace(base, **changes)


def busy_gpu(arm: str, concurrency: int, tokens_per_s: float, over_baseline: Ratio) -> MachineAtLoad:
    """A GPU that is busy at any load and whose clocks fall under a power cap at the highest one."""
    speculative = arm != "baseline"
    power_w = 310.0 + 5.1 * concurrency + (24 if speculative else 0)
    capped = 0.4 if concurrency == 64 and speculative else 0.0
    return MachineAtLoad(
        gpus=1,
        gpu_utilization=min(0.99, 0.9 + 0.002 * concurrency),
        gpu_memory_peak_bytes=int(128.3 * 2**30),
        gpu_power_w=power_w,
        gpu_power_limit_w=700.0,
        gpu_sm_clock_mhz=1980.0 - 300 * capped,
        gpu_throttled=capped,
        gpu_throttle_reasons={"power cap": capped} if capped else {},
        tokens_per_joule=tokens_per_s / power_w,
        tokens_per_joule_ratio=over_baseline,
        energy_source="energy counter",
        cpu_share=0.11,
        engine_cores=2.3,
        memory_peak_bytes=int(61.2 * 2**30),
        engine_memory_peak_bytes=int(9.7 * 2**30),
    )


SPEEDUPS = {
    "eagle3-k3": ({1: 1.92, 4: 1.74, 16: 1.41, 64: 1.02}, acceptance(3, 0.78, 0.80, 1.0)),
    "eagle3-k5": ({1: 2.11, 4: 1.83, 16: 1.29, 64: 0.86}, acceptance(5, 0.78, 0.80, 1.0)),
    "ngram-k4": ({1: 1.21, 4: 1.16, 16: 1.08, 64: 0.97}, acceptance(4, 0.55, 0.84, 0.22)),
}
CATEGORIES = (("chat", 0.94), ("code", 1.18), ("math", 1.09), ("summarise", 0.88))
LOADS = (1, 4, 16, 64)


def decide(value: float, spread: float, minimum: float = 1.05) -> tuple[Decision, str]:
    """The decision that an interval of ``value`` ± ``spread`` gives, in words."""
    if value * (1 - spread) > minimum:
        return "GO", f"the whole interval is above the required {minimum:.2f}x"
    if value * (1 + spread) < minimum:
        return "NO-GO", f"the whole interval is below the required {minimum:.2f}x"
    return "INCONCLUSIVE", f"the interval holds the required {minimum:.2f}x"


def go() -> Result:
    """Three arms, four loads, a clear answer up to 16 requests in flight."""
    results: list[ArmAtLoad] = []
    for c in LOADS:
        base = 108.0 * c / (1 + c / 90)
        results.append(
            cell("baseline", c, Ratio(why_null="the baseline is the reference"), "GO", tokens_per_s=base)
        )
        for arm, (speedups, accepted) in SPEEDUPS.items():
            decision, why = decide(speedups[c], 0.03)
            results.append(
                cell(
                    arm,
                    c,
                    ratio(speedups[c], 0.03, 5),
                    decision,
                    [why],
                    tokens_per_s=base * speedups[c],
                    accepted=accepted,
                    factor=1 / speedups[c],
                    categories=[(name, speedups[c] * f) for name, f in CATEGORIES],
                )
            )
    results = [
        msgspec.structs.replace(
            x, machine=busy_gpu(x.arm, x.concurrency, x.output_tokens_per_s or 0.0, x.speedup)
        )
        for x in results
    ]
    flags = (
        "--speculative-config",
        '{"method":"eagle3","model":"AngelSlim/Qwen3-8B_eagle3","num_speculative_tokens":3}',
    )
    return Result(
        specbench="0.1.0",
        name="qwen-chat",
        run_id="qwen-chat-20260301T101500Z",
        started_utc="2026-03-01T10:15:00+00:00",
        finished_utc="2026-03-01T13:02:41+00:00",
        duration_s=10061.0,
        complete=True,
        verdict="GO",
        exit_code=0,
        headline="Speculation pays up to 16 requests in flight: eagle3-k3 is 1.46x as fast on your mix.",
        reasons=(
            "At 1, 4 and 16 requests in flight the whole interval of eagle3-k3 is above the required 1.05x.",
            "At 64 requests in flight it does not pay (1.02x), but that is only 10% of the traffic.",
            "TTFT and TPOT stay within their limits at every load.",
        ),
        grade="B",
        grade_reasons=(
            "5 interleaved rounds, each with fresh launches",
            "real prompts that stop at the model's own end of text",
            "not A: the outputs of the arms were not compared",
        ),
        recommended=Recommended(arm="eagle3-k3", flags=flags, loads=(1, 4, 16)),
        min_speedup=1.05,
        confidence=0.90,
        traffic={"c1": 0.2, "c4": 0.4, "c16": 0.3, "c64": 0.1},
        target="Qwen/Qwen3-8B",
        engine="vLLM 0.32.0",
        parity="not run",
        rounds=5,
        loads=tuple(f"c{c}" for c in LOADS),
        categories=tuple(name for name, _ in CATEGORIES),
        workload="quickstart: 4 categories, natural stop, at most 256 output tokens, temperature 0",
        workload_digest="3b7e0c5f9d1a4e6288c0b1d2f3a4958677869504132231405f6e7d8c9baa0b1c",
        arms=(
            summary("baseline", None, None, None, Ratio(why_null="the baseline is the reference"), "GO"),
            summary(
                "eagle3-k3",
                "eagle3",
                "AngelSlim/Qwen3-8B_eagle3",
                3,
                ratio(1.46, 0.025, 5),
                "GO",
                ["GO at 1, 4 and 16 requests in flight"],
            ),
            summary(
                "eagle3-k5",
                "eagle3",
                "AngelSlim/Qwen3-8B_eagle3",
                5,
                ratio(1.38, 0.03, 5),
                "GO",
                ["GO at 1, 4 and 16 requests in flight, slower than eagle3-k3 over the mix"],
            ),
            summary("ngram-k4", "ngram", None, 4, ratio(1.11, 0.03, 5), "INCONCLUSIVE", ["undecided at 16"]),
        ),
        results=tuple(results),
        engine_differences=(
            Note(
                code="async_scheduling",
                message="ngram-k4 runs with async_scheduling=False, the baseline with True.",
                action="Expected: this engine turns it off for ngram. Its cost is part of the arm.",
            ),
        ),
        warnings=(
            Note(
                code="low_coverage",
                message="ngram-k4 drafted in only 22% of its steps.",
                action="Raise prompt_lookup_max, or use a model drafter for this traffic.",
            ),
        ),
        failures=(),
        machine=MACHINE,
        config_yaml=CONFIG_YAML,
        files=(
            "manifest.json",
            "journal.jsonl",
            "cells/r0-baseline-c1/requests.parquet",
            "cells/r0-baseline-c1/cell.json",
        ),
        headroom=tuple(
            Note(
                code="gpu_busy",
                message=f"GPU was {busy}% busy in the baseline at concurrency {c}, at {power}% of the power limit: "
                "speculation competes for time on it.",
                action="",
            )
            for c, busy, power in ((1, 90, 45), (64, 99, 91))
        ),
    )


def no_go() -> Result:
    """Speculation that costs more than it gives, at both loads."""
    base = go()
    keep = {"baseline", "ngram-k4"}
    results = []
    for item in base.results:
        if item.arm not in keep or item.concurrency not in (16, 64):
            continue
        if item.arm == "ngram-k4":
            value = 0.98 if item.concurrency == 16 else 0.91
            decision, why = decide(value, 0.02)
            item = msgspec.structs.replace(
                item, speedup=ratio(value, 0.02, 5), decision=decision, reasons=(why,), categories=()
            )
        results.append(item)
    arms = tuple(
        msgspec.structs.replace(
            a, mix_speedup=ratio(0.94, 0.02, 5), decision="NO-GO", reasons=("below 1.05x at every load",)
        )
        if a.arm == "ngram-k4"
        else a
        for a in base.arms
        if a.arm in keep
    )
    return msgspec.structs.replace(
        base,
        name="qwen-ngram",
        verdict="NO-GO",
        exit_code=10,
        headline="Speculation does not pay: ngram-k4 serves 0.94x of the baseline's tokens.",
        reasons=("At 16 and 64 requests in flight the whole interval is below the required 1.05x.",),
        recommended=None,
        traffic={"c16": 0.5, "c64": 0.5},
        loads=("c16", "c64"),
        categories=(),
        arms=arms,
        results=tuple(results),
    )


def inconclusive() -> Result:
    """An unfinished run: failures, invalid cells and nulls everywhere."""
    dead = "no launch of this arm came up"
    nothing = ArmAtLoad(
        arm="draft-k5",
        load="c8",
        concurrency=8,
        cells=0,
        failed_cells=3,
        invalid_cells=0,
        output_tokens_per_s=None,
        per_launch_tokens_per_s=(),
        speedup=Ratio(why_null=dead),
        decision="INCONCLUSIVE",
        reasons=(dead,),
        ttft_ms=NO_QUANTILES,
        tpot_ms=NO_QUANTILES,
        chunk_gap_ms=NO_QUANTILES,
        acceptance=Acceptance(why_null=dead),
        categories=(),
        requests=0,
        failed_requests=0,
        mean_output_tokens=None,
        cached_prompt_share=None,
        kv_usage_peak=None,
        preemptions=None,
    )
    accepted = acceptance(3, 0.61, 0.7, 1.0)
    bare = Acceptance(
        length=accepted.length, rate=accepted.rate, why_null="the metrics page has no counters by position"
    )
    spec = cell(
        "draft-k3",
        8,
        ratio(1.06, 0.09, 3),
        "INCONCLUSIVE",
        ["the interval holds the required 1.05x"],
        tokens_per_s=611,
        accepted=bare,
        rounds=3,
    )
    spec = msgspec.structs.replace(
        spec,
        cells=2,
        invalid_cells=1,
        failed_requests=4,
        ttft_ms=quantiles(120, 61, 0.4),
        cached_prompt_share=None,
        kv_usage_peak=None,
        preemptions=None,
        categories=(
            CategoryCut(
                category="chat",
                requests=60,
                tpot_ms=11.2,
                tpot_speedup=Ratio(value=1.06),
                tokens_per_chunk=None,
            ),
            CategoryCut(
                category="code",
                requests=0,
                tpot_ms=None,
                tpot_speedup=Ratio(why_null="no request finished"),
                tokens_per_chunk=None,
            ),
        ),
    )
    reference = cell(
        "baseline", 8, Ratio(why_null="the baseline is the reference"), "GO", tokens_per_s=576, rounds=3
    )
    return msgspec.structs.replace(
        go(),
        headroom=(),
        name="llama-draft",
        run_id="llama-draft-20260302T080000Z",
        finished_utc=None,
        duration_s=None,
        complete=False,
        verdict="INCONCLUSIVE",
        exit_code=20,
        headline="Not settled: draft-k3 may be 0.96x to 1.16x as fast; about 6 more rounds would tell.",
        reasons=(
            "The interval of draft-k3 holds the required 1.05x.",
            "draft-k5 never started: its draft has another vocabulary.",
        ),
        grade="C",
        grade_reasons=("one of three rounds of draft-k3 is invalid",),
        recommended=None,
        traffic={"c8": 0.5, "c32": 0.5},
        target="meta-llama/Llama-3.1-8B-Instruct",
        rounds=3,
        loads=("c8", "c32"),
        categories=("chat", "code"),
        arms=(
            summary(
                "baseline",
                None,
                None,
                None,
                Ratio(why_null="the baseline is the reference"),
                "GO",
                launches=3,
            ),
            summary(
                "draft-k3",
                "draft_model",
                "Llama-3.2-1B",
                3,
                Ratio(why_null="nothing was measured at 32 in flight"),
                "INCONCLUSIVE",
                launches=3,
                memory_peak_bytes=None,
                max_concurrency=None,
            ),
            summary(
                "draft-k5",
                "draft_model",
                "Qwen3-0.6B",
                5,
                Ratio(why_null=dead),
                "INCONCLUSIVE",
                [dead],
                launches=3,
                failed_launches=3,
                startup_s=(),
                kv_capacity_tokens=None,
                max_concurrency=None,
                memory_peak_bytes=None,
                weights_bytes=None,
                weights_load_s=None,
                max_running_requests=None,
            ),
        ),
        results=(reference, spec, nothing),
        engine_differences=(),
        warnings=(
            Note(
                code="client_lag",
                message="The client's event loop lagged by 41 ms in round 2 of draft-k3.",
                action="Leave two cores free for specbench.",
            ),
        ),
        failures=(
            FailureNote(
                where="draft-k5, round 1",
                kind="vocabulary_mismatch",
                summary="The draft's vocabulary (151936) is not the target's (128256).",
                mend="Use a draft of the same family, for example meta-llama/Llama-3.2-1B.",
                log_lines=(
                    "ERROR 03-02 08:04:11 [core.py:712] EngineCore failed to start.",
                    "ValueError: draft vocab_size 151936 != target vocab_size 128256",
                ),
                file="launches/r1-draft-k5/engine.log",
            ),
        ),
        files=(),
    )


def single_round() -> Result:
    """One round: values without intervals."""
    base = go()
    results = tuple(
        msgspec.structs.replace(
            item,
            cells=1,
            per_launch_tokens_per_s=item.per_launch_tokens_per_s[:1],
            speedup=Ratio(value=item.speedup.value, per_round=item.speedup.per_round[:1])
            if item.speedup.value
            else item.speedup,
            decision="GO" if item.arm == "baseline" else "INCONCLUSIVE",
            reasons=() if item.arm == "baseline" else ("one round gives no interval",),
            categories=(),
        )
        for item in base.results
        if item.concurrency == 4
    )
    arms = tuple(
        a
        if a.method is None
        else msgspec.structs.replace(
            a,
            mix_speedup=Ratio(value=a.mix_speedup.value, per_round=(1.0,)),
            decision="INCONCLUSIVE",
            startup_s=a.startup_s[:1],
            launches=1,
        )
        for a in base.arms
    )
    return msgspec.structs.replace(
        base,
        name="first-look",
        verdict="INCONCLUSIVE",
        exit_code=20,
        headline="Promising, not proven: one round gives no interval.",
        reasons=("Run at least 3 rounds for a verdict.",),
        grade="C",
        grade_reasons=("one round",),
        recommended=None,
        traffic={"c4": 1.0},
        rounds=1,
        loads=("c4",),
        categories=(),
        arms=arms,
        results=results,
        warnings=(),
        engine_differences=(),
        files=(),
    )


def invalid() -> Result:
    """A measurement that the client spoiled."""
    base = no_go()
    results = tuple(
        msgspec.structs.replace(
            item, decision="INVALID", cells=0, invalid_cells=5, reasons=("the client was the limit",)
        )
        for item in base.results
    )
    return msgspec.structs.replace(
        base,
        verdict="INVALID",
        exit_code=30,
        headline="The measurement is not valid: the client could not keep up.",
        grade="D",
        results=results,
    )


HOSTILE = "<script>alert('x')</script>|`*_[b]&\"\x1b[31m\u202e\x00😀"


def hostile() -> Result:
    """30 arms, 10 loads, and names that try to break out of every format."""
    loads = [2**i for i in range(10)]
    arms = [summary("baseline", None, None, None, Ratio(why_null="reference"), "GO")]
    results = [
        cell("baseline", c, Ratio(why_null="reference"), "GO", tokens_per_s=100.0 * c, rounds=3)
        for c in loads
    ]
    for i in range(30):
        name = f"{HOSTILE}-{'very-long-' * (i % 4)}arm-{i:02d}"
        k = 1 + i % 12
        mix = ratio(0.8 + 0.04 * i, 0.05, 3)
        arms.append(
            summary(
                name,
                "eagle3",
                HOSTILE,
                k,
                mix,
                "INCONCLUSIVE",
                [HOSTILE],
                settings={HOSTILE: HOSTILE},
                command=("vllm", HOSTILE),
            )
        )
        for j, c in enumerate(loads):
            value = (1.9 - 0.03 * i) / (1 + 0.08 * j)
            decision, why = decide(value, 0.05 if i else 0.9)
            results.append(
                cell(
                    name,
                    c,
                    ratio(value, 0.05 if i else 0.9, 3),
                    decision,
                    [why, HOSTILE],
                    tokens_per_s=100.0 * c * value,
                    accepted=acceptance(k, 0.8, 0.85, 1.0),
                    rounds=3,
                    factor=1 / value,
                    categories=[(HOSTILE, value), ("chat\n@everyone #1", value)],
                )
            )
    note = Note(code=HOSTILE, message=HOSTILE, action=HOSTILE)
    return msgspec.structs.replace(
        go(),
        headroom=(note,),
        name="hostile",
        headline=f"{HOSTILE} says </title></style><img src=x onerror=alert(1)> @everyone",
        reasons=(HOSTILE, "</pre>\n\n# heading\n- item"),
        grade_reasons=(HOSTILE,),
        recommended=Recommended(arm=arms[5].arm, flags=("--flag", HOSTILE, "a'b\nc"), loads=(1, 2)),
        traffic={f"c{c}": 0.1 for c in loads},
        target=HOSTILE,
        engine=HOSTILE,
        rounds=3,
        loads=tuple(f"c{c}" for c in loads),
        categories=(HOSTILE, "chat\n@everyone #1"),
        workload=HOSTILE,
        arms=tuple(arms),
        results=tuple(results),
        engine_differences=(note,),
        warnings=(note, note),
        failures=(
            FailureNote(
                where=HOSTILE,
                kind=HOSTILE,
                summary=HOSTILE,
                mend=HOSTILE,
                log_lines=(HOSTILE, "\udcff\x07</pre>```"),
                file=HOSTILE,
            ),
        ),
        machine=msgspec.structs.replace(MACHINE, hostname=HOSTILE, gpus=()),
        config_yaml=f"name: {HOSTILE}\n</pre><script src=//evil>",
        files=(HOSTILE,),
    )


ALL = {
    "go": go,
    "no_go": no_go,
    "inconclusive": inconclusive,
    "single_round": single_round,
    "invalid": invalid,
    "hostile": hostile,
}
