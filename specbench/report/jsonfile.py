"""``result.json``: the result as data, for programs. Fields are explained in ``docs/result-schema.md``."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from specbench.report.formatting import clean
from specbench.report.model import SCHEMA, Result

_FAMILY: Final = SCHEMA.rpartition("/")[0]


class NotFiniteError(ValueError):
    """A result holds NaN or an infinity: what was not measured must be null, with its reason."""


class ResultFileError(ValueError):
    """The bytes are not a result that this version can read; the message says what is wrong."""


class _Head(msgspec.Struct):
    schema: str


def to_json(result: Result) -> bytes:
    """UTF-8 JSON, indented by two, ending in a line feed; the same result gives the same bytes.

    Raises:
        NotFiniteError: a number is NaN or infinite; the message names its path.
    """
    # Through the types once: a whole number in a float field is written as a float, whoever made it.
    exact = msgspec.convert(msgspec.to_builtins(result), Result)
    data = checked(msgspec.to_builtins(exact, order="deterministic"), "result")
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def from_json(data: bytes | str, name: str = "result.json") -> Result:
    """Read what `to_json` wrote. Fields that a newer specbench added are ignored.

    Args:
        data: the contents of the file.
        name: what to call the file in error messages.

    Raises:
        ResultFileError: not JSON, not a specbench result, of another schema version, or a bad field.
    """
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
    except msgspec.ValidationError as error:
        raise ResultFileError(f"{name} is not a specbench result: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultFileError(
            f"{name} is not valid JSON: {error}. Rebuild it with `specbench report RUN`."
        ) from error
    if schema != SCHEMA:
        family = schema.rpartition("/")[0]
        mend = (
            "rebuild it with `specbench report RUN`, or use the specbench that wrote it"
            if family == _FAMILY
            else "pass the result.json of a specbench run"
        )
        raise ResultFileError(f"{name} has schema {schema!r}; this specbench reads {SCHEMA!r}: {mend}")
    try:
        return msgspec.json.decode(data, type=Result)
    except msgspec.ValidationError as error:
        raise ResultFileError(
            f"{name} is not a valid {SCHEMA}: {error}. Rebuild it with `specbench report RUN`."
        ) from error


def checked(value: object, path: str) -> object:
    """The same data with unprintable characters dropped from its text, every number known to be finite.

    Raises:
        NotFiniteError: a number is NaN or infinite; the message names its path.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotFiniteError(f"{path} is {value}; a value that was not measured must be null")
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): checked(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [checked(item, f"{path}[{i}]") for i, item in enumerate(value)]
    return value
