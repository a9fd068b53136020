"""Real text for requests of which only the length is known.

A question of the corpus, asked as it is, so that the answer is a natural one, behind other text of the same
category packed to the recorded length with the served tokenizer. Text of a shared prefix block depends on
the trace and the block's id alone, so that equal leading ids are equal leading text, in every arm and every
process: seeds come from SHA-256.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from specbench.workloads.arrivals import seed_of
from specbench.workloads.loading import category_of
from specbench.workloads.mix import category_shares, interleave
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import Source, SourceRequest
from specbench.workloads.tokens import Tokens

TOLERANCE: Final = 0.02
"""Relative error of a prompt's length beyond which it is reported."""

SEPARATOR: Final = "\n\n"

MAX_TRIES: Final = 8
MAX_QUESTIONS: Final = 6
SHORT_QUESTION: Final = 128
"""Tokens that the question behind shared blocks may take even where blocks are smaller."""

FILLER: Final = "filler"

_TEXT: Final = """
    time year people way day thing world life hand part child eye place work week case point company number
    group problem fact house water room mother area money story month lot right study book job word business
    issue side kind head service friend father power hour game line end member law car city community name
"""
_WORDS: Final = tuple(_TEXT.split())


@dataclass(slots=True)
class Matcher:
    """Packs text of one corpus. ``remarks()`` tells what did not come out as asked.

    Attributes:
        corpus: name for ``text_source``.
        tokens: counts and cuts in tokens.
    """

    corpus: str
    requests: Sequence[SourceRequest]
    tokens: Tokens
    label: str = ""
    filler: bool = False
    _pools: dict[str, _Pool] = field(default_factory=dict)
    _off: dict[str, tuple[int, int]] = field(default_factory=dict)
    _repeating: int = 0
    _matched: int = 0

    def __post_init__(self) -> None:
        by_category: dict[str, list[SourceRequest]] = {}
        for request in self.requests:
            if request.text():
                by_category.setdefault(category_of(request), []).append(request)
        if not by_category:
            raise WorkloadError([f"workload.source: {self.corpus} has no text to match lengths with"])
        self._pools = {name: _Pool(name, rows, self.tokens) for name, rows in by_category.items()}

    def match(
        self, rows: Sequence[SourceRequest], key: str, categories: Mapping[str, float] | None
    ) -> list[SourceRequest]:
        """A request with text for each row, in their order.

        Args:
            rows: with ``prompt_tokens``; whatever text they have is not used.
            key: identity of the trace.
            categories: weights of the corpus's categories; its own proportions if null.
        """
        sizes = {name: float(len(pool.questions)) for name, pool in self._pools.items()}
        if categories is not None and not sizes.keys() <= categories.keys():
            categories = None  # filler has a category of its own
        shares = category_shares(categories, sizes)
        order = interleave(shares, len(rows))
        return [self._one(row, key, self._pools[name]) for row, name in zip(rows, order, strict=True)]

    def remarks(self) -> list[str]:
        """Sentences about lengths that were missed and text that had to be repeated."""
        kind = "filler words" if self.filler else f"text of {self.corpus}"
        said = [f"prompts: {kind} packed to the recorded lengths with {self.tokens.name}"]
        if self._off:
            worst = max(self._off, key=lambda i: abs(self._off[i][0] - self._off[i][1]) / self._off[i][1])
            got, wanted = self._off[worst]
            said.append(
                f"{len(self._off)} of {self._matched} prompts miss their recorded length by more than "
                f"{TOLERANCE:.0%}: the worst, {worst!r}, has {got} tokens for {wanted}"
            )
        if self._repeating and not self.filler:
            sizes = ", ".join(f"{name} {len(pool.stream)}" for name, pool in sorted(self._pools.items()))
            said.append(
                f"{self._repeating} of {self._matched} prompts are longer than the text there is and repeat "
                f"it, which lookup drafting exploits: give a larger workload.source (tokens: {sizes})"
            )
        return said

    def _one(self, row: SourceRequest, key: str, pool: _Pool) -> SourceRequest:
        target = row.prompt_tokens or 0
        blocks = row.shape.prefix if row.shape is not None else None
        own = f"{key}/{row.id}"
        # The same blocks to the end are the same prompt, question included.
        last = f"{key}/{_scope(row)}/{blocks.ids[-1]}" if blocks is not None and blocks.ids else own
        pieces = _Pieces(pool, key, row, self.label)
        # Blocks that others share come first, so the question may take no more than about the last of them.
        room = target if blocks is None else min(target, max(blocks.block_tokens, SHORT_QUESTION))
        first = pool.question(room, seed_of("question", self.label, last))
        made, count = self._pack(row, first, pieces, target)
        for again in range(1, MAX_QUESTIONS):
            if abs(count - target) <= TOLERANCE * target:
                break
            # A short prompt has no room to adjust: another question may leave more.
            other = pool.question(room, seed_of("question", self.label, last, again))
            tried = self._pack(row, other, pieces, target)
            if abs(tried[1] - target) < abs(count - target):
                made, count = tried
        self._matched += 1
        if pieces.used > len(pool.stream):
            self._repeating += 1
        if target and abs(count - target) > TOLERANCE * target:
            self._off[row.id] = (count, target)
        return made

    def _pack(
        self, row: SourceRequest, question: SourceRequest, pieces: _Pieces, target: int
    ) -> tuple[SourceRequest, int]:
        """Adjust the text before the question until the whole prompt has its length, or stops improving."""
        bare = self._made(row, question, "")
        bare_count = self.tokens.prompt_tokens(bare)
        if bare_count > target and question.messages is not None and len(question.messages) > 1:
            # What was said before the question gives way first.
            question = msgspec.structs.replace(question, messages=question.messages[-1:], tools=None)
            bare = self._made(row, question, "")
            bare_count = self.tokens.prompt_tokens(bare)
        if bare_count > target:
            return self._cut(row, question, target, bare, bare_count)
        best, best_count = bare, bare_count
        need = target - bare_count
        for _ in range(MAX_TRIES):
            if need <= 0 or best_count == target:
                break
            made = self._made(row, question, self.tokens.decode(pieces.take(need)).rstrip("\ufffd"))
            count = self.tokens.prompt_tokens(made)
            if abs(count - target) < abs(best_count - target):
                best, best_count = made, count
            if count == target:
                break
            need += target - count
        return best, best_count

    def _cut(
        self, row: SourceRequest, question: SourceRequest, target: int, bare: SourceRequest, count: int
    ) -> tuple[SourceRequest, int]:
        """A question longer than the prompt may be: only its own last words are asked."""
        ids = self.tokens.encode(_asked(question))
        best, best_count = bare, count
        room = len(ids) - (count - target)
        for _ in range(MAX_TRIES):
            room = max(1, min(len(ids), room))
            short = {"role": "user", "content": self.tokens.decode(ids[-room:]).strip("\ufffd") or "?"}
            brief = _with_text(question, (short,), str(short["content"]))
            made = self._made(row, brief, "")
            n = self.tokens.prompt_tokens(made)
            if abs(n - target) < abs(best_count - target):
                best, best_count = made, n
            if n == target or (n > target and room == 1):
                break
            room += target - n
        return best, best_count

    def _made(self, row: SourceRequest, question: SourceRequest, context: str) -> SourceRequest:
        messages, prompt = question.messages, question.prompt
        if context:
            if messages is not None:
                if row.shape is not None and row.shape.prefix is not None:
                    messages = _without_system(messages)
                first = messages[0]
                head = {**first, "content": context + SEPARATOR + _text(first.get("content"))}
                messages = (head, *messages[1:])
            else:
                prompt = context + SEPARATOR + (prompt or "")
        source = question.text_source
        return msgspec.structs.replace(
            row,
            messages=messages,
            prompt=prompt,
            shape=None,
            tools=question.tools,
            sampling=None,
            reference=None,
            category=category_of(question),
            text_source=source if source.startswith(FILLER) else f"matched:{self.corpus}",
        )


class _Pool:
    """The text of one category: its questions by length, and all of it as one stream of tokens."""

    def __init__(self, name: str, rows: Sequence[SourceRequest], tokens: Tokens) -> None:
        self.name = name
        sized = sorted(((tokens.prompt_tokens(row), row.id, row) for row in rows), key=lambda x: x[:2])
        self.questions = [row for _, _, row in sized]
        self._sizes = [size for size, _, _ in sized]
        separator = tokens.encode(SEPARATOR)
        self.stream: list[int] = []
        self.starts: list[int] = []
        for row in sorted(rows, key=lambda r: seed_of("stream", r.id)):
            self.starts.append(len(self.stream))
            self.stream += tokens.encode(row.text() or "") + separator

    def question(self, target: int, seed: int) -> SourceRequest:
        """One of those that fit into ``target`` tokens; the shortest when none does."""
        fitting = sum(1 for size in self._sizes if size <= target)
        return self.questions[seed % fitting] if fitting else self.questions[0]


class _Pieces:
    """The tokens before a question: its blocks' text in order, then text of its own; grown as needed."""

    def __init__(self, pool: _Pool, key: str, row: SourceRequest, label: str) -> None:
        self._pool = pool
        self._ids: list[int] = []
        self._own = seed_of("tail", label, key, row.id)
        self._prefix = row.shape.prefix if row.shape is not None else None
        self._scope = f"{label}/{key}/{_scope(row)}"
        self._next = 0
        self.used = 0

    def take(self, count: int) -> list[int]:
        """The first ``count`` tokens."""
        while len(self._ids) < count:
            blocks = self._prefix.ids if self._prefix is not None else ()
            if self._prefix is not None and self._next < len(blocks):
                seed = seed_of("block", self._scope, blocks[self._next])
                self._ids += self._text(seed, self._prefix.block_tokens)
                self._next += 1
            else:
                self._ids += self._text(self._own, count - len(self._ids))
                self._own = seed_of("more", self._own)
        self.used = max(self.used, count)
        return self._ids[:count]

    def _text(self, seed: int, count: int) -> list[int]:
        """``count`` tokens of the stream from the start of some text of it, round the end if need be."""
        stream = self._pool.stream
        start = self._pool.starts[seed % len(self._pool.starts)]
        found = stream[start : start + count]
        while len(found) < count:
            found += stream[: count - len(found)]
        return found


class Words:
    """Counts words as tokens: all there is for filler text without the served tokenizer."""

    name = "one word per token (the served tokenizer is not here, so real lengths differ)"

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: list[str] = []

    def encode(self, text: str) -> list[int]:
        """See `Tokens`."""
        ids = []
        for word in text.split():
            if word not in self._ids:
                self._ids[word] = len(self._words)
                self._words.append(word)
            ids.append(self._ids[word])
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokens`."""
        return " ".join(self._words[i] for i in ids)

    def prompt_tokens(self, request: SourceRequest) -> int:
        """See `Tokens`."""
        return len((request.text() or "").split())


def filler_requests(count: int = 64, words: int = 400) -> list[SourceRequest]:
    """A corpus of common words in random order: the same everywhere, and no language."""
    rng = random.Random(seed_of("filler"))  # noqa: S311 - words, not a secret
    made = []
    for i in range(1, count + 1):
        text = " ".join(rng.choice(_WORDS) for _ in range(words if i % 2 else 4))
        made.append(
            SourceRequest(
                id=f"filler-{i:02d}",
                source=Source(file=FILLER, line=i),
                messages=({"role": "user", "content": text},),
                category=FILLER,
                text_source=f"{FILLER}:words",
            )
        )
    return made


def _scope(row: SourceRequest) -> str:
    prefix = row.shape.prefix if row.shape is not None else None
    return f"session {row.session_id}" if prefix is not None and prefix.scope == "session" else "global"


def _without_system(messages: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """A system message's text moved into the user's: prompts that share blocks must begin in the same way."""
    if len(messages) < 2 or messages[0].get("role") not in {"system", "developer"}:
        return messages
    text = _text(messages[0].get("content")) + SEPARATOR + _text(messages[1].get("content"))
    return ({**messages[1], "content": text}, *messages[2:])


def _asked(question: SourceRequest) -> str:
    return (
        question.prompt
        if question.prompt is not None
        else _text((question.messages or ({},))[-1].get("content"))
    )


def _with_text(question: SourceRequest, messages: tuple[dict[str, Any], ...], prompt: str) -> SourceRequest:
    if question.prompt is not None:
        return msgspec.structs.replace(question, prompt=prompt)
    return msgspec.structs.replace(question, messages=messages, tools=None)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
