"""Make `.venv`: specbench, editable, with its development tools."""

from __future__ import annotations

import sys
from pathlib import Path

from common import ROOT, digest, fail, locked, need_disk, run, say

ENV = ROOT / ".venv"
READY = ENV / ".ready"


def main() -> None:
    """Create the environment if needed and bring it up to date with pyproject.toml."""
    if sys.version_info < (3, 11):  # noqa: UP036 - `make` may have found an older Python
        fail(
            f"specbench needs Python 3.11 or newer, this is {sys.version.split()[0]}",
            "name a newer one: make PYTHON=python3.12 ...",
        )
    with locked(ROOT / ".engines" / "venv.lock"):
        wanted = digest(ROOT / "pyproject.toml")
        if not (READY.is_file() and READY.read_text().strip() == wanted):
            install()
        READY.write_text(wanted + "\n")


def install() -> None:
    """Install into the environment as it is; pip keeps what already fits."""
    need_disk(ROOT, 1.0)
    python: Path = ENV / "bin" / "python"
    if not python.exists():
        say("creating .venv")
        run(
            [sys.executable, "-m", "venv", ENV],
            "creating the virtual environment",
            "install your system's venv package (Debian: apt install python3-venv)",
        )
    say("installing specbench into .venv (a minute)")
    run(
        [python, "-m", "pip", "install", "--disable-pip-version-check", "-qq", "-e", f"{ROOT}[dev]"],
        "installing specbench",
        "check that pip reaches a package index (pip download six), then repeat make",
    )


if __name__ == "__main__":
    main()
