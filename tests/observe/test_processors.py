"""Which processors the client may use."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.observe import processors
from specbench.observe.client import EphemeralPortsError, ephemeral_ports, require_ports
from specbench.observe.processors import ProcessorError, format_cpus, on_cpus, parse_cpus, require_cpus


def test_a_list_as_taskset_writes_it() -> None:
    assert parse_cpus("0-2,5") == {0, 1, 2, 5}
    assert format_cpus({5, 2, 0, 1}) == "0-2,5"
    with pytest.raises(ProcessorError, match="3-1 runs backwards"):
        parse_cpus("3-1")


@given(st.sets(st.integers(0, 300), min_size=1))
def test_there_and_back(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


def test_processors_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "allowed_cpus", lambda: frozenset({0, 1, 2}))
    assert require_cpus("1-2") == {1, 2}
    with pytest.raises(ProcessorError, match=r"may use the processors 0-2, not 3,7"):
        require_cpus("2-3,7")
    monkeypatch.setattr(processors, "allowed_cpus", lambda: None)
    with pytest.raises(ProcessorError, match=r"remove measure\.client_cpus"):
        require_cpus("0")


def test_one_is_proposed_when_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, proposed in ((None, None), (frozenset({0, 1}), None), (frozenset({2, 3, 4, 9}), "9")):
        monkeypatch.setattr(processors, "allowed_cpus", lambda allowed=allowed: allowed)
        assert processors.proposed_cpus() == proposed


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds nothing")
def test_bound_for_a_while() -> None:
    before = os.sched_getaffinity(0)
    one = {max(before)}
    with on_cpus(one):
        assert os.sched_getaffinity(0) == one
    assert os.sched_getaffinity(0) == before
    with on_cpus(None):
        assert os.sched_getaffinity(0) == before


def test_local_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ephemeral_ports()
    assert found is None or found > 1000
    monkeypatch.setattr("specbench.observe.client.ephemeral_ports", lambda: 1000)
    require_ports(800)
    with pytest.raises(EphemeralPortsError, match=r"801 connections .* 1000 local ports"):
        require_ports(801)
