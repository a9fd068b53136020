"""Collect the outputs of a parity check beside a sweep, and have the baseline score them.

Every arm continues the same prompts, given as token ids, greedily and sampled, at its lowest and its highest
concurrency; outside the timed cells. The baseline does so twice: A at the lowest concurrency in its first
launch, A' at the highest in a launch of its own at the end, which then scores everything.

Where the baseline's server tells no token ids or no scores, the same is done with texts: the workload's requests
as they are, and no scores (`specbench.parity.texts`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import aiohttp
import msgspec

from specbench.parity.data import ParityDataError, Role, ScoredSequence, from_table, to_table
from specbench.parity.run import TEXTS, reasons_for_texts
from specbench.parity.text_data import TextOutput
from specbench.parity.text_data import to_table as texts_to_table
from specbench.runs.files import RunFileError, write_json
from specbench.sweep.cell import dies
from specbench.sweep.scoring import ParityError, Target, Withheld, generate, prompt_token_ids, score
from specbench.sweep.text_answers import PROBES, answer, tells_logprobs, why_texts
from specbench.workloads.loading import load_source
from specbench.workloads.mix import make_request

if TYPE_CHECKING:
    from pathlib import Path

    from specbench.config.grid import Arm
    from specbench.config.model import Config
    from specbench.runs.rundir import RunDir
    from specbench.sweep.cell import Served
    from specbench.workloads.request import Request

PROMPTS: Final[dict[str, int]] = {"smoke": 64, "gate": 256, "nightly": 4096}
"""Prompts of a tier: times 256 tokens 16 thousand, 65 thousand and a million tokens per arm and load."""

SCORING_CONCURRENCY: Final = 4
REQUEST_TIMEOUT_S: Final = 600.0
SPARE_TOKENS: Final = 16
"""Room left in the context for drafts beyond the end and for the token that a scoring request generates."""

EVERY_STEP_DRAFTS: Final = frozenset(
    {"draft_model", "standalone", "eagle", "nextn", "eagle3", "mtp", "frozen_kv_mtp", "medusa", "dflash"}
)
"""Methods that draft K tokens in every step, so that a shorter chunk shows a rejection."""

WHOLE_DRAFTS: Final = frozenset({"draft_model", "standalone"})
"""Methods whose draft is a model that can be served by itself."""

_T = TypeVar("_T")
_U = TypeVar("_U")
_P = TypeVar("_P", bound="_Prompt | Request")


class _Prompt(msgspec.Struct, frozen=True):
    id: str
    ids: tuple[int, ...]


class _Prompts(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "specbench.parity-prompts/1"
    prompts: tuple[_Prompt, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """How outputs are decoded."""

    temperature: float
    top_p: float
    top_k: int | None = None


@dataclass(slots=True)
class ParityCheck:
    """One parity check over one run directory.

    Attributes:
        arms: those that are checked and their baselines.
        failures: arm id to why its outputs could not be collected.
    """

    config: Config
    base_dir: Path
    run: RunDir
    arms: tuple[Arm, ...]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def tier(self) -> Literal["smoke", "gate", "nightly"] | None:
        """The tier that the config asks for; None when parity is off."""
        return self.config.parity.tier

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """Lowest and highest concurrency at which arms are tested."""
        chosen = self.config.parity.concurrency or self.config.loads.closed or [1, 8]
        return tuple(sorted({min(chosen), max(chosen)}))

    def sampling(self) -> tuple[Ask, ...]:
        """How sampled outputs are decoded: as the section says and, above tier smoke, as the workload is served."""
        main, served = (
            Ask(self.config.parity.temperature, self.config.parity.top_p),
            self.config.workload.sampling,
        )
        other = Ask(served.temperature, served.top_p, served.top_k)
        same = (other.temperature, other.top_p) == (main.temperature, main.top_p)
        if self.tier == "smoke" or not self.config.parity.as_served or not served.temperature or same:
            return (main,)
        return main, other

    def wants(self, arm: Arm) -> bool:
        """Whether outputs of an arm are still missing."""
        if self.tier is None or arm not in self.arms:
            return False
        return not self._written(arm).issuperset(self._names(arm))

    def unfinished(self, baseline: Arm) -> bool:
        """Whether outputs wait for a baseline's scores, or its own second ones (A') are missing."""
        if self.tier is None:
            return False
        mine = self._names_of(baseline)
        if self._why_texts(baseline) is not None:
            texts = self.run.parity_texts()
            return any(n in texts for n in mine) and mine[-1] not in texts
        scored, waiting = self.run.parity_outputs(scored=True), self.run.parity_outputs(scored=False)
        return any(n in waiting for n in mine) or (
            any(n in scored for n in mine)
            and _name(baseline, self.concurrencies[-1], again=True) not in scored
        )

    def drafts_wanted(self) -> list[tuple[Arm, list[str]]]:
        """Arms with a draft model of their own, one per draft and engine, and the outputs it should score."""
        scored = self.run.parity_outputs(scored=True)
        found: dict[tuple[str, str], tuple[Arm, list[str]]] = {}
        for arm in self.arms:
            if (arm.method or "").lower() not in WHOLE_DRAFTS or arm.draft is None or self.tier is None:
                continue
            baseline = next(a for a in self.arms if a.is_baseline and a.engine == arm.engine)
            names = [*self._names(baseline), _name(baseline, self.concurrencies[-1], again=True)]
            names += self._names(arm)
            _, wanted = found.setdefault((arm.draft, arm.engine), (arm, []))
            wanted += [
                n
                for n in dict.fromkeys(names)
                if n in scored and n not in wanted and _draft_name(n, arm.draft) not in scored
            ]
        return [(arm, names) for arm, names in found.values() if names]

    async def score_with_draft(self, draft: str, names: Sequence[str], served: Served) -> None:
        """Have a draft model, served alone, score outputs; a failure is recorded, not raised."""
        server = _target(served)
        scored = self.run.parity_outputs(scored=True)
        for name in names:
            try:
                rows = await _each(from_table(scored[name]), SCORING_CONCURRENCY, lambda s: _score(server, s))
                rows = [dataclasses.replace(s, scorer=draft, text=None) for s in rows]
                self.run.write_parity_outputs(_draft_name(name, draft), to_table(rows), scored=True)
                self.run.journal.append("parity_draft_scored", name=name, draft=draft, outputs=len(rows))
            except (ParityError, ParityDataError, aiohttp.ClientError, TimeoutError, OSError) as error:
                self.failures[draft] = f"scoring with the draft: {await _cause(error, served)}"
                self.run.journal.append("parity_failed", arm=draft, reason=self.failures[draft])
                return

    async def collect(self, arm: Arm, served: Served, *, again: bool = False) -> None:
        """Let an arm write its outputs; a failure is recorded, not raised.

        Args:
            again: the baseline's second launch (A').
        """
        server, baseline = _target(served), self._baseline_of(arm)
        try:
            if arm is baseline and not again and not self._heard(baseline):
                why = await why_texts(server, self._requests(PROBES), self.config.parity.tokens)
                if why is not None:
                    self.run.journal.append(TEXTS, arm=arm.id, reason=why)
            if self._why_texts(arm) is None:
                await self._collect_ids(arm, server, again=again)
            else:
                await self._collect_texts(arm, server, again=again)
        except (ParityError, aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, Withheld) and arm is not baseline and not self._heard(baseline):
                # Whether texts have to do is for the baseline's server to say: the arm's turn comes after it.
                self.run.journal.append("parity_waits", arm=arm.id, reason=str(error))
                return
            self.failures[arm.id] = await _cause(error, served)
            self.run.journal.append("parity_failed", arm=arm.id, reason=self.failures[arm.id])

    async def _collect_ids(self, arm: Arm, server: Target, *, again: bool) -> None:
        prompts = await self._prompts(server)
        for concurrency in self._concurrencies_of(arm, again=again):
            name = _name(arm, concurrency, again=again)
            if name in self._written(arm):
                continue
            sequences = await self._outputs(arm, server, prompts, concurrency, again=again)
            self.run.write_parity_outputs(name, to_table(sequences), scored=False)
            self.run.journal.append("parity_collected", arm=arm.id, name=name, outputs=len(sequences))

    async def _collect_texts(self, arm: Arm, server: Target, *, again: bool) -> None:
        wanted = self.config.parity.prompts or PROMPTS[self.tier or "smoke"]
        rows = self._requests(wanted)
        rows = [msgspec.structs.replace(r, id=r.id.replace("#", "_")) for r in rows]
        prompts = [_again(rows, i) for i in range(wanted)] if rows else []
        missing = [
            c
            for c in self._concurrencies_of(arm, again=again)
            if _name(arm, c, again=again) not in self._written(arm)
        ]
        logprobs = bool(missing) and await tells_logprobs(server, rows)
        for concurrency in missing:
            name = _name(arm, concurrency, again=again)
            texts = await self._texts(arm, server, prompts, concurrency, again=again, logprobs=logprobs)
            self.run.write_parity_texts(name, texts_to_table(texts))
            self.run.journal.append(
                "parity_collected", arm=arm.id, name=name, outputs=len(texts), texts=True, logprobs=logprobs
            )

    def _baseline_of(self, arm: Arm) -> Arm:
        """The arm that an arm is compared with; itself for a baseline."""
        return next((a for a in self.arms if a.is_baseline and a.engine == arm.engine), arm)

    def _why_texts(self, arm: Arm) -> str | None:
        """What the arm's baseline answered when it was asked for ids and scores; null when it gives both."""
        return reasons_for_texts(self.run.journal.read()).get(self._baseline_of(arm).id)

    def _written(self, arm: Arm) -> set[str]:
        """Names of the outputs that are there: texts or ids, as the arm's baseline has it."""
        if self._why_texts(arm) is not None:
            return set(self.run.parity_texts())
        return {*self.run.parity_outputs(scored=True), *self.run.parity_outputs(scored=False)}

    def _heard(self, baseline: Arm) -> bool:
        """Whether it is known what a baseline's server tells."""
        known = self._why_texts(baseline) is not None
        return known or not self._written(baseline).isdisjoint(self._names(baseline))

    async def score(self, baseline: Arm, served: Served) -> None:
        """Have a baseline score what waits for it; a failure is recorded, not raised."""
        if self._why_texts(baseline) is not None:
            return
        server, mine = _target(served), self._names_of(baseline)
        for name, table in self.run.parity_outputs(scored=False).items():
            if name not in mine:
                continue
            try:
                waiting = from_table(table)
                scored = await _each(waiting, SCORING_CONCURRENCY, lambda s: _score(server, s))
                self.run.write_parity_outputs(name, to_table(scored), scored=True)
                self.run.journal.append("parity_scored", name=name, outputs=len(scored))
            except ParityDataError as error:
                raise RunFileError(f"{name}: {error}") from error
            except (ParityError, aiohttp.ClientError, TimeoutError, OSError) as error:
                self.failures[baseline.id] = f"scoring: {await _cause(error, served)}"
                self.run.journal.append("parity_failed", arm=baseline.id, reason=self.failures[baseline.id])
                return

    def _names_of(self, baseline: Arm) -> list[str]:
        """Everything that a baseline scores: the outputs of the arms on its engine, its own included."""
        names = [n for arm in self.arms if arm.engine == baseline.engine for n in self._names(arm)]
        return [*names, _name(baseline, self.concurrencies[-1], again=True)]

    def _names(self, arm: Arm) -> list[str]:
        return [_name(arm, c, again=False) for c in self._concurrencies_of(arm, again=False)]

    def _concurrencies_of(self, arm: Arm, *, again: bool) -> tuple[int, ...]:
        if arm.is_baseline:
            return self.concurrencies[-1:] if again else self.concurrencies[:1]
        return self.concurrencies

    async def _outputs(
        self, arm: Arm, server: Target, prompts: Sequence[_Prompt], concurrency: int, *, again: bool
    ) -> list[ScoredSequence]:
        section = self.config.parity
        role = _role(arm, again=again)

        async def one(item: tuple[Ask, _Prompt]) -> ScoredSequence:
            ask, prompt = item
            out = await generate(
                server,
                prompt.ids,
                max_tokens=section.tokens,
                temperature=ask.temperature,
                top_p=ask.top_p,
                top_k=ask.top_k,
            )
            return ScoredSequence.unscored(
                role=role,
                arm=arm.id,
                load=f"c{concurrency}",
                concurrency=concurrency,
                temperature=ask.temperature,
                top_p=ask.top_p,
                prompt_id=prompt.id,
                prompt_ids=prompt.ids,
                output_ids=out.token_ids,
                finish_reason=out.finish_reason,
                chunk_tokens=out.chunk_tokens,
                k=arm.k,
                every_step_drafts=(arm.method or "").lower() in EVERY_STEP_DRAFTS,
                text=out.text,
            )

        return await self._ask(_name(arm, concurrency, again=again), prompts, concurrency, one)

    async def _texts(
        self,
        arm: Arm,
        server: Target,
        prompts: Sequence[Request],
        concurrency: int,
        *,
        again: bool,
        logprobs: bool,
    ) -> list[TextOutput]:
        """Outputs as texts. A prompt that the server refuses, as one too long for it, is left out."""
        role, tokens = _role(arm, again=again), self.config.parity.tokens

        async def one(item: tuple[Ask, Request]) -> TextOutput | Withheld:
            ask, prompt = item
            sent = msgspec.structs.replace(
                prompt,
                max_tokens=tokens,
                output_mode="natural",
                temperature=ask.temperature,
                top_p=ask.top_p,
                top_k=ask.top_k,
                seed=None,  # two launches would write one sample, not two
            )
            try:
                out = await answer(server, sent, logprobs=logprobs)
            except Withheld as error:
                return error
            return TextOutput(
                role=role,
                arm=arm.id,
                load=f"c{concurrency}",
                concurrency=concurrency,
                temperature=ask.temperature,
                top_p=ask.top_p,
                prompt_id=prompt.id,
                text=out.text,
                finish_reason=out.finish_reason,
                tokens=out.tokens,
                top=out.top,
            )

        found = await self._ask(_name(arm, concurrency, again=again), prompts, concurrency, one)
        refused = [x for x in found if isinstance(x, Withheld)]
        if refused and len(refused) > len(found) / 2:
            raise ParityError(f"{len(refused)} of {len(found)} requests were refused: {refused[0]}")
        return [x for x in found if not isinstance(x, Withheld)]

    async def _ask(
        self,
        name: str,
        prompts: Sequence[_P],
        concurrency: int,
        one: Callable[[tuple[Ask, _P]], Awaitable[_U]],
    ) -> list[_U]:
        """Outputs of all prompts, greedy and sampled, asked for in an order of the name's own."""
        # Greedy outputs of one prompt are all alike; sampled ones are not.
        distinct: list[_P] = [p for p in prompts if "#" not in p.id]
        asked = [
            *((Ask(0.0, 1.0), p) for p in distinct),
            *((ask, p) for ask in self.sampling() for p in prompts),
        ]
        # Launches share the engine's seed. In one order they would draw the same random numbers for the same
        # prompts, and A, A' and S would be copies of one sample rather than three.
        order = sorted(range(len(asked)), key=lambda i: hashlib.sha256(f"{name}/{i}".encode()).digest())
        batches = [order]
        if concurrency < self.concurrencies[-1]:
            # Greedy outputs by themselves, then the sampled ones: a verifier that is wrong at temperature
            # above 0 alone is then seen to be. At the highest concurrency they share their batches.
            greedy = range(len(distinct))
            batches = [[i for i in order if i in greedy], [i for i in order if i not in greedy]]
        written: dict[int, _U] = {}
        for batch in batches:
            found = await _each([asked[i] for i in batch], concurrency, one)
            written.update(zip(batch, found, strict=True))
        return [written[i] for i in range(len(asked))]

    async def _prompts(self, server: Target) -> tuple[_Prompt, ...]:
        """Token ids of the prompts: asked for once, then the same for every arm."""
        path = self.run.parity_path / "prompts.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=_Prompts).prompts
        wanted = self.config.parity.prompts or PROMPTS[self.tier or "smoke"]
        requests = self._requests(wanted)
        limit = await _context_limit(server)
        found = await _each(requests, SCORING_CONCURRENCY, lambda r: _ids_of(server, r))
        need = self.config.parity.tokens + SPARE_TOKENS
        fitting = [p for p in found if limit is None or len(p.ids) + need <= limit]
        if not fitting:
            raise ParityError(
                f"no prompt leaves room for parity.tokens ({need - SPARE_TOKENS}) in a context of {limit}: "
                "lower parity.tokens or raise the engine's max-model-len"
            )
        prompts = tuple(_again(fitting, i) for i in range(wanted))
        write_json(path, _Prompts(prompts=prompts))
        return prompts

    def _requests(self, count: int) -> list[Request]:
        """Distinct prompts of the workload, in an order of their own."""
        workload, seed = self.config.workload, self.config.measure.order_seed
        rows = [r for r in load_source(workload, self.base_dir).requests if r.messages or r.prompt]
        rows.sort(key=lambda r: hashlib.sha256(f"parity/{seed}/{r.id}".encode()).digest())
        return [make_request(workload, row, seed) for row in rows[:count]]


def _again(prompts: Sequence[_P], i: int) -> _P:
    """The i-th prompt; the list starts again when it runs out, under another id."""
    use, place = divmod(i, len(prompts))
    prompt = prompts[place]
    return prompt if not use else msgspec.structs.replace(prompt, id=f"{prompt.id}#{use + 1}")


def _role(arm: Arm, *, again: bool) -> Role:
    return Role.S if not arm.is_baseline else Role.A2 if again else Role.A


def _name(arm: Arm, concurrency: int, *, again: bool) -> str:
    return f"{_role(arm, again=again)}-{arm.id}-c{concurrency}"


def _draft_name(name: str, draft: str) -> str:
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePath(draft).name)[:40]
    return f"{name}@{short}-{hashlib.sha256(draft.encode()).hexdigest()[:6]}"


def _target(served: Served) -> Target:
    spec = served.spec
    scoring = served.engine.scoring()
    return Target(served.session, spec.base_url, spec.served_model, scoring, spec.extra_body, spec.extra_chat)


async def _cause(error: Exception, served: Served) -> str:
    """The error, or why the engine died: then the error is only how that looks from here."""
    if await dies(served):
        return served.engine.explain(served.process.log_text(), served.process.poll()).summary
    return str(error) or type(error).__name__


async def _ids_of(server: Target, request: Request) -> _Prompt:
    return _Prompt(request.id.replace("#", "_"), await prompt_token_ids(server, request))


async def _score(server: Target, s: ScoredSequence) -> ScoredSequence:
    found = await score(server, s.prompt_ids.tolist(), s.output_ids.tolist())
    return dataclasses.replace(
        s,
        logprobs=found.logprobs,
        ranks=found.ranks,
        top_ids=found.top_ids,
        top_logprobs=found.top_logprobs,
    )


async def _context_limit(server: Target) -> int | None:
    """The served context, from the server's list of models."""
    async with server.session.get(server.base_url + "/v1/models") as response:
        if response.status != 200:
            return None
        answer: Any = await response.json()
    cards = answer.get("data") if isinstance(answer, dict) else None
    limits = [c.get("max_model_len") for c in cards or () if isinstance(c, dict)]
    return next((int(x) for x in limits if isinstance(x, int)), None)


async def _each(items: Sequence[_T], concurrency: int, work: Callable[[_T], Awaitable[_U]]) -> list[_U]:
    """Results of ``work`` over items in their order, a few at a time; the first failure ends all."""
    results: dict[int, _U] = {}
    places = iter(range(len(items)))

    async def worker() -> None:
        for i in places:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                results[i] = await work(items[i])

    tasks = [asyncio.create_task(worker()) for _ in range(min(concurrency, len(items)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[i] for i in range(len(items))]
