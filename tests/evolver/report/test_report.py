"""The report of a run: says what was found and how, loads nothing, believes no text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation, Flag, Severity, Status
from evaluator.problem import Assumption, Origin
from evolver.proposers.base import ProposalContext
from evolver.report import write_report
from evolver.report.content import best_screened, gather
from evolver.run import Run
from tests.builders import make_candidate, make_evaluation, make_problem
from tests.evolver.toys import ToyEvaluator, make_config, make_run, make_search, toy_candidate

SCRIPT = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Every element of a page with its attributes, the ids, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def ids(self) -> list[str]:
        return [a["id"] for _, a in self.elements if a.get("id")]


class Hostile(ToyEvaluator):
    """Finds nothing but faults, with markup in everything that a candidate can influence."""

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        return make_evaluation(
            candidate,
            status=Status.RUNTIME_ERROR,
            message=f"raised {SCRIPT}",
            log_tail=SCRIPT,
            flags=(Flag(rule="r", severity=Severity.WARNING, evidence=SCRIPT),),
        )


class HostileSeeds:
    name = "hostile"

    def __init__(self) -> None:
        self._sources = [f"TEXT = {SCRIPT!r}\n", f"OTHER = {SCRIPT!r}\n"]

    def propose(self, context: object) -> Candidate | None:
        if not self._sources:
            return None
        return make_candidate(self._sources.pop(), proposer=self.name, description=SCRIPT)


def report_of(path: Path, *, diff: str | None = None) -> str:
    with Run.open(path) as run:
        return write_report(run, diff=diff).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def winning_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "run"
    with make_run(path) as run:
        make_search(run, steps=12).search()
    return path


def test_a_win_is_told_with_its_interval_and_baseline(winning_run: Path) -> None:
    text = Page(report_of(winning_run)).text
    with Run.open(winning_run) as run:
        speedup = run.summary().speedups[0]
    assert f"{speedup.value:.2f}× as fast as eager PyTorch" in text
    assert f"{speedup.low:.3f} to {speedup.high:.3f} (95%)" in text
    assert "fresh processes" in text
    assert "test-machine" in text


def test_the_page_tells_how_to_reproduce(winning_run: Path) -> None:
    text = Page(report_of(winning_run)).text
    assert f"ksmith optimize {winning_run}/problem --backend cpp" in text
    assert f"ksmith evaluate {winning_run}/problem {winning_run}/best/candidate.py" in text


def test_the_page_loads_nothing_and_runs_no_script(winning_run: Path) -> None:
    html = report_of(winning_run)
    loading = {"src", "srcset", "data", "poster", "action", "background"}
    for tag, attributes in Page(html).elements:
        assert tag not in {"script", "link", "iframe", "img", "object", "embed"}
        assert not loading & attributes.keys()
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not re.findall(r"url\((?!#)|@import", html)
    assert len(html) < 400_000


def test_every_link_has_its_target_and_every_id_is_unique(winning_run: Path) -> None:
    page = Page(report_of(winning_run, diff="--- a\n+++ b\n"))
    wanted = {a.get("href") or a.get("xlink:href") for _, a in page.elements}
    targets = {t.removeprefix("#") for t in wanted if t}
    assert targets <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_markup_in_what_a_candidate_says_stays_text(tmp_path: Path) -> None:
    loaded = make_problem(
        origin=Origin(repository=SCRIPT, target=SCRIPT, licence=SCRIPT),
        assumptions=(Assumption(kind=SCRIPT, detail=SCRIPT),),
        source=f"# {SCRIPT}\n",
    )
    with Run.create(tmp_path / "run", loaded, make_config(loaded)) as run:
        make_search(run, Hostile(), steps=2, proposers=[HostileSeeds()], seeds=()).search()
    page = Page(report_of(tmp_path / "run", diff=f"+{SCRIPT}\n"))
    assert "script" not in {tag for tag, _ in page.elements}
    assert page.text.count(SCRIPT) >= 10


def test_markup_in_the_winner_stays_text_in_source_and_lineage(tmp_path: Path) -> None:
    class Winner(HostileSeeds):
        name = "winner"

        def propose(self, context: object) -> Candidate | None:
            if not self._sources:
                return None
            text = self._sources.pop()
            parent = make_candidate(f"SPEED = 1.5\n{text}", proposer=self.name, description=SCRIPT)
            if self._sources:
                self.parent = parent
                return parent
            source = f"SPEED = 2.5\n{text}"
            return make_candidate(source, proposer=self.name, parents=(self.parent.id,))

    with make_run(tmp_path / "run") as run:
        make_search(run, steps=2, proposers=[Winner()], seeds=()).search()
    page = Page(report_of(tmp_path / "run"))
    assert "Lineage of the winner" in page.text
    assert "script" not in {tag for tag, _ in page.elements}
    assert "+SPEED = 2.5" in page.text


def test_no_win_is_said_plainly_and_screenings_are_not_results(tmp_path: Path) -> None:
    evaluator = ToyEvaluator()
    with make_run(tmp_path / "run") as run:
        make_search(run, evaluator, seeds=(0.8, 0.9), proposers=[], steps=2).search()
    text = Page(report_of(tmp_path / "run")).text
    assert "No faster kernel found" in text
    assert "this is not a result" in text
    assert "as fast as" not in text


def test_a_win_that_no_confirmation_upheld_is_no_win(tmp_path: Path) -> None:
    evaluator = ToyEvaluator()
    evaluator.refuses = {a.candidate.id for a in _attempts_of(tmp_path / "first")}
    with make_run(tmp_path / "run") as run:
        make_search(run, evaluator, seeds=(1.2, 1.3), proposers=[], steps=2).search()
    text = Page(report_of(tmp_path / "run")).text
    assert "No faster kernel found" in text
    assert "The best that a screening saw is 1.30× over eager PyTorch" in " ".join(text.split())


def _attempts_of(path: Path):
    with make_run(path) as run:
        make_search(run, seeds=(1.2, 1.3), proposers=[], steps=2).search()
        return run.attempts()


def test_a_run_in_which_everything_failed_names_the_reasons(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, seeds=(-1.0, -2.0), proposers=[], steps=2).search()
    text = Page(report_of(tmp_path / "run")).text
    assert "incorrect (made for a test)" in text
    assert "No candidate was timed." in text


def test_a_run_that_has_only_begun_has_a_report(tmp_path: Path) -> None:
    make_run(tmp_path / "run").close()
    text = Page(report_of(tmp_path / "run")).text
    assert "The search is not finished" in text
    assert "None was evaluated." in text


def test_the_lineage_leads_from_the_first_ancestor_to_the_winner(winning_run: Path) -> None:
    with Run.open(winning_run) as run:
        content = gather(run, diff=None)
        best = run.best()
    assert best is not None
    assert content.lineage[0].diff is None
    assert content.lineage[-1].candidate == best.candidate
    for parent, child in zip(content.lineage, content.lineage[1:], strict=False):
        assert child.candidate.parents == (parent.candidate.id,)
        assert child.diff is not None
        assert child.diff.startswith(f"--- parent {parent.candidate.id[:8]}")


class Cross:
    """Crosses the parent with the first exemplar, once."""

    name = "cross"

    def propose(self, context: ProposalContext) -> Candidate | None:
        if context.parent is None or not context.exemplars:
            return None
        parents = (context.parent.candidate.id, context.exemplars[0].candidate.id)
        return toy_candidate(2.5, proposer=self.name, parents=parents)


def test_the_lineage_names_whom_a_candidate_was_crossed_with(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, seeds=(1.1, 1.2, 1.3), proposers=[Cross()], steps=4).search()
        content = gather(run, diff=None)
    crossed = content.lineage[-1]
    assert crossed.number == 4
    assert set(crossed.others) <= {1, 2, 3}
    assert len(crossed.others) == 1
    assert f"crossed with candidate {crossed.others[0]}" in Page(report_of(tmp_path / "run")).text


def test_confirmations_are_told_apart_from_screenings(winning_run: Path) -> None:
    with Run.open(winning_run) as run:
        content = gather(run, diff=None)
    assert len(content.screened) > len(content.confirmed) >= 1
    assert content.featured is not None
    assert content.featured.evaluation.confirmed
    screened = best_screened(content.attempts)
    assert screened is not None
    assert not screened.evaluation.confirmed


def test_the_page_says_what_the_search_cost_and_for_whom(winning_run: Path) -> None:
    with Run.open(winning_run) as run:
        costs = run.summary().costs
        page = Page(write_report(run).read_text(encoding="utf-8"))
    section = page.text[page.text.index("Wall time by what it went into") :]
    for told in ("proposing", "screening", "between steps", "nudge: judging its candidates"):
        assert told in section
    assert f"{costs.faster} candidates that a screening found faster took" in section


def test_writing_again_replaces_the_page(winning_run: Path) -> None:
    report_of(winning_run, diff="+first\n")
    assert "+first" not in report_of(winning_run)
    assert [p.name for p in winning_run.glob("*report*")] == ["report.html"]
