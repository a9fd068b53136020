"""The text exposition format, read with prometheus_client's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, list[tuple[dict[str, str], float]]]
"""Sample name (``vllm:generation_tokens_total``) to its label sets and values."""


def parse(text: str) -> Samples:
    """All samples of a metrics page, by exact sample name; ``_created`` series are left out.

    Raises:
        ValueError: the page is not in the exposition format.
    """
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def total(samples: Samples, name: str, **labels: str) -> float | None:
    """Sum over all label sets (data-parallel engines have one each); null when the series is absent."""
    found = [v for own, v in samples.get(name, []) if all(own.get(k) == w for k, w in labels.items())]
    return sum(found) if found else None


def mean(samples: Samples, name: str) -> float | None:
    """Mean over label sets, for gauges that must not be added."""
    found = [v for _, v in samples.get(name, [])]
    return sum(found) / len(found) if found else None
