"""Model files for tests: the safetensors format is a length, a JSON header and the bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_KINDS = {"float32": "F32", "int64": "I64", "int8": "I8"}


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Tensors of float32, int64 or int8 by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, value in tensors.items():
        begin, end = end, end + value.nbytes
        header[name] = {
            "dtype": _KINDS[value.dtype.name],
            "shape": list(value.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(value.tobytes())


def read_bfloat16(path: Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of a bfloat16 file, exactly, as float32."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", f"{path}: {name} is {entry['dtype']}"
        begin, end = entry["data_offsets"]
        halves = np.frombuffer(raw[start + begin : start + end], np.uint16).astype(np.uint32)
        tensors[name] = (halves << 16).view(np.float32).reshape(entry["shape"])
    return tensors
