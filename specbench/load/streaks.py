"""When a load is hopeless: a server that is gone, or that fails everything."""

from __future__ import annotations

from typing import Final

from specbench.load.record import ErrorClass, RequestRecord

_GONE: Final = frozenset({ErrorClass.CONNECT, ErrorClass.RESET, ErrorClass.TIMEOUT})
_GONE_STREAK: Final = 4
_FAIL_STREAK: Final = 32


class Streaks:
    """Counts failures in a row, in the order in which requests end."""

    __slots__ = ("_concurrency", "_failed", "_gone")

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._gone = 0
        self._failed = 0

    def note(self, record: RequestRecord) -> str | None:
        """One more end; a reason to give up if the last max(4, c) found no server, or max(32, 4c) failed."""
        if record.ok:
            self._gone = self._failed = 0
            return None
        self._failed += 1
        self._gone = self._gone + 1 if record.error_class in _GONE else 0
        if self._gone >= max(_GONE_STREAK, self._concurrency):
            reason = f"the server is gone: the last {self._gone} requests found none"
        elif self._failed >= max(_FAIL_STREAK, 4 * self._concurrency):
            reason = f"nothing succeeds: the last {self._failed} requests failed"
        else:
            return None
        return f"{reason} ({record.error_class}: {record.error})"
