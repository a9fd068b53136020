"""What is said while a sweep runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from specbench.cli.live import Lines
from specbench.cli.sweep import prepared_or_error
from specbench.config.source import load_config
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


@pytest.mark.parametrize(("load", "warned"), [(0.1, False), (50.0, True)])
def test_a_busy_machine_is_warned_of_before_the_first_launch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    load: float,
    warned: bool,
) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "name: x\ntarget: t\nengine: {kind: simulated}\narms: [{method: ngram, k: 1}]\nloads: {closed: [1]}\n"
    )
    monkeypatch.setattr("psutil.getloadavg", lambda: (load, 0.0, 0.0))
    prepared_or_error(load_config(path))
    told = capsys.readouterr().err
    assert ("load average 50.0" in told and "stop other work" in told) is warned
