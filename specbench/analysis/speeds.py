"""How fast the target is without speculation, from a run: what a bound on speculation can rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specbench.analysis.cell import load_cell
from specbench.analysis.latency import tpot_s, ttft_s
from specbench.load.table import table_to_records

if TYPE_CHECKING:
    from specbench.runs.rundir import RunDir

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class MeasuredSpeeds:
    """Of one request of the baseline at its lightest load, over all valid launches.

    Attributes:
        prefill_tokens_per_s: uncached prompt tokens over time to first token, both summed. Short prompts
            understate it: their first token is mostly fixed cost.
        decode_tokens_per_s: tokens after the first chunk over the time they took, both summed.
        prompt_tokens_median: of the prompts that it was measured with.
    """

    load: str
    requests: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    prompt_tokens_median: float


class NoSpeedsError(ValueError):
    """The run does not tell them; the message says why."""


def measured_speeds(run: RunDir) -> MeasuredSpeeds:
    """Read them from the baseline's cells.

    Raises:
        NoSpeedsError: no valid cell of the baseline, or no requests with token counts in it.
        RunFileError: a file is missing or damaged.
    """
    loads = {x.id: x for x in run.manifest().loads}
    closed = [x for x in loads.values() if x.kind == "closed"] or list(loads.values())
    for load in sorted(closed, key=lambda x: (x.rate_per_s or 0.0, x.concurrency)):
        records = []
        for record in run.cells():
            if record.arm != BASELINE or record.load != load.id or not load_cell(run, record).valid:
                continue
            table = run.requests(record.id)
            records += [] if table is None else table_to_records(table)
        prefill_s = prefill = decode_s = decode = 0.0
        prompts = []
        for r in records:
            first, per_token = ttft_s(r), tpot_s(r)
            if first is not None and r.prompt_tokens:
                prompts.append(r.prompt_tokens)
                prefill += r.prompt_tokens - (r.cached_tokens or 0)
                prefill_s += first
            if per_token is not None:
                tokens = sum(r.chunk_tokens[1:])
                decode += tokens
                decode_s += per_token * tokens
        if prefill > 0 and decode > 0 and prefill_s > 0 and decode_s > 0:
            return MeasuredSpeeds(
                load=load.id,
                requests=len(records),
                prefill_tokens_per_s=prefill / prefill_s,
                decode_tokens_per_s=decode / decode_s,
                prompt_tokens_median=float(np.median(prompts)),
            )
    raise NoSpeedsError(f"{run.path} has no valid cell of the baseline with token counts: measure one first")
