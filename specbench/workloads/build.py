"""Everything that is sent, from the config alone: read, matched to lengths, fitted to the context, mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from specbench.config.grid import Load, expand_loads
from specbench.config.model import Config
from specbench.config.open_check import check_loads, check_workload
from specbench.config.plan import TraceExtent, requests_in_cell
from specbench.workloads.context import OVER_CONTEXT, Context, context_limit, fit_context
from specbench.workloads.loading import SourceAccount, load_source
from specbench.workloads.mix import build_cell_mix
from specbench.workloads.replay import build_trace_mix, select
from specbench.workloads.request import CellMix
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import SourceRequest
from specbench.workloads.supply import AsRecorded, Matched, Supply
from specbench.workloads.tokens import NoTokenizer, ServedTokens, served_tokens


@dataclass(frozen=True, slots=True)
class BuiltWorkload:
    """The requests of every load, and how they came about.

    Attributes:
        mixes: by load id.
        account: what became of the source's rows.
        trace: how much a trace load replays.
        check: by load id of the open-loop check, with arrivals at 1 per second: `stretched` gives the rate.
    """

    mixes: dict[str, CellMix]
    account: SourceAccount
    trace: TraceExtent | None
    check: dict[str, CellMix] = field(default_factory=dict)


def build_workload(config: Config, base_dir: Path, kept: int = 0) -> BuiltWorkload:
    """Build the mixes; the same bytes in every process and on every machine with the same files.

    Args:
        base_dir: where relative paths start.
        kept: tokens of the context that requests must leave free, for every arm to serve them in full and to
            draft to their end.

    Raises:
        WorkloadError: the workload cannot be used; the message says where, why and the mend.
    """
    return _Build(config, base_dir, kept).run()


class _Build:
    def __init__(self, config: Config, base_dir: Path, kept: int) -> None:
        self.config = config
        self.workload = config.workload
        self.seed = config.measure.order_seed
        self.base_dir = base_dir
        sections = (config.engine, *config.other_engines.values())
        limits = [limit for section in sections if (limit := context_limit(section.args)) is not None]
        self.limit = Context(min(limits), kept) if limits else None
        self.remarks: list[str] = []
        self.over = 0

    def run(self) -> BuiltWorkload:
        loaded = load_source(self.workload, self.base_dir)
        tokens = self._tokens()
        if self.workload.lengths is not None:
            supply: Supply = Matched(
                self.workload,
                self.workload.lengths,
                self.base_dir,
                loaded.requests,
                tokens,
                self.limit,
                self.seed,
            )
        else:
            fitted = fit_context(self.workload, loaded.requests, self.limit, tokens)
            self.over = fitted.over
            self.remarks += fitted.remarks
            supply = AsRecorded(fitted.requests)
        mixes: dict[str, CellMix] = {}
        extent = None
        for load in expand_loads(self.config):
            if load.trace is None:
                rows = supply.for_load(load, self._count(load))
                mixes[load.id] = build_cell_mix(
                    self.workload, rows, load, self.config.measure.warmup_per_slot, self.seed
                )
            else:
                mixes[load.id] = mix = self._trace_mix(supply, load)
                extent = TraceExtent(len(mix.measured), max(a.at_s for a in mix.schedule))
        check = {load.id: self._check_mix(supply, load) for load in check_loads(self.config)}
        self.remarks = [*supply.remarks(), *self.remarks, *self._sent(supply.offered())]
        account = loaded.account
        dropped = dict(account.dropped)
        if self.over:
            dropped[OVER_CONTEXT] = self.over
        return BuiltWorkload(
            mixes,
            msgspec.structs.replace(
                account, used=account.used - self.over, dropped=dropped, remarks=tuple(self.remarks)
            ),
            extent,
            check,
        )

    def _tokens(self) -> ServedTokens | NoTokenizer:
        try:
            return served_tokens(self.config.target, self.config.engine.args)
        except NoTokenizer as error:
            return error

    def _count(self, load: Load) -> int:
        warmup = self.config.measure.warmup_per_slot * load.concurrency
        # A few more than needed: every category is rounded up by itself.
        return requests_in_cell(self.workload, load) + warmup + 8

    def _check_mix(self, supply: Supply, load: Load) -> CellMix:
        workload, warmup = check_workload(self.config), self.config.measure.warmup_per_slot
        rows = supply.for_load(load, requests_in_cell(workload, load) + warmup * load.concurrency + 8)
        return build_cell_mix(workload, rows, load, warmup, self.seed)

    def _trace_mix(self, supply: Supply, load: Load) -> CellMix:
        assert load.trace is not None
        warmup = self.config.measure.warmup_per_slot * load.concurrency
        chosen = select(supply.timed(load), load.trace, self.seed)
        if len(chosen) < 2:
            raise WorkloadError(
                ["loads.trace: fewer than two requests arrive in that time: raise loads.trace.seconds"]
            )
        texts = supply.with_text([row for _, row in chosen])
        chosen = [(t, row) for (t, _), row in zip(chosen, texts, strict=True)]
        return build_trace_mix(self.workload, chosen, supply.spare(load, warmup), load, warmup, self.seed)

    def _sent(self, requests: Sequence[SourceRequest]) -> list[str]:
        """What of the record is not sent as it was, or is sent in a way that a reader should know."""
        said = []
        sampled = [r for r in requests if r.sampling]
        if sampled:
            keys = sorted({key for r in sampled for key in r.sampling or ()})
            said.append(
                f"{len(sampled)} requests record sampling settings ({', '.join(keys)}), which are not sent: "
                "workload.sampling is the same for all"
            )
        tools = sum(1 for r in requests if r.tools)
        if tools:
            said.append(
                f"{tools} requests carry tools: they are sent (they are part of the prompt) with "
                "`tool_choice: none`, so that the answer streams as text and needs no tool parser"
            )
        cap = self.workload.max_output_tokens
        lengths = [n for r in requests if (n := r.output_tokens or r.max_tokens) is not None]
        cut = sum(1 for n in lengths if n > cap)
        if cut:
            said.append(
                f"{cut} of {len(lengths)} recorded output lengths are above workload.max_output_tokens "
                f"({cap}) and are cut there: raise it for the real share of decoding"
            )
        return said
