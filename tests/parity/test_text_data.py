"""Outputs as texts survive the disk exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench.parity.data import ParityDataError, Role
from specbench.parity.text_data import TextOutput, from_table, to_table


def output(prompt: str = "p0", **changes: Any) -> TextOutput:
    values: dict[str, Any] = {
        "role": Role.S,
        "arm": "eagle3-k3",
        "load": "c8",
        "concurrency": 8,
        "temperature": 1.0,
        "top_p": 0.9,
        "prompt_id": prompt,
        "text": "one two",
        "finish_reason": "stop",
        **changes,
    }
    return TextOutput(**values)


SPELT: dict[str, Any] = {
    "tokens": ("one", " two", "\u00e4\U0001f600"),
    # Powers of two: they are stored as 32-bit floats.
    "top": ((("one", -0.25), ("a", -1.5)), (), ((" b", -0.5),)),
}


def test_round_trip_is_exact(tmp_path: Path) -> None:
    before = [
        output(),
        output("p1", role=Role.A2, temperature=0.0, top_p=1.0, **SPELT),
        output("p2", text="", tokens=(), top=()),
    ]
    pq.write_table(to_table(before), tmp_path / "x.parquet")
    after = from_table(pq.read_table(tmp_path / "x.parquet"))
    assert after == before
    assert after[0].tokens is None  # unknown is not the same as none
    assert after[2].tokens == ()


def test_a_table_of_another_kind_is_refused_by_name() -> None:
    table = to_table([output()])
    with pytest.raises(ParityDataError, match=r"schema 'specbench.parity/1', .*'specbench.parity-texts/1'"):
        from_table(table.replace_schema_metadata({"schema": "specbench.parity/1"}))
    with pytest.raises(ParityDataError, match="column 'finish_reason' is missing"):
        from_table(table.drop_columns(["finish_reason"]))
    spelt = to_table([output(**SPELT)])
    torn = spelt.set_column(
        spelt.column_names.index("top_logprobs"),
        spelt.schema.field("top_logprobs"),
        pa.array([[[-1.0], []]], type=spelt.schema.field("top_logprobs").type),
    )
    with pytest.raises(ParityDataError, match="row 0: top_tokens and top_logprobs do not fit together"):
        from_table(torn)


def test_tokens_and_alternatives_come_together() -> None:
    with pytest.raises(ParityDataError, match="p0: 3 tokens, alternatives at 1 of them"):
        output(tokens=SPELT["tokens"], top=((),))
