"""The commented config that `specbench init` writes."""

from __future__ import annotations

import math
import re
from importlib import resources
from pathlib import PurePath
from typing import Final

import yaml

from specbench.config.environment import escape

TEMPLATE_KINDS: Final = ("vllm", "sglang", "simulated")
"""Engines that there is a template for."""

_DEFAULTS: Final = {
    "@@SOURCE@@": "all",
    "@@LOADS@@": "1, 8, 32",  # no more than the dataset has prompts for
    "@@CAP@@": "256",
    "@@EXPECT@@": """\
  # expect:                          # what you know of the speed, for the estimate of `specbench plan`
  #   startup: 2m
  #   tokens_per_s: {1: 60, 32: 1200}""",
}
_OF_KIND: Final = {
    "simulated": {
        "@@SOURCE@@": "quickstart",
        "@@LOADS@@": "1, 4, 8",
        "@@CAP@@": "100",
        "@@EXPECT@@": """\
  expect:                            # what you know of the speed, for the estimate of `specbench plan`
    startup: 2s
    tokens_per_s: {1: 95, 8: 650}""",
    }
}
"""What differs between the templates beside the engine and the arms."""

EXAMPLE_MODELS: Final = {"simulated": "sim/target"}
EXAMPLE_MODEL: Final = "Qwen/Qwen3-8B"


def example_model(kind: str) -> str:
    """The target of a config for nobody's model in particular."""
    return EXAMPLE_MODELS.get(kind, EXAMPLE_MODEL)


def render_template(model: str, kind: str, file: str) -> str:
    """A commented config for a model and an engine; ``file`` is what its comments call it.

    Raises:
        KeyError: there is no template for the engine.
    """
    if kind not in TEMPLATE_KINDS:
        raise KeyError(kind)
    folder = resources.files("specbench.config") / "templates"
    whole = (folder / "sweep.yaml.txt").read_text(encoding="utf-8")
    engine, arms = (folder / f"{kind}.yaml.txt").read_text(encoding="utf-8").split("--- arms ---\n")
    values = {
        "@@FILE@@": file,
        "@@NAME@@": _scalar(sweep_name(model)),
        "@@MODEL@@": _scalar(escape(model)),
        **_DEFAULTS,
        **_OF_KIND.get(kind, {}),
        "@@ENGINE@@\n": engine,
        "@@ARMS@@\n": arms,
    }
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], whole)


def sweep_name(model: str) -> str:
    """A sweep's name from its model's: lower case, without the organisation."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePath(model).name).strip("-._").lower()
    return name[:64].rstrip("-._") or "sweep"


def _scalar(text: str) -> str:
    """A YAML scalar; in quotes unless it is plainly a name or a path."""
    if re.fullmatch(r"[A-Za-z./][A-Za-z0-9_./-]*", text) and yaml.safe_load(text) == text:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf)
    return quoted.rstrip("\n")
