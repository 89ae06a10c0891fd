"""The report on a run: what agrees with the paper, what does not, in one file."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from steadyarm.paper.published import published_counts
from steadyarm.paper.report import report_of, write_report
from steadyarm.paper.specification import Figure, figure_named
from steadyarm.reports.document import text as markdown
from steadyarm.simulation import Results
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


def markdown_report(
    figures: list[Figure], cells: list[Results], *more: Any, **settings: Any
) -> str:
    return markdown(report_of(figures, cells, *more, **settings))


class Page(HTMLParser):
    """Tags that open and close in pairs, the rows of tables and what pictures point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.pictures: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "img":
            self.pictures.append(dict(attrs)["src"] or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data


def test_the_summary_counts_and_names() -> None:
    text = markdown_report(SHOWN, CELLS, "steadyarm reproduce", {"seed": 7}, seconds=3.21)
    assert "4 cells, 44,000 trials, 5.0 seconds of computing; this run took 3.2 seconds." in text
    assert "1 of 3 comparable cells (33.3%) agree" in text
    table = text.split("Cells that do not agree")[1].split("###")[0]
    assert r"| soare\_stationary | budget 1010 | OD-LinBAI | 9,842 of 21,000 |" in table
    assert re.search(
        r"malicious \| \\- \| Peace \| 700 of 1,000 \| 1,000 of 1,000 .*not known", table
    )
    assert "1. OD-LinBAI's error has a closed form here" in table
    assert "| seed | 7 |" in text


def test_rows_tell_the_published_rate_and_mark_what_disagrees() -> None:
    text = markdown_report(SHOWN, CELLS)
    lines = [line for line in text.splitlines() if line.startswith(("| 1010", "| **1010"))]
    assert lines[0] == (
        "| 1010 | P1-RAGE | 1,119 | 21,000 | 0.0533 | 0.0503 to 0.0564 | 0.0533 | 1.000 |"
    )
    assert lines[1].startswith("| **1010** | **OD-LinBAI** | **9,842** |")
    assert lines[2] == r"| 1010 | Steady | 0 | 1,000 | 0.0000 | 0.0000 to 0.0037 | \- | \- |"


def test_the_scatter_table_is_measured() -> None:
    text = markdown_report(SHOWN, CELLS)
    row = next(line for line in text.splitlines() if line.startswith(r"| soare\_stationary | 2 |"))
    mean, rms = (float(entry) for entry in row.split("|")[3:5])
    pooled = (9842 + 9317) / 42_000
    z = (9842 - 9317) / 21_000 / (pooled * (1 - pooled) * 2 / 21_000) ** 0.5
    assert abs(mean - z / 2) < 0.006
    assert abs(rms - z / 2**0.5) < 0.006


def test_without_counterparts_it_says_so() -> None:
    text = markdown_report(
        [figure_named("soare_scale")], [cell("soare_scale", 3, "Steady", 1, 100)]
    )
    assert "None of the cells has a published counterpart" in text
    assert "Scatter" not in text


def test_html_is_one_file_with_the_same_tables(tmp_path: Path) -> None:
    short = write_report(SHOWN, iter(CELLS), tmp_path, "steadyarm reproduce", {"seed": 7})
    assert short == (
        "1 of 3 comparable cells agree with the published counts.\n"
        "These do not (1 for no known reason): soare_stationary budget 1010 OD-LinBAI,"
        " malicious Peace."
    )
    text = (tmp_path / "report.md").read_text()
    assert "](./soare_stationary.png)" in text
    assert "](./malicious.png)" in text
    parsed = Page((tmp_path / "report.html").read_text())
    assert parsed.open == []
    assert len(parsed.pictures) == 2
    assert all(source.startswith("data:image/svg+xml;base64,") for source in parsed.pictures)
    assert {"table", "strong", "style", "title"} <= parsed.tags
    assert {"script", "link"} & parsed.tags == set()
    assert ["1010", "Steady", "0", "1,000", "0.0000", "0.0000 to 0.0037", "-", "-"] in parsed.rows
    rules = len(re.findall(r"^\| :?---", text, flags=re.MULTILINE))
    table_lines = sum(line.startswith("|") for line in text.splitlines())
    assert len(parsed.rows) == table_lines - rules
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [
        ".html",
        ".md",
        ".pdf",
        ".pdf",
        ".png",
        ".png",
    ]


def test_whatever_was_typed_stays_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    write_report(SHOWN, CELLS, tmp_path, f"x ``` {evil}", {f"a|{evil}": "*b* [c](d) `e` | f\ng"})
    parsed = Page((tmp_path / "report.html").read_text())
    assert "script" not in parsed.tags
    assert [f"a|{evil}", "*b* [c](d) `e` | f\ng"] in parsed.rows
