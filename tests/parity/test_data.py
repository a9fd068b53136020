"""Scored outputs survive the disk exactly, and are laid end to end correctly."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.parity.data import (
    DRAFT_FLOOR,
    ParityDataError,
    Role,
    ScoredSequence,
    Tokens,
    draft_logprobs,
    from_table,
    step_places,
    to_table,
)


def output(n: int = 5, k: int = 3, seed: int = 0, **changes: Any) -> ScoredSequence:
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {
        "role": Role.S,
        "arm": "ngram-k4",
        "load": "c8",
        "concurrency": 8,
        "temperature": 1.0,
        "top_p": 1.0,
        "prompt_id": f"p{seed}",
        "prompt_ids": rng.integers(0, 200_000, 7).astype(np.int32),
        "output_ids": rng.integers(0, 200_000, n).astype(np.int32),
        "finish_reason": "stop",
        "logprobs": rng.normal(-2, 1, n).astype(np.float32),
        "top_ids": rng.integers(0, 200_000, (n, k)).astype(np.int32),
        "top_logprobs": np.sort(rng.normal(-2, 1, (n, k)).astype(np.float32))[:, ::-1].copy(),
        **changes,
    }
    return ScoredSequence(**values)


def same(a: ScoredSequence, b: ScoredSequence) -> bool:
    for f in dataclasses.fields(ScoredSequence):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if isinstance(x, np.ndarray):
            if not (
                isinstance(y, np.ndarray) and x.dtype == y.dtype and np.array_equal(x, y, equal_nan=True)
            ):
                return False
        elif x != y or type(x) is not type(y):
            return False
    return True


FULL: dict[str, Any] = {
    "ranks": np.array([1, 2, 3000, 1, 1], dtype=np.int32),
    "positions": np.array([0, 0, 1, 2, 0], dtype=np.int32),
    "after_rejection": np.array([False, False, False, False, True]),
    "scorer": "some/draft",
    "text": "one two \u00e4 \U0001f600",
}


def test_round_trip_is_exact(tmp_path: Path) -> None:
    strange = output(
        seed=2,
        logprobs=np.array([-np.inf, -0.0, np.float32(1e-38), -5.25, np.nan], dtype=np.float32),
        role=Role.A2,
    )
    before = [output(), output(seed=1, **FULL), strange, output(n=0, k=0, seed=3), output(n=1, seed=4)]
    pq.write_table(to_table(before), tmp_path / "x.parquet")
    after = from_table(pq.read_table(tmp_path / "x.parquet"))
    assert len(after) == len(before)
    for a, b in zip(before, after, strict=True):
        assert same(a, b), a.prompt_id


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=8), st.integers(1, 4))
def test_round_trip_of_any_lengths(sizes: list[tuple[int, bool]], k: int) -> None:
    before = [
        output(n, k if n else 0, seed=i, ranks=np.arange(n, dtype=np.int32) if ranked else None)
        for i, (n, ranked) in enumerate(sizes)
    ]
    after = from_table(to_table(before))
    assert [same(a, b) for a, b in zip(before, after, strict=True)] == [True] * len(before)


def test_chunks_become_places_in_the_step() -> None:
    positions, after = step_places([1, 4, 2, 4, 3], 14, 3, every_step_drafts=True)
    assert positions is not None
    assert after is not None
    assert positions.tolist() == [0, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 0, 1, 2]
    assert np.flatnonzero(after).tolist() == [7]  # after the step of two; the last step has none after it
    _, unknown = step_places([1, 4, 2], 7, 3, every_step_drafts=False)
    assert unknown is None
    assert step_places([], 0, None, every_step_drafts=False)[0] is not None
    # Merged chunks, unknown counts and sums that do not fit say nothing about steps.
    for chunks, n in (([1, 5], 6), ([1, -1, 3], 3), ([1, 2], 4)):
        assert step_places(chunks, n, 3, every_step_drafts=True) == (None, None)


def test_another_schema_is_refused() -> None:
    table = to_table([output()])
    with pytest.raises(ParityDataError, match=r"specbench\.parity/9"):
        from_table(table.replace_schema_metadata({"schema": "specbench.parity/9"}))
    with pytest.raises(ParityDataError, match="'ranks' is missing"):
        from_table(table.drop_columns(["ranks"]))


def test_files_of_before_texts_were_kept_are_read() -> None:
    found = from_table(to_table([output(text="one"), output(seed=1)]).drop_columns(["text"]))
    assert [s.text for s in found] == [None, None]
    assert same(found[0], output())
    assert [s.text for s in from_table(to_table([output(text="one"), output(seed=1)]))] == ["one", None]


def test_lists_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ParityDataError, match="logprobs has shape"):
        output(logprobs=np.zeros(4, dtype=np.float32))
    table = to_table([output()])
    broken = pa.array([[1, 2, 3, 4]], type=pa.list_(pa.int32()))
    at = table.column_names.index("top_ids")
    with pytest.raises(ParityDataError, match="does not divide"):
        from_table(table.set_column(at, "top_ids", broken).replace_schema_metadata(table.schema.metadata))


def test_tokens_are_laid_end_to_end() -> None:
    a, b = output(seed=1, **FULL), output(n=2, seed=2, k=3)
    tokens = Tokens.of([a, output(n=0, k=0, seed=3), b])
    assert tokens.outputs == 2
    assert tokens.ids.tolist() == [*a.output_ids, *b.output_ids]
    assert tokens.sequence.tolist() == [0] * 5 + [1] * 2
    assert tokens.positions.tolist() == [0, 0, 1, 2, 0, -1, -1]
    assert tokens.after_rejection.tolist() == [0, 0, 0, 0, 1, -1, -1]
    # A draft direction needs the draft's view of every output.
    assert tokens.draft_logprobs is None
    assert tokens.proposed is None
    part = tokens.part(4, 6)
    assert part.ids.tolist() == [a.output_ids[4], b.output_ids[0]]


def test_outputs_scored_differently_are_refused() -> None:
    with pytest.raises(ParityDataError, match="different numbers"):
        Tokens.of([output(), output(k=4)])
    with pytest.raises(ParityDataError, match="no scored tokens"):
        Tokens.of([])


def test_drafts_logprobs_are_found_by_token_and_floored() -> None:
    found = draft_logprobs(
        np.array([[5, 6, 7]], dtype=np.int32),
        np.array([[7, 9, 5]], dtype=np.int32),
        np.array([[-0.5, -1.0, -9.0]], dtype=np.float32),
    )
    assert found.tolist() == [[DRAFT_FLOOR, DRAFT_FLOOR, -0.5]]
