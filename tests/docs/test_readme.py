"""What the README and the ready configs promise is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from specbench.cli.main import COMMANDS
from specbench.config.model import Config
from specbench.config.plan import make_plan
from specbench.config.source import load_config
from specbench.verdict.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
SWEEPS = sorted((ROOT / "sweeps").glob("*.yaml"))


def test_the_example_config_is_valid() -> None:
    example, _ci = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert Config.model_validate(yaml.safe_load(example)).name == "chat-8b"


def test_the_table_of_exit_codes_is_complete() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert listed == {int(code) for code in ExitCode}


def test_the_table_of_commands_is_complete() -> None:
    assert set(re.findall(r"^\| `specbench (\w+)", README, re.MULTILINE)) == set(COMMANDS)


def test_the_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "docs/design.md", "docs/method.md", "datasets/README.md"):
        named = re.findall(r"`make ([a-z-]+)", (ROOT / page).read_text("utf-8"))
        assert set(named) <= targets, page


@pytest.mark.parametrize("page", ["README.md", "docs/design.md", "docs/method.md", "datasets/README.md"])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    file = ROOT / page
    for link in re.findall(r"\]\(([^)]+)\)", file.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        if path.startswith("reports/"):
            continue  # made by a real run
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            assert anchor in {h.lower().replace(" ", "-") for h in headings}, link


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_ready_configs_are_valid_and_named_like_their_file(file: Path) -> None:
    first = file.read_text("utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=../docs/config.schema.json"
    loaded = load_config(file, check_paths=False)
    assert loaded.config.name == file.stem


def test_the_quickstart_fits_its_promise() -> None:
    plan = make_plan(load_config(ROOT / "sweeps" / "quickstart.yaml", check_paths=False).config)
    assert plan.startup_basis == plan.speed_basis == "from measure.expect"
    assert 5 * 60 < plan.estimate_s < 15 * 60
