"""What SGLang would refuse or ignore in an arm with adaptive steps, or with a drafter in another engine.

Rules are those of ``arg_groups/speculative_hook.py``, ``speculative/adaptive_spec_params.py`` and
``server_args.py`` of SGLang 0.5.23.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from specbench.engines.base import Problem
from specbench.engines.sglang_speculation import ADAPTIVE_STEPS

if TYPE_CHECKING:
    from specbench.config.grid import Arm


def adaptive_problems(
    arm: Arm, settings: Mapping[str, Any], numbers: Mapping[str, Any], where: str
) -> Iterator[Problem]:
    """Where adaptive speculation starts from, and whether it runs at all."""
    key = f"{where}.settings."
    file = settings.get("adaptive_config")
    if settings.get("adaptive") is not True:
        if file is not None:
            yield Problem(
                key + "adaptive_config", "nothing reads it without `adaptive: true`", "add it", fatal=False
            )
        return
    if numbers.get("eagle_topk", 1) != 1:
        yield Problem(
            key + "adaptive", "SGLang switches it off for trees (eagle_topk above 1)", "use `k`", fatal=False
        )
        return
    try:
        possible = ADAPTIVE_STEPS if file is None else adaptive_steps(Path(str(file)))
    except OSError as error:
        yield Problem(
            key + "adaptive_config",
            f"{file} cannot be read here ({error.strerror or error}), so that it is not checked",
            "correct the path, unless it is one of the machine or container that runs SGLang",
            fatal=False,
        )
        return
    except ValueError as error:
        yield Problem(
            key + "adaptive_config",
            f"SGLang could not start from {file}: {error}",
            'write JSON such as {"1": {"candidate_steps": [1, 3, 7]}, "8": {"candidate_steps": [0, 1]}}, '
            "whose keys are batch sizes",
        )
        return
    steps = numbers.get("num_steps")
    if steps is not None and steps not in possible:
        yield Problem(
            f"{where}.k" if arm.k is not None else key + "num_steps",
            f"adaptive speculation starts from one of its own numbers of steps, not from {steps}",
            f"use one of {', '.join(str(n) for n in possible if n)}"
            + ("" if file is not None else ", or add adaptive_config"),
        )


def adaptive_steps(path: Path) -> tuple[int, ...]:
    """Numbers of steps that an adaptive configuration chooses from, in all its batch sizes.

    Raises:
        OSError: it cannot be read here.
        ValueError: SGLang would not start with it.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    slots = [v for name, v in found.items() if name.isdigit()] if isinstance(found, dict) else []
    if not slots:
        raise ValueError("no key is a batch size")
    steps: set[int] = set()
    for slot in slots:
        own = slot.get("candidate_steps") if isinstance(slot, dict) else None
        if not isinstance(own, list) or not own or not all(isinstance(n, int) and n >= 0 for n in own):
            raise ValueError(f"candidate_steps is {own!r}, not a list of whole numbers")
        steps.update(own)
    return tuple(sorted(steps))


_DECOUPLED: Final = (
    "decoupled_spec_bind_endpoint",
    "decoupled_spec_connect_endpoints",
    "decoupled_spec_rank",
)


def decoupled_problems(settings: Mapping[str, Any], where: str) -> Iterator[Problem]:
    """A verifier here and a drafter in an engine of its own."""
    role = settings.get("decoupled_spec_role", "null")
    if role == "null":
        return
    key = f"{where}.settings.decoupled_spec_role"
    if role == "drafter":
        yield Problem(
            key,
            "a drafter serves no requests",
            "write the verifier as the arm, and start the drafter yourself before the sweep",
        )
    missing = [name for name in _DECOUPLED if settings.get(name) is None]
    if missing:
        yield Problem(
            key, f"SGLang does not start without {', '.join(missing)}", f"add {' and '.join(missing)}"
        )
    yield Problem(
        key,
        "SGLang 0.5.23 reads the flags of decoupled drafting, and no part of it uses them: the arm drafts in "
        "its own engine as if they were not there",
        "remove them, unless your SGLang is a build that has it",
        fatal=False,
    )
