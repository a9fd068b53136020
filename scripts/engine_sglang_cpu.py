"""Build `.engines/sglang-cpu`: SGLang for a CPU in an environment of its own (about 3 GB, two minutes).

SGLang has no CPU build on the package index. This installs the real one with a platform plugin, for tests
only (`tests/engine/sglang_cpu`), that puts plain torch in the place of its GPU kernels. Repeating it is
instant while the pinned list and the plugin are the same; an unfinished or outdated environment is built
anew.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from common import ROOT, digest, fail, locked, need_disk, run, say

ENV = ROOT / ".engines" / "sglang-cpu"
READY = ENV / ".ready"
PLUGIN = ROOT / "tests" / "engine" / "sglang_cpu"
TORCH = PLUGIN / "torch.txt"
PACKAGES = PLUGIN / "requirements.txt"
NEED_GIB = 7.0
"""Environment plus the downloads while they unpack."""

NETWORK = (
    "check that pip reaches a package index (pip download six); PyTorch's CPU builds are on PyTorch's "
    "own index: name it in PIP_EXTRA_INDEX_URL to avoid the much larger CUDA build; then repeat make"
)
CHECK = (
    "from sglang.srt.platforms import current_platform as p;"
    "assert type(p).__name__ == 'CpuNativePlatform', f'SGLang picked the platform {p!r}, not the plugin';"
    "import sglang, torch;"
    "print('sglang', sglang.__version__, 'torch', torch.__version__)"
)


def main() -> None:
    """Build the environment unless it is there already."""
    with locked(ENV.with_suffix(".lock")):
        code = sorted(PLUGIN.joinpath("sgl_cpu_oot").glob("*.py"))
        wanted = digest(TORCH, PACKAGES, PLUGIN / "pyproject.toml", *code)
        if READY.is_file() and READY.read_text().strip() == wanted:
            return
        build()
        READY.write_text(wanted + "\n")
        say(f"ready: {ENV.relative_to(ROOT)}")


def build() -> None:
    """Install from nothing, so that no leftover of an older list stays behind."""
    if sys.platform != "linux":
        fail(f"SGLang runs on Linux, this is {sys.platform}", "use Linux, a container or a VM")
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        fail(
            f"the pinned packages need Python 3.11 to 3.13, this is {sys.version.split()[0]}",
            "make PYTHON=python3.11 ... (any of 3.11 to 3.13; 3.11 is the one that was tried)",
        )
    if shutil.which("g++") is None:
        fail(
            "there is no g++, with which SGLang compiles its n-gram index when it starts",
            "install your system's C++ compiler (Debian: apt install g++)",
        )
    need_disk(ENV.parent, NEED_GIB)
    if ENV.exists():
        say("removing an unfinished or outdated engine environment")
        shutil.rmtree(ENV)
    say("installing SGLang for the CPU into .engines/sglang-cpu (about 3 GB, a few minutes)")
    run(
        [sys.executable, "-m", "venv", ENV],
        "creating the virtual environment",
        "install your system's venv package (Debian: apt install python3-venv)",
    )
    python: Path = ENV / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "--disable-pip-version-check", "-qq"]
    run([*pip, "-r", TORCH], "installing torch", NETWORK)
    run([*pip, "--no-deps", "-r", PACKAGES], "installing SGLang and its packages", NETWORK)
    with tempfile.TemporaryDirectory() as folder:  # a build leaves files next to its sources
        copy = Path(folder) / "plugin"
        shutil.copytree(PLUGIN, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        run(
            [*pip, "--no-deps", "--no-build-isolation", copy],
            "installing the platform plugin",
            "the error above names the line of tests/engine/sglang_cpu that does not build",
        )
    run(
        [python, "-c", CHECK],
        "importing the installed engine",
        "a package of tests/engine/sglang_cpu/requirements.txt does not fit this machine; the import error "
        "above names it",
    )


if __name__ == "__main__":
    main()
