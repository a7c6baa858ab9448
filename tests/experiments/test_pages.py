"""What experiments say in their READMEs is what their kept results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.ledger.jsonl import read
from bridge.report.html import report_html
from bridge.report.report import make_report
from experiments.api_instability import run as api_instability
from experiments.coverage.run import RESULTS
from experiments.dynamic_shape import run as dynamic_shape
from experiments.maintenance import run as maintenance
from experiments.maintenance.new_ops import CALLS
from experiments.maintenance.ops import kept as releases
from experiments.maintenance.outcomes import kept
from experiments.page import held_between, page

EXPERIMENTS = {"api_instability": api_instability, "dynamic_shape": dynamic_shape, "maintenance": maintenance}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_readme_is_as_the_results(name: str) -> None:
    experiment = EXPERIMENTS[name]
    made = held_between(experiment.README, experiment.BEGIN, experiment.END)
    assert made == experiment.tables().strip(), f"bridge experiment {name}"


def test_pages_are_as_the_results() -> None:
    assert maintenance.PAGE.read_text(encoding="utf-8") == page("Maintenance", maintenance.tables())


def test_the_page_of_the_corpus_is_as_the_results() -> None:
    results = RESULTS / "corpus.jsonl.gz"
    made = report_html(make_report(read(results)))
    assert (RESULTS / "corpus.html").read_text(encoding="utf-8") == made, f"bridge report {results} --html …"


def test_every_call_of_something_new_has_a_result() -> None:
    assert [(one.name, one.series) for one in kept()] == [(name, series) for name, (series, _) in CALLS.items()]


def test_new_ops_are_called_or_are_no_ops_of_a_graph() -> None:
    """Of what releases since 2.12 brought, what no call covers writes into a tensor, or belongs to one vendor."""
    called = {word for name in CALLS for word in name.replace(",", " ").split()}
    brought = {op for one in releases() if one.release >= "2.12" for op in one.new}
    left = {op for op in brought if not any(op.partition(".")[0].startswith(word.rstrip("_")) for word in called)}
    reasons = ("out", "grad_input", "flash", "cudnn", "scaled", "get_device", "is_contiguous")
    assert not [op for op in left if not any(reason in op for reason in reasons)]


def test_a_page_has_headings_tables_and_links(tmp_path: Path) -> None:
    text = page("T & t", "### One\n\n| a | b |\n|---|---|\n| `x<y` | [z](q) |\n\nwords")
    assert "<title>T &amp; t</title>" in text
    assert "<h3>One</h3>" in text
    assert '<tr><td><code>x&lt;y</code></td><td><a href="q">z</a></td></tr>' in text
    assert "<p>words</p>" in text
