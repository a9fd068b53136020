"""What changes the meaning of a sweep or a cell, and what does not."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.config.grid import Arm, Load, expand_arms, expand_loads
from specbench.config.identity import CellIdentity, canonical, cell_identity, differences, digest, meaning
from specbench.config.model import Config

BASE: dict[str, Any] = {
    "name": "demo",
    "target": {"model": "org/model", "revision": "main", "tokenizer": "org/tok"},
    "engine": {
        "kind": "vllm",
        "command": ["vllm", "serve"],
        "args": {"a": 1, "b": [1, 2]},
        "env": {"X": "1"},
    },
    "other_engines": {"b": {"kind": "sglang"}},
    "arms": [
        {"method": "ngram", "k": 3, "settings": {"prompt_lookup_max": 4}},
        {"method": "draft_model", "draft": "org/d", "k": 3, "args": {"f": True}, "env": {"Y": "2"}},
    ],
    "loads": {
        "closed": [1, 8],
        "open": [{"rate": 2}, {"rate": 3, "arrivals": "gamma", "cv": 2}],
        "trace": {},
    },
    "workload": {"lengths": {"source": "azure-llm-2023-conv"}},
    "measure": {"open_check": {}},
}
MIXES = {"c1": "aa", "c8": "bb"}


def changed(path: str, value: Any) -> Config:
    data = copy.deepcopy(BASE)
    if path:
        *parents, last = path.split(".")
        here: Any = data
        for part in parents:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        here[last] = value
    return Config.model_validate(data)


def meaning_digest(config: Config, version: str = "0.32.0", mixes: dict[str, str] = MIXES) -> str:
    return digest(meaning(config, version, mixes))


MEANINGFUL = [
    ("target.model", "org/other"),
    ("target.revision", "v2"),
    ("target.tokenizer", None),
    ("engine.kind", "simulated"),
    ("engine.command", ["python", "-m", "vllm"]),
    ("engine.args", {"a": 2, "b": [1, 2]}),
    ("engine.args", {"a": True, "b": [1, 2]}),
    ("engine.args", {"a": 1, "b": [2, 1]}),
    ("engine.env", {"X": "2"}),
    ("engine.env", {"Z": "1"}),
    ("engine.url", "http://a:8000"),
    ("engine.model", "served"),
    ("engine.headers", {"X-Route": "b"}),
    ("other_engines", {"b": {"kind": "sglang", "args": {"x": 1}}}),
    ("arms.0.method", "suffix"),
    ("arms.0.name", "other"),
    ("arms.0.engine", "b"),
    ("arms.0.k", 4),
    ("arms.0.k", [3, 4]),
    ("arms.0.settings", {"prompt_lookup_max": 5}),
    ("arms.0.variants", [{"prompt_lookup_min": 2}]),
    ("arms.1.draft", "org/e"),
    ("arms.1.args", {"f": False}),
    ("arms.1.env", {"Y": "3"}),
    ("arms.0.url", "http://b:8000"),
    ("arms.0.model", "served"),
    ("loads.closed", [1, 16]),
    ("loads.open.0.rate", 4),
    ("loads.open.0.arrivals", "gamma"),
    ("loads.open.1.cv", 3),
    ("loads.trace.time_scale", 2),
    ("loads.trace.jitter_s", 3),
    ("loads.trace.seconds", 60),
    ("loads.trace.history", "real"),
    ("workload.format", "prompt-jsonl"),
    ("workload.encoding", "cp1252"),
    ("workload.on_bad_row", "skip"),
    ("workload.lengths.source", "ragpulse"),
    ("workload.lengths.text", "filler"),
    ("workload.source", "all"),
    ("workload.categories", ["chat"]),
    ("workload.requests_per_slot", 9),
    ("workload.min_requests", 17),
    ("workload.seconds", 60),
    ("workload.max_output_tokens", 100),
    ("workload.output_mode", "forced"),
    ("workload.sampling.temperature", 0.7),
    ("workload.sampling.top_p", 0.9),
    ("workload.sampling.top_k", 20),
    ("workload.request_timeout", 60),
    ("measure.strategy", "adaptive"),
    ("measure.rounds", 5),
    ("measure.looks", [3, 5, 8]),
    ("measure.max_rounds", 20),
    ("measure.variance_prior", True),
    ("measure.warmup_per_slot", 3),
    ("measure.order_seed", 2),
    ("measure.client_lag_limit", 0.5),
    ("engine.matched_baseline", True),
    ("measure.open_check.shares", [0.5]),
    ("measure.open_check.rounds", 4),
    ("measure.open_check.requests", 300),
]


@pytest.mark.parametrize(("path", "value"), MEANINGFUL)
def test_meaning_changes_and_is_told(path: str, value: Any) -> None:
    old, new = (meaning(config, "0.32.0", MIXES) for config in (changed("", None), changed(path, value)))
    assert digest(old) != digest(new)
    told = differences(old, new)
    key = re.sub(r"\.(\d+)", r"[\1]", path)
    assert told
    assert all(line.startswith(key) for line in told), told


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "other"),
        ("engine.startup_timeout", 10),
        ("engine.stop_timeout", 10),
        ("engine.headers", {"Authorization": "Bearer x", "X-API-Key": "y"}),
        ("engine.ca", "./ca.pem"),
        ("engine.allow_same", True),
        ("arms.0.k", [3]),
        ("measure.time_budget", 100),
        ("measure.client_cpus", 0),
        ("measure.expect", {"startup": 5}),
        ("verdict.min_speedup", 1.2),
        ("verdict.traffic", {1: 1.0}),
        ("parity", {"tier": "gate", "tokens": 64}),
        ("gate", True),
        ("out", "./elsewhere"),
        ("target", {"revision": "main", "tokenizer": "org/tok", "model": "org/model"}),
        ("engine.args", {"b": [1, 2], "a": 1}),
    ],
)
def test_meaning_stays(path: str, value: Any) -> None:
    assert meaning_digest(changed(path, value)) == meaning_digest(changed("", None))


def test_meaning_has_the_engine_version_and_the_requests() -> None:
    config = changed("", None)
    all_digests = {
        meaning_digest(config),
        meaning_digest(config, version="0.33.0"),
        meaning_digest(config, mixes={"c1": "aa", "c8": "cc"}),
    }
    assert len(all_digests) == 3


def test_every_field_of_the_config_was_decided_on() -> None:
    """A new field must be added to one of the two lists above."""
    decided = {path for path, _ in MEANINGFUL} | {
        *("name", "engine.startup_timeout", "engine.stop_timeout", "engine.ca", "engine.allow_same"),
        *("measure.client_cpus", "measure.time_budget", "measure.expect"),
        *("verdict", "parity", "gate", "out"),
    }

    def leaves(section: Any, prefix: str) -> set[str]:
        found = set()
        for name, info in section.model_fields.items():
            inner = next(
                (
                    t
                    for t in (info.annotation, *getattr(info.annotation, "__args__", ()))
                    if hasattr(t, "model_fields")
                ),
                None,
            )
            path = f"{prefix}{name}"
            index = ".*" if str(info.annotation).startswith("list") else ""
            found |= leaves(inner, f"{path}{index}.") if inner and path not in decided else {path}
        return found

    assert leaves(Config, "") == {re.sub(r"\.\d+", ".*", path) for path in decided}


def test_words_of_differences() -> None:
    old = {"arms": [{"k": 3}, {"k": 3}], "x": {"a": 1, "gone": 2}, "list": [1, 2]}
    new = {"arms": [{"k": 3}, {"k": 5}, {"k": 7}], "x": {"a": "1", "new": None}, "list": [1]}
    assert differences(old, new) == [
        "arms[1].k: 3 -> 5",
        'arms[2]: added {"k": 7}',
        'x.a: 1 -> "1"',
        "x.gone: 2 -> removed",
        "x.new: added nothing",
        "list: [1, 2] -> [1]",
    ]
    assert differences(old, copy.deepcopy(old)) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON, JSON)
def test_differences_are_empty_exactly_when_canonical_texts_are_equal(old: Any, new: Any) -> None:
    assert differences(old, old) == []
    assert (differences(old, new) == []) == (canonical(old) == canonical(new))


@given(st.dictionaries(st.text(), st.integers(), max_size=6), st.randoms())
def test_digest_ignores_key_order(content: dict[str, int], rng: Any) -> None:
    keys = list(content)
    rng.shuffle(keys)
    assert digest(content) == digest({key: content[key] for key in keys})


def test_digest_refuses_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest({"x": float("nan")})


def test_secrets_are_hashed() -> None:
    config = changed("engine.args", {"hf-token": "hf_secretsecret"})
    content = meaning(config, "1", MIXES, {"hf_secretsecret": "HF_TOKEN"})
    assert "hf_secretsecret" not in canonical(content)
    assert "${HF_TOKEN}" in canonical(content)
    assert content["engine"]["env"]["X"].startswith("sha256:")
    other = meaning(changed("engine.args", {"hf-token": "hf_other"}), "1", MIXES, {"hf_other": "HF_TOKEN"})
    assert digest(content) != digest(other)


def cell(
    config: Config | None = None,
    arm: Arm | None = None,
    load: Load | None = None,
    round_number: int = 1,
    version: str = "0.32.0",
    mix: str = "aa",
) -> CellIdentity:
    config = config or changed("", None)
    return cell_identity(
        config,
        arm or next(a for a in expand_arms(config) if a.method),
        load or Load("c8", 8),
        round_number,
        version,
        mix,
    )


def test_cell_identity_changes_with_everything_that_matters() -> None:
    arms = [a for a in expand_arms(changed("arms.0.k", [3, 4])) if a.id != "baseline@b"]
    assert cell(arm=arms[2]) == cell(changed("arms.0.k", 4))
    cells = [
        cell(),
        cell(round_number=2),
        cell(load=Load("c16", 16)),
        cell(version="0.33.0"),
        cell(mix="bb"),
        cell(arm=arms[0]),
        cell(arm=arms[3]),
        *(
            cell(changed(path, value))
            for path, value in MEANINGFUL
            if (
                path.startswith(("target", "engine", "arms.0")) and path != "engine.matched_baseline"
            )  # it adds an arm and leaves the others alone
            or path in {"measure.warmup_per_slot", "workload.seconds", "workload.request_timeout"}
            if (path, value) != ("arms.0.k", [3, 4])
        ),
    ]
    assert len({c.hash for c in cells}) == len(cells)
    assert len({c.id for c in cells}) == len(cells)


def test_cell_identity_has_the_whole_load() -> None:
    loads = expand_loads(changed("", None))
    other = expand_loads(changed("loads.trace.time_scale", 2))[-1]
    cells = [cell(load=load) for load in (*loads, other)]
    assert [load.id for load in loads] == ["c1", "c8", "r2.0", "r3.0-gamma2.0", "trace"]
    assert len({c.hash for c in cells}) == len(cells)


def test_cell_identity_survives_a_larger_grid() -> None:
    """Adding arms, loads or rounds must not throw measured cells away."""
    grown = [
        changed("arms.0.k", [3, 4]),
        changed("arms", [{"method": "suffix"}, *BASE["arms"]]),
        changed("loads.closed", [1, 8, 16]),
        changed("measure.rounds", 9),
    ]
    for config in grown:
        same = next(arm for arm in expand_arms(config) if arm.id == "ngram-k3")
        assert cell(config, arm=same) == cell()


def test_cell_id() -> None:
    assert re.fullmatch(r"r01-ngram-k3-c8-[0-9a-f]{8}", cell().id)


@given(st.text(min_size=1, max_size=300), st.integers(1, 100))
def test_cell_id_is_a_safe_folder_name(name: str, round_number: int) -> None:
    found = cell(arm=Arm(id=name), round_number=round_number).id
    assert len(found) <= 100
    assert re.fullmatch(
        r"r\d{2,3}-[A-Za-z0-9][A-Za-z0-9._-]*-c8-[0-9a-f]{8}|r\d{2,3}-[_A-Za-z0-9._-]+", found
    )
