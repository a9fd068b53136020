from __future__ import annotations

import json
import math
import re
import types
import typing
from pathlib import Path

import msgspec
import pytest

from specbench.report import model, policy_model
from specbench.report.jsonfile import NotFiniteError, ResultFileError, from_json, to_json
from tests.report import samples

DOC = Path(__file__).parents[2] / "docs" / "result-schema.md"


@pytest.mark.parametrize("name", ["go", "no_go", "inconclusive", "single_round", "invalid"])
def test_round_trip(name: str) -> None:
    result = samples.ALL[name]()
    data = to_json(result)
    assert from_json(data) == result
    assert to_json(from_json(data)) == data
    assert to_json(samples.ALL[name]()) == data


def test_fields_keep_their_order_and_the_file_ends_in_a_line_feed() -> None:
    data = to_json(samples.go())
    assert list(json.loads(data))[:3] == ["schema", "specbench", "name"]
    assert data.startswith(b'{\n  "schema"')
    assert data.endswith(b"}\n")


def test_order_of_settings_does_not_matter() -> None:
    result = samples.go()

    def with_settings(settings: dict[str, object]) -> bytes:
        arm = msgspec.structs.replace(result.arms[1], settings=settings)
        return to_json(msgspec.structs.replace(result, arms=(arm,)))

    assert with_settings({"a": 1, "b": [2, 3]}) == with_settings({"b": [2, 3], "a": 1})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_must_be_finite(bad: float) -> None:
    result = samples.go()
    item = msgspec.structs.replace(result.results[2], speedup=model.Ratio(value=1.0, low=bad))
    broken = msgspec.structs.replace(result, results=(*result.results[:2], item))
    with pytest.raises(NotFiniteError, match=r"result\.results\[2\]\.speedup\.low is (nan|inf|-inf)"):
        to_json(broken)


def test_infinity_hidden_in_settings_is_found() -> None:
    result = samples.go()
    arm = msgspec.structs.replace(result.arms[1], settings={"rates": [0.5, math.inf]})
    with pytest.raises(NotFiniteError, match=r"arms\[0\]\.settings\.rates\[1\]"):
        to_json(msgspec.structs.replace(result, arms=(arm,)))


def test_hostile_text_is_written_without_control_characters() -> None:
    data = to_json(samples.hostile())
    result = from_json(data)
    for text in (result.headline, result.arms[1].arm, result.config_yaml, *result.failures[0].log_lines):
        assert not any(ord(c) < 32 and c not in "\t\n" for c in text)
    assert result.arms[1].arm.startswith("<script>")


def test_unknown_fields_are_ignored() -> None:
    data = json.loads(to_json(samples.go()))
    data["added_later"] = 1
    data["arms"][0]["added_later"] = {"x": []}
    assert from_json(json.dumps(data)) == samples.go()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "result.json is not valid JSON"),
        (b"\xff\xfe", "result.json is not valid JSON"),
        (b'{"schema": NaN}', "result.json is not valid JSON"),
        (b"[]", "result.json is not a specbench result"),
        (b"{}", "missing required field `schema`"),
        (
            b'{"schema": "specbench.result/2"}',
            "reads 'specbench.result/1': rebuild it with `specbench report RUN`",
        ),
        (b'{"schema": "other"}', "pass the result.json of a specbench run"),
        (b'{"schema": "specbench.result/1"}', "missing required field `specbench`"),
    ],
)
def test_bad_files_are_explained(data: bytes, message: str) -> None:
    with pytest.raises(ResultFileError, match=re.escape(message)):
        from_json(data)


def test_a_field_of_the_wrong_type_is_named() -> None:
    data = json.loads(to_json(samples.go()))
    data["results"][3]["speedup"]["value"] = "fast"
    with pytest.raises(ResultFileError, match=r"old\.json.*\$\.results\[3\]\.speedup\.value"):
        from_json(json.dumps(data), "old.json")


def _words(kind: object) -> str:
    """A type as the schema page writes it."""
    names = {str: "string", int: "integer", float: "number", bool: "boolean", object: "any"}
    if isinstance(kind, type) and kind in names:
        return names[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind.__name__
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        quoted = [f"`{a}`" for a in args]
        return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(a) if a is not type(None) else "null" for a in args)
    if origin is dict:
        return f"map of {_words(args[0])} to {_words(args[1])}"
    if origin is tuple and args[-1] is ...:
        return f"list of {_words(args[0])}"
    if origin is tuple:
        return f"[{', '.join(_words(a) for a in args)}]"
    raise AssertionError(kind)


def test_the_schema_page_says_what_the_code_says() -> None:
    documented: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in DOC.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif row := re.fullmatch(r"\| `(\w+)` \| (.+?) \| (.+) \|", line):
            documented.setdefault(section, []).append((row[1], row[2]))
    structs = {
        s.__name__: s
        for s in (*vars(model).values(), *vars(policy_model).values())
        if isinstance(s, type) and issubclass(s, msgspec.Struct) and s is not msgspec.Struct
    }
    coded = {
        name: [
            (field, _words(kind))
            for field, kind in typing.get_type_hints(struct).items()
            if field in struct.__struct_fields__
        ]
        for name, struct in structs.items()
    }
    assert documented == coded
