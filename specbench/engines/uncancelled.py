"""Wait for work that must be finished, whoever stops waiting for it."""

from __future__ import annotations

import asyncio
from typing import TypeVar

_T = TypeVar("_T")


async def uncancelled(task: asyncio.Task[_T]) -> _T:
    """The result of a task that goes on to its end although the caller is cancelled meanwhile.

    Raises:
        asyncio.CancelledError: the caller was cancelled; the task is done by then.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()
