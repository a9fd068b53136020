"""What a file is made of, by its bytes: compression, encoding, and kind of table."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Literal, cast

import msgspec

from specbench.workloads.readers.errors import ReadError

Kind = Literal["jsonl", "json", "csv", "parquet", "text"]

HEAD_BYTES: Final = 1 << 20
"""How much of a file is looked at to tell its kind."""

GZIP_MAGIC: Final = b"\x1f\x8b"

_OTHER_MAGIC: Final = (
    (b"\x28\xb5\x2f\xfd", "zstd-compressed: decompress it with `zstd -d`"),
    (b"BZh", "bzip2-compressed: decompress it with `bunzip2`"),
    (b"\xfd7zXZ", "xz-compressed: decompress it with `unxz`"),
    (b"PK\x03\x04", "a zip archive or spreadsheet: unpack it, or export the sheet as CSV"),
    (b"ARROW1", "an Arrow IPC file: write it as Parquet"),
    (b"SQLite format 3", "a SQLite database: export the table as CSV or JSONL"),
    (b"version https://git-lfs", "a Git LFS pointer, not the data: run `git lfs pull`"),
)

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8", "bom_removed"),
    (codecs.BOM_UTF32_LE, "utf-32", "decoded_utf32"),
    (codecs.BOM_UTF32_BE, "utf-32", "decoded_utf32"),
    (codecs.BOM_UTF16_LE, "utf-16", "decoded_utf16"),
    (codecs.BOM_UTF16_BE, "utf-16", "decoded_utf16"),
)

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_VLLM_LOG = re.compile(
    r"^(?:\([^)]*\)\s*)?(?:INFO|WARNING|ERROR|DEBUG)\s+\d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]+\.py:\d+\]"
    r"|Received request \S+: (?:prompt|params)"
    r'|^INFO:\s+[\d.:a-f]+ - "(?:POST|GET) /'
)
_SGLANG_LOG = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ")

_NUMBERS = re.compile(r"[\d.,;:|\t TZ+-]*[,;\t|][\d.,;:|\t TZ+-]*")

WRAPPERS: Final = (
    "data",
    "rows",
    "requests",
    "prompts",
    "items",
    "examples",
    "instances",
    "records",
    "spans",
)
"""Keys under which a JSON object may hold the rows."""


class Source:
    """An opened-by-content source file; ``open`` yields its decompressed bytes from the start.

    Raises:
        ReadError: missing, empty, damaged or of a kind that holds no requests.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.warnings: list[str] = []
        if encoding is not None:
            try:
                codecs.lookup(encoding)
            except LookupError:
                raise ReadError(path, f"unknown encoding {encoding!r}: try utf-8, cp1252 or utf-16") from None
        if not path.exists():
            raise ReadError(path, "no such file")
        if not path.is_file():
            raise ReadError(path, "not a regular file: save the data to a file first")
        with path.open("rb") as raw:
            self.gzipped = raw.read(2) == GZIP_MAGIC
        if path.stat().st_size == 0:
            raise ReadError(path, "the file is empty (0 bytes)")
        self.head = self._read_head()
        self._refuse_binary()
        self.encoding, self.default_encoding = self._encoding(encoding)
        self.carriage_return_lines = b"\r" in self.head and b"\n" not in self.head
        self.kind: Kind = self._kind()

    def open(self) -> IO[bytes]:
        """The decompressed bytes, from the start. Gzip files of several members read through."""
        if self.gzipped:
            return cast("IO[bytes]", gzip.open(self.path, "rb"))
        return self.path.open("rb")

    @contextmanager
    def damage(self) -> Iterator[None]:
        """Turn what a damaged gzip raises into a `ReadError` that says so."""
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ReadError(
                self.path, f"damaged gzip ({str(error).rstrip('.')}): fetch or compress the file again"
            ) from None

    def text(self, newline: str | None = "") -> io.TextIOWrapper:
        """The decoded text, byte order mark removed."""
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        return io.TextIOWrapper(self.open(), encoding=encoding, newline=newline)

    def undecodable(self, error: UnicodeDecodeError) -> str:
        """What a decoding error means, with the mend."""
        byte = f"byte 0x{error.object[error.start]:02x}" if error.start < len(error.object) else "cut short"
        if not self.default_encoding:
            return f"not {self.encoding} ({byte}): pass the right --encoding"
        name = self.encoding.upper()
        return f"not {name} ({byte}): pass the encoding it was written in, e.g. --encoding cp1252"

    def _read_head(self) -> bytes:
        """The first bytes, reading on while there is only white space."""
        with self.damage(), self.open() as stream:
            head = stream.read(HEAD_BYTES)
            if not head:
                raise ReadError(self.path, "the gzip holds an empty file (0 bytes)")
            while not head.strip(b" \t\r\n\x00\xef\xbb\xbf\xff\xfe"):
                more = stream.read(HEAD_BYTES)
                if not more:
                    raise ReadError(self.path, "no rows: the file holds only blank lines")
                head = head[:4] + more
            return head

    def _refuse_binary(self) -> None:
        if self.head.startswith(GZIP_MAGIC):
            raise ReadError(self.path, "compressed twice: decompress it once with `gunzip`")
        for magic, what in _OTHER_MAGIC:
            if self.head.startswith(magic):
                raise ReadError(self.path, what)

    def _encoding(self, asked: str | None) -> tuple[str, bool]:
        """(encoding, whether it was found rather than asked for); a repair is counted."""
        for bom, encoding, warning in _BOMS:
            if self.head.startswith(bom):
                if asked is not None and codecs.lookup(asked).name.startswith(encoding):
                    return encoding, False
                self.warnings.append(warning)
                return encoding, True
        if asked is not None:
            return codecs.lookup(asked).name, False
        sample = self.head[:4096]
        if len(sample) >= 4 and not self.head.startswith(b"PAR1"):
            odd, even = sample[1::2].count(0), sample[0::2].count(0)
            if max(odd, even) > 0.4 * len(sample) / 2 and min(odd, even) < 0.05 * len(sample) / 2:
                self.warnings.append("decoded_utf16")
                return ("utf-16-le" if odd > even else "utf-16-be"), True
        return "utf-8", True

    def head_text(self) -> str:
        """The decoded head, undecodable bytes replaced, without a byte order mark."""
        return self.head.decode(self.encoding, errors="replace").lstrip("\ufeff")

    def _kind(self) -> Kind:
        if self.head.startswith(b"PAR1"):
            return "parquet"
        text = self.head_text()
        if not text.strip():
            raise ReadError(self.path, "no rows: the file holds only blank lines")
        # A run of NULs is what a crash leaves in a text file: a bad row, not another kind of file.
        odd = sum(char < "\t" or "\r" < char < " " for char in re.sub("\0{4,}", "", text[:65536]))
        if odd * 10 > min(len(text), 65536):
            raise ReadError(self.path, "a binary file: none of the formats is binary but Parquet and gzip")
        lines = [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()][:200]
        self._refuse_server_log(lines[:50])
        first = lines[0].lstrip()
        if first[0] == "[":
            others = any(line.lstrip().startswith("[") for line in lines[1:])
            return "jsonl" if others and _is_json(first) else "json"
        if first[0] == "{":
            return self._json_kind(text, lines)
        if sum(line.lstrip().startswith("{") for line in lines[:50]) * 2 >= len(lines[:50]):
            return "jsonl"
        if _looks_tabular(first.lower(), lines):
            return "csv"
        numbers = sum(_NUMBERS.fullmatch(line.strip()) is not None for line in lines[1:])
        if numbers * 2 > len(lines):
            raise ReadError(
                self.path,
                "a table without a known column: name its columns in the first line, e.g. "
                "timestamp,input_length,output_length",
                1,
            )
        return "text"

    def _refuse_server_log(self, lines: list[str]) -> None:
        if any(line.lstrip().startswith("{") for line in lines):
            return  # log lines among rows are bad rows
        for name, pattern in (("vLLM", _VLLM_LOG), ("SGLang", _SGLANG_LOG)):
            if any(pattern.search(_ANSI.sub("", line)) for line in lines):
                raise ReadError(
                    self.path,
                    f"a {name} server log holds no prompts or prompt lengths at INFO level: "
                    "export requests from your gateway or tracing store instead",
                    1,
                )

    def _json_kind(self, text: str, lines: list[str]) -> Kind:
        """Rows one a line, or one document that wraps or prints them over several lines."""
        first = lines[0]
        whole_line = len(lines) > 1 or len(self.head) < HEAD_BYTES
        if whole_line and _is_json(first):
            return "json" if len(lines) == 1 and _wraps(first) else "jsonl"
        if len(lines) == 1:
            long_wrapper = re.match(rf'\s*{{\s*"(?:{"|".join(WRAPPERS)})"\s*:\s*\[', text)
            return "json" if long_wrapper and len(self.head) == HEAD_BYTES else "jsonl"
        if first.rstrip()[-1] in "{[":
            return "json"
        # A printed object goes on over lines that are no objects of their own; a damaged first row
        # of a JSONL file is followed by whole ones.
        return "jsonl" if any(_is_json(line) and line.lstrip()[0] == "{" for line in lines[1:20]) else "json"


def _is_json(line: str) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _wraps(line: str) -> bool:
    value = msgspec.json.decode(line)
    return any(
        isinstance(value.get(key), list) and value[key] and isinstance(value[key][0], dict)
        for key in WRAPPERS
    )


def _looks_tabular(header: str, lines: list[str]) -> bool:
    """Whether the first line names columns that requests have."""
    for delimiter in (",", ";", "\t", "|"):
        names = [name.strip().strip('"').strip().lower() for name in header.split(delimiter)]
        if any(name in COLUMN_NAMES for name in names) and (len(names) > 1 or len(lines) > 1):
            return True
    return header.startswith("sep=")


COLUMN_NAMES: Final = frozenset(
    """
    timestamp,contexttokens,generatedtokens,numimages,num_prefill_tokens,num_decode_tokens,request tokens,
    response tokens,log type,prompt,prompt-0,prompt_0,instruction,question,query,input,text,turns,messages,
    conversation,conversations,output_len,output_tokens,output_length,output_tokens_count,completion_tokens,
    completion_tokens_count,input_len,input_length,input_tokens,input_tokens_count,prompt_len,prompt_tokens,
    prompt_tokens_count,request_id,starttime,start_time,usage_details
    """.replace("\n", "")
    .replace("    ", "")
    .split(",")
)
"""Columns by which a first line is known to be the header of a table of requests."""
