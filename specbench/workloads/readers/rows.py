"""Rows of a source file, one at a time, whatever its kind: numbered values, or what is wrong with them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from specbench.workloads.readers.container import WRAPPERS, Source
from specbench.workloads.readers.errors import ReadError

MAX_FIELD_CHARS: Final = 256 << 20
"""A CSV field beyond this is an unclosed quote, not a prompt."""

_READ_CHARS: Final = 1 << 18


class Row(msgspec.Struct, frozen=True):
    """One row. ``bad`` says what is wrong with a malformed one; ``repairs`` names what was mended."""

    number: int
    value: Any = None
    bad: str | None = None
    repairs: tuple[str, ...] = ()


def rows(source: Source) -> Iterator[Row]:
    """All rows of a file in file order.

    Raises:
        ReadError: damage to the container (compression, table encoding, unclosed quote, cut array).
    """
    read = {
        "jsonl": _jsonl_rows,
        "json": _json_rows,
        "csv": _csv_rows,
        "parquet": _parquet_rows,
        "text": _text_rows,
    }
    with source.damage():
        yield from read[source.kind](source)


def _lines(source: Source) -> Iterator[tuple[int, str | UnicodeDecodeError]]:
    """(1-based number, text with its line end, or why it cannot be decoded) of every line."""
    if source.encoding == "utf-8" and not source.carriage_return_lines:
        with source.open() as stream:
            for number, raw in enumerate(stream, 1):
                try:
                    yield number, raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    yield number, error
        return
    newline = "\r" if source.carriage_return_lines else "\n"
    number = 0
    with source.text(newline) as stream:
        try:
            for number, line in enumerate(stream, 1):
                yield number, line
        except UnicodeDecodeError as error:
            raise ReadError(source.path, source.undecodable(error), number + 1) from None


def _jsonl_rows(source: Source) -> Iterator[Row]:
    decode = msgspec.json.Decoder().decode
    for number, line in _lines(source):
        if isinstance(line, UnicodeDecodeError):
            yield Row(number, bad=source.undecodable(line))
            continue
        bom = line[:1] == "\ufeff"
        text = line.lstrip("\ufeff").strip() if bom else line.strip()
        if not text:
            continue
        try:
            yield Row(number, decode(text), repairs=("bom_removed",) if bom and number > 1 else ())
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            yield _slow_json_row(number, text)


def _slow_json_row(number: int, text: str) -> Row:
    """A line that the fast decoder refused: mended if it only holds lone surrogates, else diagnosed."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return Row(number, bad=_diagnosis(text, error))
    except RecursionError:
        return Row(number, bad="invalid JSON: nested too deep")
    except ValueError as error:
        return Row(number, bad=f"invalid JSON: {error}")
    value, replaced = _without_lone_surrogates(value)
    return Row(number, value, repairs=("lone_surrogate_replaced",) * replaced)


def _diagnosis(text: str, error: json.JSONDecodeError) -> str:
    if error.pos == 0 or text[0] not in '{["':
        start = text if len(text) <= 40 else text[:37] + "..."
        return f"not JSON: {start!r}"
    rest = text[error.pos :].strip()
    cut = not rest or error.msg.startswith("Unterminated string")
    if cut or any(word.startswith(rest) for word in ("true", "false", "null")):
        return f"truncated JSON: it ends in {text[-20:]!r} (was the writer stopped?)"
    if error.msg == "Extra data" and rest == ",":
        return "a comma after the row: write one JSON object per line, without commas between them"
    if error.msg == "Extra data":
        return "more than one JSON value on the line: write one per line"
    if text[:2] in ("{'", "['"):
        return "not JSON but a Python literal: write it with json.dumps"
    return f"invalid JSON: {error.msg} at column {error.pos + 1}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _without_lone_surrogates(value: Any) -> tuple[Any, int]:
    """The value with U+FFFD for every lone surrogate, and how many there were."""
    if isinstance(value, str):
        mended = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
        return mended, sum(a != b for a, b in zip(value, mended, strict=True))
    if isinstance(value, list):
        pairs = [_without_lone_surrogates(item) for item in value]
        return [item for item, _ in pairs], sum(n for _, n in pairs)
    if isinstance(value, dict):
        keys = [_without_lone_surrogates(key) for key in value]
        values = [_without_lone_surrogates(item) for item in value.values()]
        mended_dict = {key: item for (key, _), (item, _) in zip(keys, values, strict=True)}
        return mended_dict, sum(n for _, n in keys) + sum(n for _, n in values)
    return value, 0


class _Text:
    """A growing window on decoded text, for reading one JSON value after another."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stream = source.text()
        self._window = ""
        self._at = 0
        self._ended = False
        self.record = 0

    def fail(self, reason: str) -> NoReturn:
        raise ReadError(self._source.path, reason, self.record + 1, by_record=True)

    def _more(self) -> bool:
        """Read on, dropping what was consumed; doubles the window so that long values stay linear."""
        if self._ended:
            return False
        self._window = self._window[self._at :]
        self._at = 0
        try:
            chunk = self._stream.read(max(_READ_CHARS, len(self._window)))
        except UnicodeDecodeError as error:
            self.fail(self._source.undecodable(error))
        self._ended = not chunk
        self._window += chunk
        return not self._ended

    def peek(self) -> str:
        """The next character that is no white space, or '' at the end."""
        while True:
            while self._at < len(self._window) and self._window[self._at] in " \t\r\n\ufeff":
                self._at += 1
            if self._at < len(self._window):
                return self._window[self._at]
            if not self._more():
                return ""

    def take(self, char: str) -> bool:
        """Consume the next character if it is this one."""
        if self.peek() == char:
            self._at += 1
            return True
        return False

    def value(self) -> tuple[Any, int]:
        """The next JSON value, and how many lone surrogates were replaced in it."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:
                if self._more():
                    continue
                rest = self._window[self._at :].strip()
                self.fail(_diagnosis(rest, json.JSONDecodeError(error.msg, rest, error.pos - self._at)))
            except RecursionError:
                self.fail("invalid JSON: nested too deep")
            except ValueError as error:
                self.fail(f"invalid JSON: {error}")
            if end == len(self._window) and self._more():
                continue
            raw = self._window[self._at : end]
            self._at = end
            if "\\ud" in raw or "\\uD" in raw:
                return _without_lone_surrogates(value)
            return value, 0


def _json_rows(source: Source) -> Iterator[Row]:
    """Rows of an array, of an object that wraps one, or of objects one after another."""
    text = _Text(source)
    if text.take("["):
        yield from _array_rows(text)
        if text.peek():
            text.fail("more data after the end of the JSON array")
        return
    rest: dict[str, Any] = {}
    text.take("{")
    while not text.take("}"):
        key = text.value()[0]
        if not isinstance(key, str) or not text.take(":"):
            text.fail("invalid JSON: expected a key and a value")
        if key in WRAPPERS and text.take("["):
            yield from _array_rows(text)
            _close_wrapper(text)
            return
        rest[key] = text.value()[0]
        if not text.take(",") and text.peek() != "}":
            text.fail("truncated JSON" if not text.peek() else "invalid JSON: expected ',' or '}'")
    text.record = 1
    yield Row(1, rest)
    while text.peek():
        value, replaced = text.value()
        text.record += 1
        yield Row(text.record, value, repairs=("lone_surrogate_replaced",) * replaced)


def _close_wrapper(text: _Text) -> None:
    """Read what follows the rows in the object that wraps them, so that a cut file does not pass."""
    while not text.take("}"):
        if not text.take(","):
            text.fail("truncated JSON: the object around the rows is not closed")
        text.value()
        if not text.take(":"):
            text.fail("invalid JSON: expected a key and a value")
        text.value()


def _array_rows(text: _Text) -> Iterator[Row]:
    if text.take("]"):
        return
    while True:
        value, replaced = text.value()
        text.record += 1
        yield Row(text.record, value, repairs=("lone_surrogate_replaced",) * replaced)
        if text.take("]"):
            return
        if not text.take(","):
            text.fail(
                "truncated JSON: the array is not closed" if not text.peek() else "invalid JSON: expected ','"
            )


def _csv_rows(source: Source) -> Iterator[Row]:
    """Rows as dicts keyed by the trimmed, lower-case header; line ends inside quotes are kept."""
    csv.field_size_limit(min(MAX_FIELD_CHARS, sys.maxsize))
    delimiter: str | None = None

    def texts() -> Iterator[str]:
        for number, line in _lines(source):
            if isinstance(line, UnicodeDecodeError):
                raise ReadError(source.path, source.undecodable(line), number)
            line = line.lstrip("\ufeff") if number == 1 else line
            if "\0" in line:
                raise ReadError(source.path, "a NUL byte in a table: the file is damaged", number)
            yield line

    lines = texts()
    skipped = 0
    header_line = ""
    for header_line in lines:
        skipped += 1
        if header_line.lower().startswith("sep="):
            delimiter = header_line.strip()[4:5] or None
        elif header_line.strip():
            break
    delimiter = delimiter or max(",;\t|", key=header_line.count)

    def all_lines() -> Iterator[str]:
        yield header_line
        yield from lines

    reader = csv.reader(all_lines(), delimiter=delimiter, strict=True)
    start = skipped
    try:
        header = [name.strip().lower() for name in next(reader)]
        twice = {name for name in header if name and header.count(name) > 1}
        if twice:
            raise ReadError(source.path, f"two columns are named {sorted(twice)[0]!r}: rename one", start)
        start = skipped + reader.line_num
        for fields in reader:
            number, start = start, skipped + reader.line_num
            if not fields or (len(header) > 1 and len(fields) == 1 and not fields[0].strip()):
                continue
            if len(fields) != len(header):
                yield Row(number, bad=f"expected {len(header)} columns, got {len(fields)}")
            else:
                yield Row(number, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        reason = "a quote is not closed" if "unexpected end" in str(error) else f"damaged quoting ({error})"
        raise ReadError(source.path, f"{reason}: the row starts here", start) from None


def _parquet_rows(source: Source) -> Iterator[Row]:
    import pyarrow as pa  # slow to import, and only Parquet needs it
    import pyarrow.parquet as pq

    try:
        with source.open() as stream:
            table = pq.ParquetFile(pa.BufferReader(stream.read()) if source.gzipped else source.path)
            number = 0
            for batch in table.iter_batches(batch_size=1024):
                for value in _plain(batch, pa):
                    number += 1
                    yield Row(number, value)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ReadError(source.path, f"damaged or unsupported Parquet ({first})") from None


def _plain(batch: Any, pa: Any) -> list[dict[str, Any]]:
    """A batch as dicts keyed by the trimmed, lower-case column name; a float NaN is a missing value."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        values = column.to_pylist()
        if pa.types.is_floating(column.type):
            values = [None if value is not None and value != value else value for value in values]
        columns[name.strip().lower()] = values
    return [dict(zip(columns, fields, strict=True)) for fields in zip(*columns.values(), strict=True)]


def _text_rows(source: Source) -> Iterator[Row]:
    """Every line that is not blank is a prompt."""
    for number, line in _lines(source):
        if isinstance(line, UnicodeDecodeError):
            yield Row(number, bad=source.undecodable(line))
        elif line.strip("\ufeff \t\r\n"):
            yield Row(number, {"prompt": line.removeprefix("\ufeff").strip("\r\n")})
