"""The language model: deterministic, of realistic entropy, with natural endings and a wish to copy."""

from __future__ import annotations

import numpy as np
import pytest

from specbench.engines.simulated.lm import Context, Contexts, LanguageModel
from specbench.engines.simulated.sampling import SamplingArrays, distribution, draw
from specbench.engines.simulated.tokenizer import EOS, QUOTE, TOKEN_TEXT, VOCABULARY_SIZE, decode, encode


def plain(n: int, temperature: float = 1.0) -> SamplingArrays:
    return SamplingArrays(np.full(n, temperature), np.ones(n), np.zeros(n, dtype=np.int64), np.zeros(n))


def read(tokens: list[int]) -> Context:
    context = Context()
    for token in tokens:
        context.read(token)
    return context


def test_vocabulary_is_complete_and_distinct() -> None:
    assert len(TOKEN_TEXT) == len(set(TOKEN_TEXT)) == VOCABULARY_SIZE


def test_text_of_tokens_is_read_back_as_the_same_tokens() -> None:
    ids = list(range(2, VOCABULARY_SIZE))
    assert encode(decode(ids)) == ids


def test_quote_marks_are_one_token() -> None:
    assert encode('a "b" ```c```').count(QUOTE) == 4


def test_array_contexts_agree_with_contexts_read_token_by_token() -> None:
    texts = [[5, 6, 7, 8], [9, 3, 200, 255], [17, 0, 2, 4]]
    array = Contexts.of([read(text) for text in texts]).after(np.array([11, 12, 13]))
    single = Contexts.of([read([*text, t]) for text, t in zip(texts, (11, 12, 13), strict=True)])
    np.testing.assert_array_equal(array.last, single.last)
    np.testing.assert_array_equal(array.digest, single.digest)


def test_a_row_of_logits_does_not_depend_on_its_batch() -> None:
    model = LanguageModel(seed=3)
    contexts = [read([i, 2 * i % 256, 7 * i % 256]) for i in range(64)]
    batch = model.next_logits(Contexts.of(contexts))
    alone = np.concatenate([model.next_logits(Contexts.of([c])) for c in contexts])
    np.testing.assert_array_equal(batch, alone)


def test_entropy_and_length_are_realistic() -> None:
    model = LanguageModel(seed=1, mean_output_tokens=50)
    rng = np.random.default_rng(4)
    n = 400
    contexts = Contexts.of([read([i % 256, (i * i) % 256, i // 2]) for i in range(n)])
    entropies, ends, alive = [], 0, 0
    for _ in range(60):
        p = distribution(model.next_logits(contexts), plain(n))
        entropies.append(float(-(p * np.log(np.maximum(p, 1e-300))).sum(axis=-1).mean()))
        tokens = draw(p, rng.random(n))
        ends += int((tokens == EOS).sum())
        alive += n
        contexts = contexts.after(tokens)
    assert 1.3 < np.mean(entropies) < 1.9
    assert alive / ends == pytest.approx(50, rel=0.2)


def test_quoted_text_is_copied_and_plain_text_is_not() -> None:
    model = LanguageModel(seed=1)
    words = [2 + (37 * i) % 250 for i in range(40)]
    quoted, unquoted = [9, QUOTE, *words, QUOTE, 10], [9, *words, 10]

    def chance_of_copying(prompt: list[int]) -> float:
        contexts = Contexts.of([read([*prompt, words[i], words[i + 1]]) for i in range(38)])
        p = distribution(model.next_logits(contexts), plain(38))
        return float(np.mean([p[i, words[i + 2]] for i in range(38)]))

    assert chance_of_copying(quoted) > 0.8
    assert chance_of_copying(unquoted) < 0.1


def test_scoring_a_prompt_gives_the_logits_that_decoding_had() -> None:
    model = LanguageModel(seed=2)
    tokens = [*encode('fix "the cat sat on the mat" please'), 40, 41, 42, 43]
    scored = model.score_prompt(tokens)
    decoded = [model.next_logits(Contexts.of([read(tokens[:i])]))[0] for i in range(1, len(tokens))]
    np.testing.assert_array_equal(scored, np.stack(decoded))


def test_a_mean_length_of_one_ends_nearly_every_text_at_once() -> None:
    model = LanguageModel(seed=1, mean_output_tokens=1.0)
    p = distribution(model.next_logits(Contexts.of([read([5, i]) for i in range(50)])), plain(50))
    assert p[:, EOS].min() > 0.5
