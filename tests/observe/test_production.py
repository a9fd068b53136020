"""Traffic weights from a production dump."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specbench.observe.production import ProductionError, binned, read_running

PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {0}
vllm:num_requests_running{{engine="1",model_name="m"}} {1}
vllm:num_requests_waiting{{engine="0",model_name="m"}} 7.0
"""


def dump(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def answer(*series: tuple[dict[str, str], list[tuple[float, str]]], kind: str = "matrix") -> str:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})


def test_pages_one_after_another_are_moments_and_ranks_are_added(tmp_path: Path) -> None:
    text = PAGE.format(1, 1) + PAGE.format(3, 5) + PAGE.format(0, 2) + PAGE.format(0, 0)
    found = read_running(dump(tmp_path / "pages.prom", text))
    assert found.share == {0.0: 0.25, 2.0: 0.5, 8.0: 0.25}
    assert (found.servers, found.samples, found.seconds) == (1, 8, None)
    assert found.metrics == ("vllm:num_requests_running",)


def test_a_range_query_counts_time_and_not_the_pauses(tmp_path: Path) -> None:
    # 10 s apart, then nobody looked for an hour.
    values = [(0.0, "4"), (10.0, "4"), (20.0, "16"), (3620.0, "4")]
    one = {"__name__": "vllm:num_requests_running", "instance": "a:8000"}
    found = read_running(dump(tmp_path / "answer.json", answer((one, values))))
    assert found.seconds == pytest.approx(40.0)
    assert found.share == {4.0: pytest.approx(0.75), 16.0: pytest.approx(0.25)}


def test_servers_are_not_added_and_ranks_of_one_batch_count_once(tmp_path: Path) -> None:
    name = {"__name__": "sglang:num_running_reqs", "tp_rank": "0"}
    series = [
        ({**name, "instance": "a"}, [(0.0, "2"), (1.0, "2")]),
        ({**name, "instance": "a", "tp_rank": "1"}, [(0.0, "2"), (1.0, "2")]),
        ({**name, "instance": "b"}, [(0.0, "8"), (1.0, "8")]),
    ]
    found = read_running(dump(tmp_path / "two.json", json.dumps(json.loads(answer(*series)), indent=2)))
    assert found.servers == 2
    assert found.share == {2.0: 0.5, 8.0: 0.5}


def test_lines_with_times_and_an_answer_may_share_a_file(tmp_path: Path) -> None:
    lines = "vllm:num_requests_running 1 1000\nvllm:num_requests_running 3 2000\n"
    more = answer(({"__name__": "vllm:num_requests_running"}, [(3.0, "3"), (4.0, "1")]))
    found = read_running(dump(tmp_path / "both.txt", f"{lines}{more}\n"))
    assert found.seconds == pytest.approx(4.0)
    assert found.share == {1.0: 0.5, 3.0: 0.5}


def test_time_goes_to_the_nearest_load_in_logarithms_and_the_outside_is_told() -> None:
    found = binned({0.0: 0.2, 1.0: 0.1, 5.0: 0.2, 7.0: 0.2, 40.0: 0.1, 200.0: 0.2}, [4, 16, 64])
    assert found is not None
    # The middle of 4 and 16 is 8: 7 is nearer to 4.
    assert found.share == {4: pytest.approx(0.625), 16: 0.0, 64: pytest.approx(0.375)}
    assert found.idle == pytest.approx(0.2)
    assert found.below == pytest.approx(0.125)
    assert found.above == pytest.approx(0.25)
    assert binned({0.0: 1.0}, [1]) is None


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("vllm:num_requests_waiting 3\n", "", "holds no sample of vllm:num_requests_running"),
        ("\n\nwhat: is this\n? \n", ":4", "neither a metrics line nor JSON"),
        ("vllm:num_requests_running 3\nvllm:num_requests_running three\n", ":2", "not a metrics line"),
        ("vllm:num_requests_running -1\n", ":1", "not a number of requests"),
        ('# a dump\n{"status": "succ', ":2", "save the whole answer"),
        ('{"status":"error","error":"bad query"}', ":1", "it says 'bad query'"),
        (answer(kind="vector"), ":1", "query_range"),
        (answer(({"__name__": "up"}, [(0.0, "1")])), ":1", "the answer is of 'up'"),
        (answer(({}, [(0.0, "many")])), ":1", "cannot be read"),
        ("vllm:num_requests_running 3\nvllm:num_requests_running 3 5000\n", "", "keep one kind"),
    ],
)
def test_errors_name_file_line_and_mend(tmp_path: Path, text: str, line: str, said: str) -> None:
    path = dump(tmp_path / "dump", text)
    with pytest.raises(ProductionError) as error:
        read_running(path)
    assert str(error.value).startswith(f"{path}{line}:")
    assert said in str(error.value)


def test_a_missing_file_and_another_encoding(tmp_path: Path) -> None:
    with pytest.raises(ProductionError, match="cannot be read"):
        read_running(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"# x\n# \xff\n")
    with pytest.raises(ProductionError, match=r"latin:2: not UTF-8"):
        read_running(tmp_path / "latin")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProductionError, match=r"pipe: is not a regular file"):
        read_running(tmp_path / "pipe")
