from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.load.record import ErrorClass, RequestAcceptance, RequestRecord
from specbench.load.table import SCHEMA, WrongSchema, records_to_table, table_to_records

TIME = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 2**31 - 1)
TEXT = st.text(max_size=20)
ACCEPTANCE = st.builds(
    RequestAcceptance,
    drafted_steps=COUNT,
    draft_tokens=st.none() | COUNT,
    accepted_tokens=st.none() | COUNT,
    histogram=st.lists(COUNT, max_size=5).map(tuple),
)
RECORD = st.builds(
    RequestRecord,
    id=TEXT,
    index=COUNT,
    category=TEXT,
    intended_s=TIME,
    sent_s=st.none() | TIME,
    end_s=st.none() | TIME,
    chunk_s=st.lists(TIME, max_size=5),
    chunk_tokens=st.lists(st.integers(-1, 2**31 - 1), max_size=5),
    token_ids=st.lists(COUNT, max_size=5),
    prompt_tokens=st.none() | COUNT,
    cached_tokens=st.none() | COUNT,
    output_tokens=st.none() | COUNT,
    finish_reason=st.none() | TEXT,
    http_status=st.none() | st.integers(100, 999),
    error_class=st.none() | st.sampled_from(ErrorClass),
    error=st.none() | TEXT,
    acceptance=st.none() | ACCEPTANCE,
)


@given(st.lists(RECORD, max_size=4))
def test_round_trip(records: list[RequestRecord]) -> None:
    back = table_to_records(records_to_table(records))
    assert back == records
    assert all(r.error_class is None or isinstance(r.error_class, ErrorClass) for r in back)


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    record = RequestRecord("a", 0, "c", 0.1, chunk_s=[0.2, 1 / 3], chunk_tokens=[1, -1], finish_reason="stop")
    pq.write_table(records_to_table([record]), tmp_path / "requests.parquet")
    table = pq.read_table(tmp_path / "requests.parquet")
    assert table.schema.metadata[b"specbench.schema"] == b"specbench.requests/1"
    assert table_to_records(table) == [record]


def test_every_field_has_a_column() -> None:
    fields = set(RequestRecord.__slots__) - {"acceptance", "text"}  # several columns; never stored
    assert fields <= set(SCHEMA.names)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_times_are_finite(bad: float) -> None:
    with pytest.raises(ValueError, match=r"'a' .* not finite"):
        records_to_table([RequestRecord("a", 0, "c", 0.0, chunk_s=[1.0, bad])])


def test_another_schema_is_refused() -> None:
    table = records_to_table([])
    with pytest.raises(WrongSchema, match=r"'specbench\.requests/2'"):
        table_to_records(table.replace_schema_metadata({b"specbench.schema": b"specbench.requests/2"}))
    with pytest.raises(WrongSchema, match="'none'"):
        table_to_records(pa.table({"id": ["a"]}))
    with pytest.raises(WrongSchema, match="lacks the columns chunk_s"):
        table_to_records(table.drop_columns(["chunk_s"]))
