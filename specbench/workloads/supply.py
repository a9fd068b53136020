"""Where the requests of a load come from: the source as it is, or its text at the lengths of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from specbench.config.grid import Load
from specbench.config.model import Lengths, Workload
from specbench.workloads.context import Context
from specbench.workloads.lengths import LengthSource, load_lengths
from specbench.workloads.loading import source_name
from specbench.workloads.matching import Matcher, Words, filler_requests
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import SourceRequest
from specbench.workloads.tokens import NoTokenizer, ServedTokens, Tokens


class Supply(Protocol):
    """Requests for every load."""

    def for_load(self, load: Load, count: int) -> Sequence[SourceRequest]:
        """Requests with text for a closed or open load: ``count``, or what there is."""

    def timed(self, load: Load) -> Sequence[SourceRequest]:
        """Requests with arrival times for a trace load; perhaps without text yet."""

    def with_text(self, rows: Sequence[SourceRequest]) -> Sequence[SourceRequest]:
        """The rows of `timed` that were chosen, with text."""

    def spare(self, load: Load, count: int) -> Sequence[SourceRequest]:
        """Requests with text to warm a trace load up with."""

    def offered(self) -> Sequence[SourceRequest]:
        """Everything that was handed out or may be sent."""

    def remarks(self) -> list[str]:
        """Sentences about how they were made."""


class AsRecorded:
    """The source's own requests."""

    def __init__(self, requests: Sequence[SourceRequest]) -> None:
        self._requests = requests

    def for_load(self, load: Load, count: int) -> Sequence[SourceRequest]:  # noqa: ARG002
        """See `Supply`: all of them; the mix chooses."""
        return self._requests

    def timed(self, load: Load) -> Sequence[SourceRequest]:  # noqa: ARG002
        """See `Supply`."""
        return self._requests

    def with_text(self, rows: Sequence[SourceRequest]) -> Sequence[SourceRequest]:
        """See `Supply`: they have theirs."""
        return rows

    def spare(self, load: Load, count: int) -> Sequence[SourceRequest]:  # noqa: ARG002
        """See `Supply`."""
        return self._requests

    def offered(self) -> Sequence[SourceRequest]:
        """See `Supply`."""
        return self._requests

    def remarks(self) -> list[str]:
        """See `Supply`."""
        return []


class Matched:
    """Lengths of a trace on the text of the source.

    Raises:
        WorkloadError: no such trace, or real text without the tokenizer to measure it.
    """

    def __init__(
        self,
        workload: Workload,
        lengths: Lengths,
        base_dir: Path,
        requests: Sequence[SourceRequest],
        tokens: ServedTokens | NoTokenizer,
        limit: Context | None,
        seed: int,
    ) -> None:
        self._workload = workload
        self._limit = limit
        self._seed = seed
        self._lengths: LengthSource = load_lengths(lengths, base_dir, skip=workload.on_bad_row == "skip")
        self._made: list[SourceRequest] = []
        filler = lengths.text == "filler"
        counter: Tokens
        if not isinstance(tokens, NoTokenizer):
            counter = tokens
        elif filler:
            counter = Words()
        else:
            raise WorkloadError(
                [
                    "workload.lengths: real text can only be packed to a length with the served tokenizer: "
                    f"{tokens} (for a load test without a verdict: workload.lengths.text: filler)"
                ]
            )
        corpus = filler_requests() if filler else requests
        self._matcher = Matcher(
            "words" if filler else source_name(workload.source), corpus, counter, str(seed), filler
        )

    def for_load(self, load: Load, count: int) -> Sequence[SourceRequest]:
        """See `Supply`: a sample stratified by joint length, its own for each load."""
        label = f"{self._seed}/{load.id}"
        return self._match(self._lengths.pairs(count, self._limit, self._workload, label))

    def timed(self, load: Load) -> Sequence[SourceRequest]:
        """See `Supply`."""
        assert load.trace is not None
        return self._lengths.replay(load.trace, self._limit, self._workload, f"{self._seed}/{load.id}")

    def with_text(self, rows: Sequence[SourceRequest]) -> Sequence[SourceRequest]:
        """See `Supply`."""
        return self._match(rows)

    def spare(self, load: Load, count: int) -> Sequence[SourceRequest]:
        """See `Supply`: twice as many, since some may be among the measured ones."""
        label = f"{self._seed}/{load.id}/warm-up"
        return self._match(self._lengths.pairs(2 * count, self._limit, self._workload, label))

    def offered(self) -> Sequence[SourceRequest]:
        """See `Supply`."""
        return self._made

    def remarks(self) -> list[str]:
        """See `Supply`."""
        return [*self._lengths.remarks, *self._matcher.remarks()]

    def _match(self, rows: Sequence[SourceRequest]) -> list[SourceRequest]:
        chosen = self._workload.categories
        weights = chosen if isinstance(chosen, dict) else None
        made = self._matcher.match(rows, self._lengths.key, weights)
        self._made += made
        return made
