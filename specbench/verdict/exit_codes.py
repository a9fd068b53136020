"""Exit codes of the command line. CI branches on them: never renumber."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a specbench command ends with."""

    OK = 0
    """Done with no gate asked, or GO."""
    CRASH = 1
    """A bug in specbench."""
    USAGE = 2
    """Bad usage or config."""
    ENVIRONMENT = 3
    """This environment cannot run it."""
    ENGINE = 4
    """Engines failed, so that nothing can be judged."""
    NO_GO_SPEED = 10
    NO_GO_PARITY = 11
    NO_GO_GUARDRAIL = 12
    """A guardrail or memory."""
    INCONCLUSIVE = 20
    INVALID = 30
    """The measurement is not valid, for example client-bound."""
    INTERRUPTED = 130
