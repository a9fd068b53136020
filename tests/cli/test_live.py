"""What is said while a sweep runs."""

from __future__ import annotations

import io

from rich.console import Console

from specbench.cli.live import Lines
from specbench.runs import records as r


def said(client: dict[str, object] | None) -> str:
    out = io.StringIO()
    lines = Lines(Console(file=out, width=200))
    record = r.CellRecord(
        id="c",
        identity={},
        arm="ngram-k2",
        load="c4",
        concurrency=4,
        round=1,
        launch="l",
        status="ok",
        started_utc="",
        duration_s=9.0,
        client=client,
    )
    lines.cell_done(record, 83.0)
    return out.getvalue()


def test_a_cell_that_will_not_count_is_told_when_it_ends() -> None:
    bound = {"client_bound": True, "reasons": ["the client's event loop was 275 ms late"]}
    assert "not valid, client-bound: the client's event loop was 275 ms late" in said(bound)
    fine = said({"client_bound": False, "reasons": []})
    assert "ngram-k2 at c4: 83 tokens/s" in fine
    assert "not valid" not in fine
    assert said(None) == fine
