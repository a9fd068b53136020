"""Turn a run into the sample under ``reports/``: the same pages, without the paths and name of the machine.

Usage: ``.venv/bin/python scripts/sample_report.py runs/quickstart-...`` in the checkout that measured it.
With Chromium on the PATH the picture for the README is taken too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from specbench.report.build import build
from specbench.report.html import to_html
from specbench.report.jsonfile import from_json, to_json
from specbench.report.markdown import to_markdown
from specbench.runs.rundir import RunDir

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "reports"


def main() -> None:
    """Write ``reports/quickstart.{json,html,md,png}``."""
    run = RunDir.open(Path(sys.argv[1]))
    result = build(run)
    text = to_json(result).decode()
    # The run may have been measured in another checkout: everything before the project's own folders goes.
    for folder in {str(ROOT), *_roots(result.target)}:
        text = text.replace(folder + "/", "./")
    text = text.replace(f'"{result.machine.hostname}"', '"a 2-core virtual machine"')
    clean = from_json(text.encode())
    OUT.mkdir(exist_ok=True)
    (OUT / "quickstart.json").write_bytes(to_json(clean))
    (OUT / "quickstart.html").write_text(to_html(clean), encoding="utf-8")
    (OUT / "quickstart.md").write_text(to_markdown(clean), encoding="utf-8")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no chromium: reports/quickstart.png was not renewed")
        return
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                chromium,
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
                *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
                f"--user-data-dir={profile}",
                f"--screenshot={OUT / 'quickstart.png'}",
                "--window-size=1180,1680",
                (OUT / "quickstart.html").as_uri(),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )


def _roots(target: str) -> list[str]:
    return [target.split("/models/")[0]] if "/models/" in target else []


if __name__ == "__main__":
    main()
