"""The page about benchmarks: made from scripts and records, and the committed one is that."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.record import ROOT, about, read, scripts
from tools.docs.benchmarks import FAST, OTHERS, PAGE, PLACES, RIGHT, TITLES, benchmarks_page

HEADER = """\
command: python -m benchmarks.how_alert_is_drift --tests 5
machine: Abacus, 2 cores, 8 GB of memory
system: Linux
python: 3.12.1
numpy: 2.0.0
scipy: 1.13.0
numba: 0.61.0
steadyarm: 0.1
date: 2026-02-03
seconds: 12
load: 0.10 at the start, 1.20 at the end

"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with all scripts, and no records but that of other libraries."""
    (tmp_path / OTHERS).parent.mkdir(parents=True)
    shutil.copy(ROOT / OTHERS, tmp_path / OTHERS)
    for script in (ROOT / "benchmarks").glob("*.py"):
        shutil.copy(script, tmp_path / "benchmarks")
    return tmp_path


def keep(root: Path, name: str, header: str, output: str) -> None:
    (root / f"benchmarks/results/{name}.txt").write_text(header + output)


def test_the_committed_page_is_the_one_that_would_be_made() -> None:
    assert PAGE.read_text() == benchmarks_page(), "run `python -m tools.docs.benchmarks`"


@pytest.mark.parametrize("name", scripts())
def test_scripts_ask_and_say_what_they_measure(name: str) -> None:
    question, measured = about(name)
    assert question.endswith("?"), f"the first line of {name} is no question: {question!r}"
    lines = [line for line in measured.splitlines() if line]
    assert 2 <= len(lines) <= 6, f"{name} takes {len(lines)} lines to say what it measures"


@pytest.mark.parametrize("name", scripts())
def test_scripts_are_on_the_page_with_a_place_that_exists(name: str) -> None:
    place = PLACES[name]
    assert place.section in (RIGHT, FAST)
    for page in place.pages:
        assert name in (ROOT / "docs" / page).read_text(), f"docs/{page} does not name {name}"
        assert page in TITLES


def test_rows_lead_to_their_headings() -> None:
    page = benchmarks_page()
    headings = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\s-]", "", one).lower().replace(" ", "-") for one in headings}
    targets = re.findall(r"^\| \[[^\]]*\]\(#([^)]*)\)", page, flags=re.MULTILINE)
    assert len(targets) == len(PLACES) + 2
    assert set(targets) <= anchors


def test_without_a_record_the_page_says_so(root: Path) -> None:
    page = benchmarks_page(root)
    assert "Not recorded yet: `python -m benchmarks.how_alert_is_drift`." in page
    assert page.count("not recorded yet |") == len(PLACES)
    assert "Recorded on" not in page


def test_a_record_is_shown_as_it_is(root: Path) -> None:
    keep(root, "how_alert_is_drift", HEADER, "world   rate\n\nclicks  0.05 *_*\n")
    page = benchmarks_page(root)
    assert "```text\nworld   rate\n\nclicks  0.05 *_*\n```" in page
    command = "`python -m benchmarks.how_alert_is_drift --tests 5`"
    assert f"{command} | 2026-02-03 |" in page
    assert f"{command}, 2026-02-03, 12 s; load 0.10 at the start, 1.20 at the end." in page
    assert "Not recorded yet: `python -m benchmarks.how_alert_is_drift" not in page


def test_what_records_agree_on_is_said_once(root: Path) -> None:
    keep(root, "how_alert_is_drift", HEADER, "one\n")
    keep(root, "how_alert_is_srm", HEADER.replace("numpy: 2.0.0", "numpy: 2.1.0"), "two\n")
    page = benchmarks_page(root)
    assert page.count("Abacus, 2 cores, 8 GB of memory, Linux, Python 3.12.1, SciPy 1.13.0") == 1
    assert page.count("Recorded on: NumPy 2.0.0.") == 1
    assert page.count("Recorded on: NumPy 2.1.0.") == 1


def test_other_libraries_are_a_section(root: Path) -> None:
    page = benchmarks_page(root)
    assert "\n## Beside others\n\n### Against what people use\n" in page
    assert re.search(r"\(#beside-others\) \| `python -m benchmarks.against\S+ .*` \| 20\d\d-", page)


def test_a_script_without_a_place_is_refused(root: Path) -> None:
    (root / "benchmarks/how_new_is_it.py").write_text('"""How new is it?"""\n')
    with pytest.raises(ValueError, match=r"differ in \['how_new_is_it'\]; add a line"):
        benchmarks_page(root)


def test_records_name_no_places_of_a_machine() -> None:
    texts = [str(read(name)) for name in scripts()]
    for text in texts:
        assert not re.search(r"(?<![\w.])/(?:home|root|tmp|usr|work|Users|var)\b", text)
        assert "\x1b" not in text
