"""Config files: what is refused, and in which words."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench.config.identity import digest, meaning
from specbench.config.source import ConfigError, LoadedConfig, load_config

GOOD = """\
name: demo
target: org/model
engine:
  kind: simulated
arms:
  - method: ngram
    k: [3, 5]
loads:
  closed: [1, 8]
"""


def load(tmp_path: Path, text: str | bytes, **environ: str) -> LoadedConfig:
    path = tmp_path / "sweep.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(path, environ=environ)


def problems(tmp_path: Path, text: str | bytes, **environ: str) -> list[str]:
    """The problems, with the file's folder left out."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **environ)
    return [line.removeprefix(f"{tmp_path}/") for line in caught.value.problems]


def test_good_config(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD)
    assert loaded.config.target.model == "org/model"
    assert loaded.config.arms[0].k == [3, 5]
    assert loaded.base_dir == tmp_path.resolve()
    assert loaded.text == GOOD
    assert loaded.secrets == frozenset()


BAD: dict[str, tuple[str | bytes, str]] = {
    "unknown_key": (
        GOOD + "measure: {round: 3}\n",
        "sweep.yaml:10: measure.round: unknown key; did you mean rounds?; allowed: strategy, rounds, looks, "
        "max_rounds, variance_prior, warmup_per_slot, order_seed, client_lag_limit, client_cpus, open_check, "
        "time_budget, "
        "expect",
    ),
    "key_of_another_section": (
        GOOD + "min_speedup: 1.1\n",
        "sweep.yaml:10: min_speedup: unknown key; min_speedup belongs in verdict; allowed: name, target, "
        "engine, other_engines, arms, loads, workload, measure, verdict, parity, gate, out",
    ),
    "key_of_another_tool": (
        GOOD.replace("k: [3, 5]", "num_speculative_tokens: 3"),
        "sweep.yaml:7: arms[0].num_speculative_tokens: unknown key; did you mean k?; allowed: method, name, "
        "engine, draft, k, settings, variants, args, env, url, model",
    ),
    "missing_section": (
        GOOD.replace("loads:\n  closed: [1, 8]\n", ""),
        "sweep.yaml:1: loads: is missing: how requests arrive",
    ),
    "missing_key": (
        GOOD.replace("method: ngram\n    ", ""),
        "sweep.yaml:6: arms[0].method: is missing: draft_model, ngram, eagle3, mtp, ...",
    ),
    "duplicate_key": (
        GOOD + "name: other\n",
        "sweep.yaml:10: name: this key was already given in line 1: keep one",
    ),
    "text_for_a_number": (
        GOOD.replace("[3, 5]", '"3"'),
        "sweep.yaml:7: arms[0].k: found the text '3'; expected a whole number or a list: remove the quotes",
    ),
    "text_in_a_list_of_numbers": (
        GOOD.replace("[3, 5]", '[3, "5"]'),
        "sweep.yaml:7: arms[0].k[1]: found the text '5'; expected a whole number: remove the quotes",
    ),
    "fraction": (
        GOOD.replace("[3, 5]", "2.5"),
        "sweep.yaml:7: arms[0].k: found 2.5; expected a whole number or a list",
    ),
    "zero": (
        GOOD.replace("[3, 5]", "0"),
        "sweep.yaml:7: arms[0].k: found 0; expected a number of at least 1 or a list",
    ),
    "empty_list": (
        GOOD.replace("[3, 5]", "[]"),
        "sweep.yaml:7: arms[0].k: found an empty list; expected a whole number or at least 1 entry",
    ),
    "octal": (
        GOOD.replace("[3, 5]", "010"),
        "sweep.yaml:7: arms[0].k: YAML reads `010` as an octal number: write 10, or put it in quotes if it "
        "is text",
    ),
    "no_octal_digit": (
        GOOD.replace("[3, 5]", "08"),
        "sweep.yaml:7: arms[0].k: found the text '08'; expected a whole number or a list: write 8",
    ),
    "norway": (
        GOOD + "workload:\n  categories: [no, code]\n",
        "sweep.yaml:11: workload.categories[0]: found `no`, which YAML reads as false; expected text: put it "
        "in quotes",
    ),
    "on_as_a_key": (
        GOOD + "workload:\n  categories: {on: 1}\n",
        "sweep.yaml:11: workload.categories: YAML reads the key `on` as true: put it in quotes",
    ),
    "number_for_text": (
        GOOD.replace("target: org/model", "target: {model: org/m, revision: 1234567}"),
        "sweep.yaml:2: target.revision: found 1234567; expected text: put it in quotes",
    ),
    "base_60": (
        GOOD.replace("  kind: simulated", "  kind: simulated\n  startup_timeout: 15:00"),
        "sweep.yaml:5: engine.startup_timeout: YAML reads `15:00` as a number to base 60: write seconds or "
        "90s, 20m, 1h30m, or put it in quotes if it is text",
    ),
    "duration": (
        GOOD + "measure: {time_budget: 20 minutes}\n",
        "sweep.yaml:10: measure.time_budget: a duration is seconds or text like 90s, 20m, 1h30m (found the "
        "text '20 minutes')",
    ),
    "nan": (
        GOOD + "verdict: {min_speedup: .nan}\n",
        "sweep.yaml:10: verdict.min_speedup: found `.nan`; expected a finite number",
    ),
    "choice": (
        GOOD + "workload:\n  output_mode: forcd\n",
        "sweep.yaml:11: workload.output_mode: found the text 'forcd'; expected 'natural' or 'forced'; did "
        "you mean forced?",
    ),
    "nothing": (
        GOOD + "workload:\n",
        "sweep.yaml:10: workload: found nothing; expected a section with the keys source, format, encoding, on_bad_row, lengths, categories, "  # noqa: E501
        "requests_per_slot, min_requests, seconds, max_output_tokens, output_mode, sampling, "
        "request_timeout: give it a value or remove the key",
    ),
    "name": (
        GOOD.replace("name: demo", "name: a/b"),
        "sweep.yaml:1: name: found the text 'a/b'; expected a name of letters, digits, '.', '_' and '-', at "
        "most 64, the first one a letter or digit",
    ),
    "environment_name": (
        GOOD.replace("  kind: simulated", "  kind: simulated\n  env: {A-B: x}"),
        "sweep.yaml:5: engine.env.A-B: found the key 'A-B'; expected a variable name of letters, digits and "
        "'_'",
    ),
    "boolean_environment": (
        GOOD.replace("  kind: simulated", "  kind: simulated\n  env: {A: yes}"),
        "sweep.yaml:5: engine.env.A: found `yes`, which YAML reads as true; expected text: put it in quotes",
    ),
    "same_arm_twice": (
        GOOD.replace("[3, 5]", "[3, 3]"),
        "sweep.yaml:5: arms: two arms are both called 'ngram-k3': remove the repeated entry or give one "
        "another `name`",
    ),
    "baseline_entry": (
        GOOD.replace("method: ngram", "method: none"),
        "sweep.yaml:6: arms[0].method: the baseline runs in every sweep and needs no entry: remove it (found "
        "the text 'none')",
    ),
    "same_load_twice": (
        GOOD.replace("[1, 8]", "[8, 8]"),
        "sweep.yaml:9: loads.closed: the same concurrency is listed twice",
    ),
    "traffic_without_load": (
        GOOD + "verdict:\n  traffic: {4: 1}\n",
        "sweep.yaml:11: verdict.traffic names concurrency [4], which loads.closed does not run",
    ),
    "text_as_traffic_key": (
        GOOD + 'verdict:\n  traffic: {"8": 1}\n',
        "sweep.yaml:11: verdict.traffic names the load '8'; the loads are c1, c8 (a concurrency is a whole number without quotes)",  # noqa: E501
    ),
    "missing_path": (
        GOOD.replace("org/model", "./no-model"),
        "sweep.yaml:2: target: ./no-model does not exist (relative paths start at the config's folder): "
        "correct the path",
    ),
    "missing_absolute_path": (
        GOOD + "workload:\n  source: /no/such.jsonl\n",
        "sweep.yaml:11: workload.source: /no/such.jsonl does not exist: correct the path",
    ),
    "missing_draft": (
        GOOD.replace("method: ngram", "method: draft_model\n    draft: [org/a, ../b]"),
        "sweep.yaml:7: arms[0].draft[1]: ../b does not exist (relative paths start at the config's folder): "
        "correct the path",
    ),
    "unset_variable": (
        GOOD.replace("org/model", "${NO_SUCH}"),
        "sweep.yaml:2: target: the environment variable NO_SUCH is not set: set it, or write "
        "${NO_SUCH:-default}",
    ),
    "malformed_variable": (
        GOOD.replace("org/model", "${1X}"),
        "sweep.yaml:2: target: `${1X}` is no variable: write ${NAME} or ${NAME:-default}; $$ is a dollar",
    ),
    "tab": (
        GOOD.replace("  closed", "\tclosed"),
        "sweep.yaml:9: not YAML: a tab; YAML indents with spaces only: replace tabs by spaces",
    ),
    "variable_in_a_flow_list": (
        GOOD.replace("[1, 8]", "[1, ${C}]"),
        "sweep.yaml:9: not YAML: a list or mapping that does not end: close it; quote ${NAME} inside [ ] or "
        "{ }",
    ),
    "colon_in_text": (
        GOOD.replace("org/model", "a: b"),
        "sweep.yaml:2: not YAML: a ':' where no key can be: put text that contains \": \" in quotes",
    ),
    "two_documents": (
        GOOD + "---\n" + GOOD,
        "sweep.yaml:10: a second document starts at '---': a config is one document",
    ),
    "python_tag": (
        GOOD.replace("org/model", "!!python/object:os.system x"),
        "sweep.yaml:2: target: the tag !!python/object:os.system is not supported: remove it",
    ),
    "empty": ("\n# nothing\n", "sweep.yaml: the file is empty: `specbench init` writes a config"),
    "list_at_the_top": (
        "- a\n",
        "sweep.yaml:1: the file holds no `key: value` pairs: `specbench init` writes a config",
    ),
    "not_utf8": (
        b"name: demo\ntarget: \xff\n",
        "sweep.yaml:2: the byte 0xff is not UTF-8: save the file as UTF-8",
    ),
    "control_character": ("name: a\x07b\n", "sweep.yaml:1: found the control character U+0007: remove it"),
    "alias_to_itself": (
        GOOD + "workload: &w\n  categories: *w\n",
        "sweep.yaml:11: workload.categories.categories.categories.categories.categories: nested deeper than "
        "50 levels, or an alias that contains itself",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_error_message(case: str, tmp_path: Path) -> None:
    text, expected = BAD[case]
    assert problems(tmp_path, text) == [expected]


def test_alias_bomb(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    (only,) = problems(tmp_path, "\n".join(lines))
    assert "more than 20000 values" in only


def test_merge_bomb(tmp_path: Path) -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{j}: 1" for j in range(10)) + "}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 12)]
    (only,) = problems(tmp_path, "\n".join(lines))
    assert "more than 20000 values" in only


def test_deep_nesting(tmp_path: Path) -> None:
    (only,) = problems(tmp_path, "a: " + "[" * 5000)
    assert "nested deeper than 50 levels" in only


def test_huge_file(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD + "#" * (1 << 20)) == [
        "sweep.yaml: larger than 1 MiB: is this a config file?"
    ]


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="this is a folder"):
        load_config(tmp_path)


def test_problems_come_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("[3, 5]", "x").replace("[1, 8]", "[0]") + "measure: {rounds: 0}\nfoo: 1\n"
    lines = [int(line.split(":")[1]) for line in problems(tmp_path, text)]
    assert lines == [7, 9, 10, 11]


def test_at_most_twenty_problems(tmp_path: Path) -> None:
    found = problems(tmp_path, GOOD + "".join(f"key{i}: 1\n" for i in range(30)))
    assert len(found) == 21
    assert found[-1] == "... and 10 more"


def test_paths_start_at_the_config(tmp_path: Path) -> None:
    (tmp_path / "models" / "t").mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    path = tmp_path / "conf" / "sweep.yaml"
    path.write_text(GOOD.replace("org/model", "../models/t"))
    assert load_config(path).config.target.model == str(tmp_path / "models" / "t")


def test_a_scorer_runs_in_the_configs_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/score", "score.py"):
        (tmp_path / name).write_text("")

    def command(words: str) -> list[str]:
        task = load(
            tmp_path, f"{GOOD}\nparity: {{task: {{command: {words}, timeout: 2m}}}}\n"
        ).config.parity.task
        assert task is not None
        assert (task.margin, task.timeout) == (0.02, 120.0)
        return task.command

    assert command("bin/score --in a/b") == [str(tmp_path / "bin" / "score"), "--in", "a/b"]
    assert command("[python3, ./score.py, x/y]") == ["python3", str(tmp_path / "score.py"), "x/y"]
    assert command("score -v") == ["score", "-v"]
    (only,) = problems(tmp_path, f"{GOOD}\nparity: {{task: {{command: [lib/score]}}}}\n")
    assert "parity.task.command[0]: ./lib/score does not exist (relative paths start at" in only
    for task, why in (
        ("command: x, margin: 1", "margin"),
        ("command: []", "command"),
        ("margin: 0.1", "command"),
    ):
        assert f"parity.task.{why}" in problems(tmp_path, f"{GOOD}\nparity: {{task: {{{task}}}}}\n")[0]


def test_command_paths(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").touch()
    text = GOOD.replace("  kind: simulated", "  kind: simulated\n  command: ./serve.sh -v '/in:/out dir' a/b")
    assert load(tmp_path, text).config.engine.command == [
        str(tmp_path / "serve.sh"),
        "-v",
        "/in:/out dir",
        "a/b",
    ]
    (tmp_path / "serve.sh").unlink()
    (only,) = problems(tmp_path, text)
    assert "engine.command[0]: ./serve.sh does not exist" in only


def test_unchecked_paths_are_told_but_a_missing_source_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(GOOD.replace("org/model", "/no/model"))
    loaded = load_config(path, check_paths=False)
    assert [line.removeprefix(str(path)) for line in loaded.missing] == [
        ":2: target: /no/model does not exist: correct the path"
    ]
    path.write_text(GOOD + "workload: {source: ./none.jsonl}\n")
    with pytest.raises(ConfigError, match=r"none\.jsonl does not exist"):
        load_config(path, check_paths=False)


def test_merge_keys(tmp_path: Path) -> None:
    text = GOOD.replace("arms:\n", "arms:\n  - &a {method: ngram, k: 2}\n  - {<<: *a, k: 7}\n")
    assert [arm.k for arm in load(tmp_path, text).config.arms] == [2, 7, [3, 5]]


def test_dates_are_text(tmp_path: Path) -> None:
    text = GOOD.replace("target: org/model", "target: {model: org/m, revision: 2026-01-31}")
    assert load(tmp_path, text).config.target.revision == "2026-01-31"


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    loaded = load(tmp_path, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert loaded.config.name == "demo"


def test_where(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD)
    at = {key: loaded.where(key).removeprefix(str(loaded.path)) for key in ("arms[0].k[1]", "arms[0].draft")}
    assert at == {"arms[0].k[1]": ":7", "arms[0].draft": ":6"}
    assert loaded.where("verdict.limits") == str(loaded.path)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["./x", "${A}", "~"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
PLACES: list[tuple[str | int, ...]] = [
    *((), ("target",), ("engine",), ("engine", "args"), ("engine", "env"), ("engine", "command"), ("arms",)),
    *(("arms", 0), ("arms", 0, "k"), ("arms", 0, "draft"), ("arms", 0, "settings"), ("loads",)),
    *(("loads", "closed"), ("workload",), ("workload", "categories"), ("measure",), ("verdict", "traffic")),
    *(("name",), ("out",)),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_no_value_anywhere_crashes(place: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    data = {**yaml.safe_load(GOOD), "workload": {}, "measure": {}, "verdict": {}}
    here: Any = data
    for part in place[:-1]:
        here = here[part]
    if place:
        here[place[-1]] = value
    else:
        data = value
    text = yaml.safe_dump(data, allow_unicode=True)
    with contextlib.suppress(ConfigError):
        assert digest(meaning(load(tmp_path, text, A="1").config, "1", {}))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(position=st.integers(0, len(GOOD)), junk=st.text(max_size=4) | st.binary(max_size=3))
def test_no_text_crashes(position: int, junk: str | bytes, tmp_path: Path) -> None:
    raw = junk if isinstance(junk, bytes) else junk.encode("utf-8", "surrogatepass")
    with contextlib.suppress(ConfigError):
        load(tmp_path, GOOD[:position].encode() + raw + GOOD[position:].encode())


@pytest.mark.parametrize("text", [r'"org/\0model"', r'"\e[31mred"', r'"abc\u202edef"', r'"\uD800"'])
def test_invisible_characters_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(
        f"name: x\ntarget: {text}\nengine: {{kind: simulated}}\narms: [{{method: ngram, k: 1}}]\n"
        "loads: {closed: [1]}\n"
    )
    with pytest.raises(ConfigError, match=r"sweep\.yaml:2: target: holds the invisible character U\+"):
        load_config(path)
