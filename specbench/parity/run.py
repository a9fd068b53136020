"""From the stored outputs of a run to its parity result. Pure: `specbench report` can do it again later."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from specbench.engines.simulated.speculation import NgramLookup
from specbench.parity.battery import Outputs, Tier, judge_arm
from specbench.parity.data import ParityDataError, Role, ScoredSequence, from_table
from specbench.parity.lossy import lossy_settings
from specbench.parity.task import judge_task, not_shown, with_task
from specbench.parity.task_outputs import AGAIN, digest_of, outputs_of, tables_of
from specbench.parity.text_data import TextOutput
from specbench.parity.text_data import from_table as texts_from_table
from specbench.parity.texts import judge_texts
from specbench.runs.files import RunFileError
from specbench.runs.parity import ArmParity, ParityResult

if TYPE_CHECKING:
    from specbench.runs.parity import TaskParity
    from specbench.runs.records import ArmRecord, Manifest
    from specbench.runs.rundir import RunDir

TEXTS: Final = "parity_texts"
"""The event that says that outputs are kept as texts."""

DEFAULT_LOOKUP: Final = 5
"""Shortest and longest match of an n-gram lookup whose settings name neither."""


def judge_run(run: RunDir) -> ParityResult | None:
    """Test every speculative arm of a run; None when the run has no parity check.

    Raises:
        RunFileError: a file is damaged.
    """
    manifest = run.manifest()
    tier = planned_tier(manifest)
    tables, texts = run.parity_outputs(scored=True), _texts(run)
    if tier is None and not tables and not texts:
        return None
    reasons = reasons_for_texts(run.journal.read()) if texts else {}
    sequences: list[ScoredSequence] = []
    for name, table in tables.items():
        try:
            sequences += from_table(table)
        except ParityDataError as error:
            raise RunFileError(f"{run.parity_path / name}.parquet: {error}") from error
    tasks = _judge_tasks(run, manifest)
    arms = []
    for arm in manifest.arms:
        if arm.method is not None:
            if any(x.arm == arm.baseline for x in texts):
                found = judge_texts(
                    arm.id,
                    tier or "smoke",
                    [x for x in texts if x.role is Role.S and x.arm == arm.id],
                    [x for x in texts if x.role is not Role.S and x.arm == arm.baseline],
                    reasons.get(arm.baseline or "", "the journal does not say what it answered"),
                    _lossy(manifest, arm),
                )
            else:
                own = [s for s in sequences if s.role is Role.S and s.arm == arm.id]
                baseline = [s for s in sequences if s.role is not Role.S and s.arm == arm.baseline]
                found = _judge_arm(manifest, arm, tier or "smoke", own, baseline)
            task = tasks.get(arm.id)
            arms.append(found if task is None else with_task(found, task))
    return ParityResult(tier=tier or "smoke", arms=tuple(arms))


def planned_tier(manifest: Manifest) -> Tier | None:
    """The tier that the config asked for; None when parity was not asked for."""
    section = manifest.config.get("parity")
    tier = section.get("tier") if isinstance(section, dict) else None
    return tier if tier in ("smoke", "gate", "nightly") else None


def reasons_for_texts(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Baselines whose server tells no token ids or scores, by id, and what it answered: from a run's journal."""
    return {str(e["arm"]): str(e.get("reason")) for e in events if e.get("event") == TEXTS and "arm" in e}


def _texts(run: RunDir) -> list[TextOutput]:
    found: list[TextOutput] = []
    for name, table in run.parity_texts().items():
        try:
            found += texts_from_table(table)
        except ParityDataError as error:
            raise RunFileError(f"{run.parity_path / 'texts' / name}.parquet: {error}") from error
    return found


def _judge_tasks(run: RunDir, manifest: Manifest) -> dict[str, TaskParity]:
    """The task part of each speculative arm, by its id; empty when no scorer was named."""
    record = run.task_scores()
    section = manifest.config.get("parity")
    asked = section.get("task") if isinstance(section, dict) else None
    if record is None and asked is None:
        return {}
    outputs = outputs_of(tables_of(run))
    margin = float((asked or {}).get("margin", 0.0)) if record is None else record.margin
    if record is None:
        why: str | None = f"the outputs have not been scored yet; {AGAIN}"
    elif record.problem is not None:
        why = record.problem
    else:
        why = None if record.outputs == digest_of(outputs) else f"the outputs are not those scored; {AGAIN}"
    scores = {} if record is None else record.scores
    return {
        arm.id: not_shown(why, margin)
        if why is not None
        else judge_task(arm.id, arm.baseline, outputs, scores, margin)
        for arm in manifest.arms
        if arm.method is not None
    }


def _judge_arm(
    manifest: Manifest,
    arm: ArmRecord,
    tier: Tier,
    own: Sequence[ScoredSequence],
    baseline: Sequence[ScoredSequence],
) -> ArmParity:
    # By the tokens too: two rows of a source may have one id, and outputs of different lengths.
    drafts = {(s.key, s.output_ids.tobytes()): s for s in (*own, *baseline) if s.scorer == arm.draft}
    own, baseline = ([s for s in x if not s.scorer] for x in (own, baseline))
    lossy = _lossy(manifest, arm)
    if not own or not baseline:
        who = "this arm" if baseline else "the baseline"
        decision: Literal["FAIL", "INCONCLUSIVE"] = "FAIL" if lossy else "INCONCLUSIVE"
        reasons = (*(f"lossy by configuration: {x}" for x in lossy), f"no output of {who} was scored")
        return ArmParity(
            arm=arm.id,
            tier=tier,
            decision=decision,
            headline=reasons[0],
            reasons=reasons,
            lossy=lossy,
            escalate=False,
            tokens=0,
            bug_rate_upper95=None,
            loads=(),
        )
    if arm.method == "ngram":
        low, high = _lookup_range(arm)
        own, baseline = ([with_proposals(s, low, high) for s in x] for x in (own, baseline))
    elif drafts:
        own, baseline = (
            [_with_draft(s, drafts.get((s.key, s.output_ids.tobytes()))) for s in x] for x in (own, baseline)
        )
    try:
        loads = [
            Outputs.of(load, [s for s in own if s.load == load])
            for load in dict.fromkeys(s.load for s in sorted(own, key=lambda s: s.concurrency))
        ]
        return judge_arm(arm.id, tier, loads, Outputs.of("baseline", baseline), lossy)
    except ParityDataError as error:
        raise RunFileError(
            f"parity of {arm.id}: {error}; remove its files in parity/ and --resume"
        ) from error


def _lossy(manifest: Manifest, arm: ArmRecord) -> tuple[str, ...]:
    """Settings of an arm that change its outputs by design."""
    engine: dict[str, Any] = manifest.config.get("engine") or {}
    return lossy_settings(
        arm.settings, {**(engine.get("args") or {}), **arm.args}, tuple(_env_of(manifest, arm))
    ) or ((arm.lossy,) if arm.lossy else ())


def _env_of(manifest: Manifest, arm: ArmRecord) -> Iterable[str]:
    """Names of the variables set for an arm; their values are not stored."""
    config = manifest.config
    yield from (config.get("engine") or {}).get("env") or {}
    for entry in config.get("arms") or ():
        if isinstance(entry, dict) and entry.get("method") == arm.method:
            yield from entry.get("env") or {}


def _lookup_range(arm: ArmRecord) -> tuple[int, int]:
    """As vLLM fills it in: 5 and 5 when neither is given, the same when only one is."""
    low, high = arm.settings.get("prompt_lookup_min"), arm.settings.get("prompt_lookup_max")
    default = DEFAULT_LOOKUP if low is None and high is None else int(low or high or DEFAULT_LOOKUP)
    return int(low or default), int(high or default)


def _with_draft(sequence: ScoredSequence, draft: ScoredSequence | None) -> ScoredSequence:
    if draft is None:
        return sequence
    return dataclasses.replace(sequence, draft_top_ids=draft.top_ids, draft_top_logprobs=draft.top_logprobs)


def with_proposals(sequence: ScoredSequence, min_n: int, max_n: int) -> ScoredSequence:
    """Work out what an n-gram lookup in prompt and output would propose before each token."""
    lookup = NgramLookup([int(t) for t in sequence.prompt_ids], min_n, max_n)
    proposals = np.full(len(sequence.output_ids), -1, dtype=np.int32)
    for i, token in enumerate(sequence.output_ids):
        found = lookup.propose(1)
        if found:
            proposals[i] = found[0]
        lookup.append(int(token))
    return dataclasses.replace(sequence, proposals=proposals)
