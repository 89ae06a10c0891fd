"""The report on a run: what agrees with the paper, what does not, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steadyarm.paper.report import report_of, write_report
from steadyarm.paper.specification import Figure, figure_named, published_counts
from steadyarm.simulation import Results
from tests.reports.worlds import Elements
from tests.simulation.own import counted


def cell(figure: str, value: float | None, policy: str, errors: int, trials: int) -> Results:
    parameter = "" if value is None else "budget"
    return counted(figure, parameter, value, policy, trials, errors, 0.00999167, 1.25)


THEIRS = published_counts()["soare_stationary", 1010, "P1-RAGE"]
CELLS = [
    cell("soare_stationary", 1010, "P1-RAGE", THEIRS.errors, THEIRS.trials),
    cell("soare_stationary", 1010, "OD-LinBAI", 9842, 21_000),
    cell("soare_stationary", 1010, "Steady", 0, 1000),
    cell("malicious", None, "Peace", 700, 1000),
]

SHOWN = [figure_named("soare_stationary"), figure_named("malicious")]


def report(figures: list[Figure], cells: list[Results], *more: Any, **settings: Any) -> Elements:
    return Elements(report_of(figures, cells, *more, **settings))


def test_the_summary_counts_and_names() -> None:
    found = report(SHOWN, CELLS, "steadyarm reproduce", {"seed": 7}, seconds=3.21)
    text = found.text
    assert "4 cells, 44,000 trials, 5.0 seconds of computing; this run took 3.2 seconds." in text
    assert "1 of 3 comparable cells (33.3%) agree" in text
    first, second = found.table("Cells that do not agree")
    assert first[:4] == ["soare_stationary", "budget 1010", "OD-LinBAI", "9,842 of 21,000"]
    assert second[:5] == ["malicious", "-", "Peace", "700 of 1,000", "1,000 of 1,000"]
    assert found.table("Settings") == [["seed", "7"]]


def test_rows_tell_the_published_rate_and_mark_what_disagrees() -> None:
    page = report_of(SHOWN[:1], CELLS)
    rows = Elements(page).table("Errors of each policy")
    assert rows[0] == [
        *("1010", "P1-RAGE", "1,119", "21,000", "0.0533", "0.0503 to 0.0564", "0.0533", "1.000"),
    ]
    assert rows[2] == ["1010", "Steady", "0", "1,000", "0.0000", "0.0000 to 0.0037", "-", "-"]
    wrong = page.split('<tr class="wrong">')
    assert len(wrong) == 2
    assert "9,842" in wrong[1].partition("</tr>")[0]


def test_without_counterparts_it_says_so() -> None:
    found = report([figure_named("soare_scale")], [cell("soare_scale", 3, "Steady", 1, 100)])
    assert "None of the cells has a published counterpart" in found.text


def test_it_is_one_file_beside_its_pictures(tmp_path: Path) -> None:
    short = write_report(SHOWN, iter(CELLS), tmp_path, "steadyarm reproduce", {"seed": 7})
    assert short == (
        "1 of 3 comparable cells agree with the published counts.\n"
        "These do not: soare_stationary budget 1010 OD-LinBAI, malicious Peace."
    )
    found = Elements((tmp_path / "report.html").read_text())
    assert found.open == []
    assert len(found.pictures) == 2
    names = ("malicious", "soare_stationary")
    pictures = {f"{name}.{kind}" for name in names for kind in ("png", "pdf")}
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", *pictures}


def test_whatever_was_typed_stays_text() -> None:
    evil = "<script>alert(1)</script>"
    found = report(SHOWN, CELLS, f"x ``` {evil}", {f"a|{evil}": "*b* [c](d) `e` | f\ng"})
    assert "script" not in {tag for tag, _ in found.found}
    assert [f"a|{evil}", "*b* [c](d) `e` | f\ng"] in found.table("Settings")
