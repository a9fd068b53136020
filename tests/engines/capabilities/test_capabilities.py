"""The tables of what engines can do: versions, aliases, successors, and that the rows do not contradict."""

from __future__ import annotations

import itertools

import pytest

from specbench.engines.capabilities import TABLES, capabilities
from specbench.engines.capabilities.schema import Span, Table, parse_version


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("0.8.5", "0.10.0"),
        ("0.9.0", "0.9.0.1"),
        ("0.5.10", "0.5.10.post1"),
        ("v0.27.1", "0.28.0rc1"),
        ("0.9", "0.9.1"),
    ],
)
def test_versions_are_ordered_as_released(older: str, newer: str) -> None:
    one, other = parse_version(older), parse_version(newer)
    assert one is not None
    assert other is not None
    assert one < other


def test_candidates_and_builds_count_as_their_release() -> None:
    assert parse_version("0.28.0rc1") == parse_version("0.28.0+cpu") == parse_version("0.28")
    assert parse_version("unknown") is None
    assert parse_version(None) is None


def test_a_span_includes_its_first_and_not_its_last_version() -> None:
    span = Span("0.21.0", "0.25.0")
    inside = [span.holds(parse_version(v)) for v in ("0.20.2", "0.21.0", "0.24.1", "0.25.0", None)]
    assert inside == [False, True, True, False, False]
    assert Span("0.21.0").holds(None)


TABLE_LIST = list(TABLES.values())


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda t: t.engine)
def test_no_two_rows_of_a_name_hold_at_once(table: Table) -> None:
    spans = [row.span for row in table.methods]
    spans += [row.span for row in table.settings]
    spans += [row.span for row in table.flags]
    edges = {edge for span in spans for edge in (span.since, span.until) if edge}
    for edge in (*sorted(edges), None):
        version = parse_version(edge)
        methods = [row.name for row in table.methods if row.span.holds(version)]
        settings = [row.name for row in table.settings if row.span.holds(version)]
        flags = [row.name for row in table.flags if row.span.holds(version)]
        for names in (methods, settings, flags):
            assert len(set(names)) == len(names), (edge, names)


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda t: t.engine)
def test_every_fact_has_a_source_and_every_loss_a_mend(table: Table) -> None:
    sources = [row.source for row in table.methods] + [row.source for row in table.settings]
    sources += [row.source for row in table.flags] + [row.source for row in table.never]
    assert all(sources)
    assert all(limit.source for method in table.methods for limit in method.limits)
    for setting in table.settings:
        later = [row for row in table.settings if row.name == setting.name and row is not setting]
        assert not setting.span.until or setting.hint or later, f"{setting.name} went without a mend"


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda t: t.engine)
def test_settings_are_of_methods_that_exist(table: Table) -> None:
    names = {method.name for method in table.methods}
    assert all(set(setting.methods) <= names for setting in table.settings)


def test_methods_are_found_by_any_spelling_and_alias() -> None:
    for name in ("EAGLE3", "Eagle3"):
        method = capabilities("sglang").method(name)
        assert method is not None
        assert method.engine_name == "EAGLE3"
    standalone = capabilities("sglang", "0.5.23").method("STANDALONE")
    assert standalone is not None
    assert standalone.name == "draft_model"
    assert capabilities("sglang").method("medusa") is None
    assert capabilities("vllm").method("qwen3-next-mtp") is capabilities("vllm").method("mtp")
    assert capabilities("vllm").method(None) is None


VLLM_METHODS = {
    # Read from the packages of these versions; dead names left out.
    "0.7.3": {"draft_model", "ngram", "eagle", "medusa", "mlp_speculator", "mtp"},
    "0.8.5": {"draft_model", "ngram", "eagle", "eagle3", "medusa", "mlp_speculator", "mtp"},
    "0.10.2": {"ngram", "eagle", "eagle3", "medusa", "deepseek_mtp", "ernie_mtp", "qwen3_next_mtp"},
    "0.11.0": {"ngram", "eagle", "eagle3", "medusa", "mtp"},
    "0.15.0": {"draft_model", "ngram", "eagle", "eagle3", "medusa", "mtp", "suffix"},
    "0.32.0": {
        *("draft_model", "ngram", "ngram_gpu", "suffix", "eagle", "eagle3", "medusa", "mtp"),
        *("dflash", "dspark", "custom_class"),
    },
}


@pytest.mark.parametrize("version", VLLM_METHODS)
def test_vllm_methods_by_version(version: str) -> None:
    known = capabilities("vllm", version)
    assert set(known.usable) == VLLM_METHODS[version]


def test_a_method_that_died_and_came_back() -> None:
    dead = {}
    for version in ("0.9.2", "0.12.0", "0.15.0"):
        method = capabilities("vllm", version).method("draft_model")
        assert method is not None
        dead[version] = bool(method.dead)
    assert dead == {"0.9.2": False, "0.12.0": True, "0.15.0": False}


@pytest.mark.parametrize(
    ("version", "choices"),
    [
        ("0.17.1", None),
        ("0.18.1", ("strict", "probabilistic")),
        ("0.20.2", ("strict", "probabilistic", "synthetic")),
        ("0.24.0", ("standard", "synthetic")),
        ("0.32.0", ("standard", "synthetic", "block")),
    ],
)
def test_how_drafts_may_be_verified_by_version(version: str, choices: tuple[str, ...] | None) -> None:
    setting = capabilities("vllm", version).setting("rejection-sample-method")
    assert (setting.choices if setting else None) == choices


@pytest.mark.parametrize(
    ("engine", "name", "part"),
    [
        ("vllm", "disable_by_batch_size", "num_speculative_tokens_per_batch_size"),
        ("vllm", "acceptance_method", "rejection_sample_method"),
        ("vllm", "spec_decoding_acceptance_method", "rejection_sample_method"),
        ("vllm", "synthetic_acceptance_rate", "synthetic_acceptance_rates"),
        ("vllm", "adaptive_verification", "enable_adaptive_verification"),
        ("vllm", "report_speculative_metrics", "always counted"),
        ("sglang", "speculative_ngram_branch_length", "ngram_max_trie_depth"),
        ("vllm", "no_such_thing", ""),
    ],
)
def test_what_to_do_about_a_setting_that_is_not_there(engine: str, name: str, part: str) -> None:
    hint = capabilities(engine).hint(name)
    assert part in hint
    assert bool(part) == bool(hint)


def test_learning_methods_say_whether_they_can_forget() -> None:
    learning = {(table.engine, m.name): m.forgets for table in TABLE_LIST for m in table.methods if m.learns}
    assert learning == {("vllm", "suffix"): False, ("sglang", "ngram"): True}


def test_successive_rows_of_a_setting_meet_or_leave_a_gap_that_is_meant() -> None:
    rows = capabilities("vllm").setting_history("rejection_sample_method")
    for one, other in itertools.pairwise(rows):
        assert one.span.until == other.span.since
