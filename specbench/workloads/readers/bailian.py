"""Qwen-Bailian traces: seconds, blocks of 16 tokens, and chats that name their parent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from specbench.workloads.readers.base import RowReader, request
from specbench.workloads.readers.errors import BadRow
from specbench.workloads.readers.mooncake import prefix
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import ReadReport, Shape, SourceRequest

BLOCK_TOKENS: Final = 16


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row has Bailian's chat ids and lengths."""
    return "chat_id" in row and "parent_chat_id" in row and "input_length" in row


class BailianReader(RowReader):
    """Rows of chats; `finish` joins each chat to the session of its first ancestor in the file."""

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}

    def parse(self, record: Record) -> SourceRequest:
        """See `RowReader.parse`."""
        record.arrive("timestamp", unit="s", required=True)
        chat = record.ident("chat_id")
        if chat is None:
            raise BadRow("chat_id is missing")
        parent = record.ident("parent_chat_id")
        parent = None if parent in {None, "-1"} else parent
        category = record.text("type")
        turn = record.count("turn")
        prompt_tokens, output_tokens = record.lengths(("input_length",), ("output_length",))
        shape = Shape(prompt_tokens=prompt_tokens, prefix=prefix(record, prompt_tokens, BLOCK_TOKENS))
        self._parents[chat] = parent
        return request(
            record,
            id=chat,
            shape=shape,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            session_id=chat,
            after=parent,
            turn=turn,
            category=category,
            text_source="none",
        )

    def finish(self, requests: list[SourceRequest], report: ReadReport) -> list[SourceRequest]:
        """Name the sessions; a chat whose parent is not in the file starts one, and is counted."""
        absent = sum(parent is not None and parent not in self._parents for parent in self._parents.values())
        if absent:
            report.warn("parent_not_in_file", absent)
        made = []
        for item in requests:
            after = item.after if item.after in self._parents else None
            root = self._root(item.session_id or item.id)
            made.append(msgspec.structs.replace(item, session_id=root, after=after))
        return made

    def _root(self, chat: str) -> str:
        seen = {chat}
        while (parent := self._parents.get(chat)) in self._parents and parent not in seen:
            assert parent is not None
            seen.add(parent)
            chat = parent
        return chat
