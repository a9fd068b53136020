"""The engine core: continuous batching and speculative steps, without clocks or sockets.

`EngineCore.step` does the work of one iteration and says how long it would have taken. The server
paces these steps in wall time; a test or a what-if study adds the durations up.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from typing import Final

import numpy as np

from specbench.engines.simulated.costs import Costs, Noise
from specbench.engines.simulated.lm import (
    Context,
    Contexts,
    DraftAlone,
    DraftModel,
    Floats,
    LanguageModel,
    seed_of,
)
from specbench.engines.simulated.options import SimOptions, Speculation
from specbench.engines.simulated.sampling import (
    Probabilities,
    SamplingArrays,
    distribution,
    draw,
    log_probabilities,
)
from specbench.engines.simulated.sequence import (
    DraftStats,
    FinishReason,
    Output,
    SamplingParams,
    Sequence,
    Step,
)
from specbench.engines.simulated.speculation import Drafts, LearningLookup, NgramLookup
from specbench.engines.simulated.tokenizer import EOS
from specbench.engines.simulated.verifiers import VERIFIERS

BLOCK_TOKENS: Final = 16

_LOSSLESS: Final = VERIFIERS["standard"]


class EngineCore:
    """Runs all sequences of a launch.

    Args:
        model: name of the target; another name is another model.
        sim: simulation knobs.
        speculation: how to draft; null for the baseline.
        seed: seeds the sampling of requests that bring no seed.
    """

    def __init__(
        self,
        model: str = "sim/target",
        *,
        sim: SimOptions | None = None,
        speculation: Speculation | None = None,
        seed: int = 0,
        max_model_len: int = 2048,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 2048,
        prefix_caching: bool = True,
    ) -> None:
        sim = sim or SimOptions()
        self.lm = _model(model, sim)
        self.speculation = speculation
        self._k = speculation.k if speculation is not None else 0
        self.costs: Costs = sim.costs
        self.noise = Noise.of(sim.launch_sd, sim.step_sd, sim.launch_seed)
        self.max_model_len = max_model_len
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self._draft: DraftModel | None = None
        self._verifier = VERIFIERS[sim.verifier]
        self._logit_noise = sim.logit_noise
        self._rng = np.random.default_rng(seed)
        self._ids = itertools.count()
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._prefix_caching = prefix_caching
        self._blocks: OrderedDict[tuple[int, int], None] = OrderedDict()
        self.kv_tokens = sim.kv_tokens
        self._answers: NgramLookup | None = None
        if speculation is not None and speculation.method == "suffix":
            self._answers = NgramLookup([], speculation.prompt_lookup_min, speculation.prompt_lookup_max)
        if speculation is not None and speculation.model is not None:
            name = speculation.model
            self._draft = DraftModel(self.lm, seed_of("draft", name, model), sim.quality_of(name))
            self.kv_tokens = int(sim.kv_tokens * sim.kv_share_with_draft)

    def add(self, prompt: list[int], params: SamplingParams) -> Sequence:
        """Queue a request; ``prompt`` has at least one token."""
        sequence = Sequence(next(self._ids), prompt, params)
        if self.speculation is not None and self.speculation.model is None:
            low, high = self.speculation.prompt_lookup_min, self.speculation.prompt_lookup_max
            if self._answers is None:
                sequence.lookup = NgramLookup(prompt, low, high)
            else:
                sequence.lookup = LearningLookup(prompt, low, high, self._answers)
        for token in prompt:
            sequence.context.read(token)
        sequence.to_prefill = len(prompt)
        self.waiting.append(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """Forget a request, for example because its client went away."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def has_work(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self.running or self.waiting)

    @property
    def kv_usage(self) -> float:
        """Share of KV memory in use, 0 to 1."""
        return min(1.0, sum(map(len, self.running)) / self.kv_tokens)

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; refused while requests run."""
        if self.running:
            return False
        self._blocks.clear()
        return True

    def step(self) -> Step:
        """Do one iteration; call only when `has_work`."""
        preemptions = self._preempt()
        step = Step(0.0, [], 0, 0, 0, preemptions, DraftStats())
        decoding = [s for s in self.running if not s.to_prefill]
        drafts = self._propose_lookups(decoding)
        width = self._k + 1 if self._draft is not None else 1
        lookups = sum(map(len, drafts)) if drafts else 0
        self._admit(step)
        scheduled = len(self.running)
        budget = self._max_num_batched_tokens - len(decoding) * width - lookups
        prefilled = self._prefill(step, budget)
        if decoding:
            self._decode(step, decoding, drafts)
        if prefilled:
            self._first_tokens(step, prefilled)
        passes = 0
        if self._draft is not None and (decoding or prefilled):
            passes = max(1, self._k)  # with K = 0 the draft still reads what was written
        duration_ms = self.costs.step_ms(
            sequences=len(decoding),
            draft_tokens=step.drafting.draft_tokens,
            prefill_tokens=step.prefill_tokens,
            draft_passes=passes,
            lookups=len(decoding) if drafts is not None else 0,
        )
        step.duration_ms = duration_ms * self.noise.factor()
        if self.speculation is not None:
            # As vLLM's scheduler: by the requests of this step, those in prefill included, for the next one.
            self._k = self.speculation.k_at(scheduled)
        return step

    def _preempt(self) -> int:
        """Throw the newest sequences out while the next step would not fit in KV memory."""
        grow = 1 if self.speculation is None else self.speculation.k + 1
        count = 0
        while len(self.running) > 1 and sum(len(s) + grow for s in self.running) > self.kv_tokens:
            sequence = self.running.pop()
            sequence.to_prefill = len(sequence)
            sequence.preemptions += 1
            self.waiting.appendleft(sequence)
            count += 1
        return count

    def _admit(self, step: Step) -> None:
        used = sum(map(len, self.running))
        while self.waiting and len(self.running) < self._max_num_seqs:
            sequence = self.waiting[0]
            if self.running and used + len(sequence) + BLOCK_TOKENS > self.kv_tokens:
                break
            self.waiting.popleft()
            used += len(sequence)
            cached = self._cached_prefix(sequence)
            step.queried_tokens += sequence.to_prefill
            step.cached_tokens += cached
            if not sequence.output:
                sequence.cached_tokens = cached
            sequence.to_prefill -= cached
            self.running.append(sequence)

    def _cached_prefix(self, sequence: Sequence) -> int:
        """Tokens of the longest known prefix in whole blocks; the whole text becomes known."""
        if not self._prefix_caching:
            return 0
        context = Context()
        hit, known = 0, True
        tokens = sequence.prompt + sequence.output
        for i, token in enumerate(tokens, start=1):
            context.read(token)
            if i % BLOCK_TOKENS:
                continue
            key = (i, context.digest)
            known = known and key in self._blocks
            if known and i < len(tokens):
                hit = i
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) * BLOCK_TOKENS > self.kv_tokens:
            self._blocks.popitem(last=False)
        return hit

    def _prefill(self, step: Step, budget: int) -> list[Sequence]:
        """Compute prompt tokens within the budget; returns the sequences whose prompt is now done."""
        done = []
        for sequence in self.running:
            if not sequence.to_prefill:
                continue
            if budget <= 0:
                break
            chunk = min(budget, sequence.to_prefill)
            budget -= chunk
            sequence.to_prefill -= chunk
            step.prefill_tokens += chunk
            if not sequence.to_prefill:
                done.append(sequence)
        return done

    def _propose_lookups(self, decoding: list[Sequence]) -> list[list[int]] | None:
        if self.speculation is None or self.speculation.model is not None:
            return None
        return [s.lookup.propose(self._k) if s.lookup else [] for s in decoding]

    def _decode(self, step: Step, sequences: list[Sequence], lookups: list[list[int]] | None) -> None:
        sampling = _sampling_arrays(sequences)
        contexts = Contexts.of([s.context for s in sequences])
        room = np.array([self.max_model_len - len(s) - 1 for s in sequences], dtype=np.int64)
        if lookups is not None:
            logits, drafts = self._verify_lookups(contexts, lookups)
        elif self._draft is not None:
            logits, drafts = self._run_draft_model(self._draft, contexts, sequences, sampling)
        else:
            none = np.zeros((0, len(sequences)), dtype=np.int64)
            logits = self.lm.next_logits(contexts)[None]
            drafts = Drafts(none, np.zeros(len(sequences), dtype=np.int64))
        # vLLM schedules no draft beyond the context window.
        np.clip(drafts.lengths, 0, np.maximum(room, 0), out=drafts.lengths)
        # A bug of verification is one of speculation: where nothing drafts, nothing goes wrong.
        verifier = self._verifier if self.speculation is not None else _LOSSLESS
        target = verifier.law(self._rounded(logits), sampling)
        uniforms = self._uniforms(len(target), sequences)
        accepted, last = verifier.verify(target, drafts, uniforms)
        counts, stale = accepted + 1, np.zeros(len(sequences), dtype=bool)
        given = np.concatenate([drafts.tokens, last[None]])
        given[accepted, np.arange(len(sequences))] = last
        if self.speculation is not None:
            counts = verifier.garble(given, counts, target.shape[-1], self._rng)
        if verifier.stale_share:
            stale = (accepted < drafts.lengths) & (self._rng.random(len(sequences)) < verifier.stale_share)
        for i, sequence in enumerate(sequences):
            n, drafted = int(accepted[i]), int(drafts.lengths[i])
            if drafted:
                step.drafting.add(drafted, n)
                sequence.draft_stats.add(drafted, n)
            tokens = given[: counts[i], i].tolist()
            kept_draft = int(drafts.tokens[n, i]) if stale[i] else None
            step.outputs.append(self._emit(sequence, tokens, logits[:, i], first=False, stale=kept_draft))

    def _first_tokens(self, step: Step, sequences: list[Sequence]) -> None:
        """A finished prefill yields exactly one token, never a draft."""
        logits = self.lm.next_logits(Contexts.of([s.context for s in sequences]))
        target = distribution(self._rounded(logits), _sampling_arrays(sequences))
        tokens = draw(target, self._uniforms(1, sequences)[0])
        for i, sequence in enumerate(sequences):
            first = not sequence.output
            step.outputs.append(self._emit(sequence, [int(tokens[i])], logits[None, i], first=first))

    def _verify_lookups(self, contexts: Contexts, lookups: list[list[int]]) -> tuple[Floats, Drafts]:
        lengths = np.array([len(tokens) for tokens in lookups], dtype=np.int64)
        k = int(lengths.max(initial=0))
        tokens = np.full((k, len(lookups)), EOS, dtype=np.int64)
        for i, proposal in enumerate(lookups):
            tokens[: len(proposal), i] = proposal
        chain = [contexts]
        for row in tokens:
            chain.append(chain[-1].after(row))
        stacked = Contexts(
            np.concatenate([c.last for c in chain]),
            np.concatenate([c.digest for c in chain]),
            contexts.copies * (k + 1),
        )
        logits = self.lm.next_logits(stacked)
        return logits.reshape(k + 1, len(lookups), -1), Drafts(tokens, lengths)

    def _run_draft_model(
        self, draft: DraftModel, contexts: Contexts, sequences: list[Sequence], sampling: SamplingArrays
    ) -> tuple[Floats, Drafts]:
        """Draft K tokens; the target's scores are computed on the way since the draft imitates them."""
        assert self.speculation is not None
        k, b = self._k, len(sequences)
        probabilistic = self.speculation.probabilistic and bool((sampling.temperature > 0).any())
        tokens = np.empty((k, b), dtype=np.int64)
        logits = []
        proposals = []
        uniforms = self._uniforms(k, sequences) if probabilistic else None
        law = sampling.untruncated()
        for j in range(k):
            scores = self.lm.scores(contexts)
            draft_logits = draft.logits(scores, contexts)
            logits.append(self.lm.logits(scores, contexts))
            if uniforms is None:
                tokens[j] = draft_logits.argmax(axis=-1)
            else:
                proposals.append(distribution(draft_logits, law))
                argmax = self._verifier.drafts_are_argmax
                tokens[j] = draft_logits.argmax(axis=-1) if argmax else draw(proposals[-1], uniforms[j])
            contexts = contexts.after(tokens[j])
        logits.append(self.lm.next_logits(contexts))
        drafts = Drafts(tokens, np.full(b, k, dtype=np.int64), np.stack(proposals) if proposals else None)
        return np.stack(logits), drafts

    def _rounded(self, logits: Floats) -> Floats:
        if not self._logit_noise:
            return logits
        noise = self._rng.standard_normal(logits.shape, dtype=np.float32)
        return logits + noise * np.float32(self._logit_noise)

    def _uniforms(self, rows: int, sequences: list[Sequence]) -> Probabilities:
        """Uniform draws [rows, b]; a request with its own seed has its own stream."""
        uniforms = self._rng.random((rows, len(sequences)))
        for i, sequence in enumerate(sequences):
            if sequence.rng is not None:
                uniforms[:, i] = sequence.rng.random(rows)
        return uniforms

    def _emit(
        self, sequence: Sequence, tokens: list[int], logits: Floats, *, first: bool, stale: int | None = None
    ) -> Output:
        """Append tokens up to the first stop; a finished sequence leaves the batch.

        Args:
            stale: what the model reads instead of the last token, by a bug.
        """
        kept: list[int] = []
        reason: FinishReason | None = None
        for place, token in enumerate(tokens, start=1):
            kept.append(token)
            sequence.output.append(token)
            sequence.context.read(token if stale is None or place < len(tokens) else stale)
            if sequence.lookup is not None:
                sequence.lookup.append(token)
            if token == EOS and not sequence.params.ignore_eos:
                reason = "stop"
            elif len(sequence.output) >= sequence.params.max_tokens or len(sequence) >= self.max_model_len:
                reason = "length"
            if reason:
                self.running.remove(sequence)
                self._learn(sequence)
                break
        wanted = sequence.params.logprobs is not None
        logprobs = log_probabilities(logits[: len(kept)]) if wanted else None
        return Output(sequence, kept, first, reason, logprobs)

    def _learn(self, sequence: Sequence) -> None:
        """Suffix decoding keeps what it wrote, for all requests to come."""
        if self._answers is not None:
            for token in (*sequence.prompt[-1:], *sequence.output):
                self._answers.append(token)


def _model(name: str, sim: SimOptions) -> LanguageModel:
    """The model that is served: a target, or a draft by itself."""
    if sim.draft_of is None:
        return LanguageModel(seed_of("target", name), sim.mean_output_tokens)
    target = LanguageModel(seed_of("target", sim.draft_of), sim.mean_output_tokens)
    draft = DraftModel(target, seed_of("draft", name, sim.draft_of), sim.quality_of(name))
    return DraftAlone(target, draft)


def _sampling_arrays(sequences: list[Sequence]) -> SamplingArrays:
    params = [s.params for s in sequences]
    return SamplingArrays(
        temperature=np.array([p.temperature for p in params]),
        top_p=np.array([p.top_p for p in params]),
        top_k=np.array([p.top_k for p in params], dtype=np.int64),
        min_p=np.array([p.min_p for p in params]),
    )
