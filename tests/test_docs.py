"""Documents that cannot lie: their Python runs, their output is what is printed."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.policies import POLICIES
from tools.docs.reference import PAGES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BESIDE = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
NOT_FILES = {"report.md", "src/steadyarm/policies/your_policy.py"}  # made by a run, or by you
SNIPPET = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
SNIPPETS = [
    pytest.param(*match.groups(), id=f"{path.relative_to(ROOT)} {number}")
    for path in DOCUMENTS
    for number, match in enumerate(SNIPPET.finditer(path.read_text()))
]


@pytest.mark.parametrize(("code", "expected"), SNIPPETS)
def test_snippets_run_and_print_what_is_written(
    code: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "snippet", "exec", dont_inherit=True), {})
    if expected is not None:
        assert printed.getvalue() == expected


@pytest.mark.parametrize("path", [*DOCUMENTS, *BESIDE], ids=lambda path: str(path.name))
def test_links_and_named_files_exist(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        place = (path.parent / target).resolve()
        made = str(place).removeprefix(f"{ROOT}/docs/") in PAGES
        assert made or "://" in target or place.exists(), f"{path.name} links to {target}"
    for name in re.findall(r"`((?:[\w/]+/)?\w+\.(?:py|md|txt))`", text):
        places = (ROOT / name, ROOT / "src/steadyarm" / name, path.parent / name)
        found = any(place.exists() for place in places) or any(ROOT.glob(f"src/**/{name}"))
        assert found or name in NOT_FILES, f"no file {name}"


@pytest.mark.parametrize("path", [*DOCUMENTS, *BESIDE], ids=lambda path: str(path.name))
def test_lists_and_tables_stand_apart(path: Path) -> None:
    """The site's Markdown, unlike others, takes them for text if they follow a paragraph."""
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    paragraph = r"^(?![-*+#|>]|\d+\. | )[^\n]+\n"
    for start in re.findall(rf"{paragraph}((?:[-*+]|\d+\.) .*|\|.*)", text, flags=re.MULTILINE):
        assert not start, f"a blank line is missing above {start[:40]!r}"


def test_every_policy_has_its_section() -> None:
    page = (ROOT / "docs/research/policies.md").read_text()
    for policy in POLICIES.values():
        if policy is not sa.Steady:  # it has a page
            assert page.count(f"\n\n`{policy.__name__}()`: ") == 1


def test_every_public_name_exists_and_is_documented() -> None:
    assert len(set(sa.__all__)) == len(sa.__all__)
    for name in sa.__all__:
        assert getattr(sa, name).__doc__, f"{name} has no docstring"


def test_late_comebacks_are_those_of_the_record() -> None:
    record = (ROOT / "benchmarks/results/bench_steady_late.txt").read_text()
    page = (ROOT / "docs/research/steady.md").read_text()
    rows = re.findall(r"^(\d\d .+?)  +([\d. ]+?\d)(?:  above.*)?$", record, flags=re.MULTILINE)
    assert len(rows) == 8
    for world, numbers in rows:
        assert f"| {world} | {' | '.join(numbers.split())} |" in page


def test_ratios_in_drifting_worlds_are_those_of_the_record() -> None:
    record = (ROOT / "benchmarks/results/bench_steady.txt").read_text()
    page = (ROOT / "docs/research/steady.md").read_text()
    for group, row in (("tuned on", "25 used for tuning"), ("written", "20 written after")):
        lines = record.split(f"Drifting worlds {group}")[1].split("geometric mean")[0].splitlines()
        rates = [list(map(float, re.findall(r" (0\.\d{4})", line))) for line in lines]
        balanced, steady, fixed, iid, rage = map(np.log, zip(*filter(None, rates), strict=True))
        means = [np.exp(np.mean(steady - other)) for other in (balanced, rage, fixed, iid)]
        assert f"| {row}" in page
        assert " | ".join(f"{mean:.2f}" for mean in means) in page


def test_ratio_to_top_two_is_that_of_the_record() -> None:
    record = (ROOT / "benchmarks/results/bench_steady_top_two.txt").read_text()
    page = " ".join((ROOT / "docs/research/policies.md").read_text().split())
    found = re.search(r"Top-Two: geometric mean (\S+), fewer errors in (\d+) worlds", record)
    worlds = re.search(r"(\d+) worlds: geometric mean", record)
    assert found is not None
    assert worlds is not None
    ratio, won, all_worlds = found[1], int(found[2]), int(worlds[1])
    said = f"Of {all_worlds} held-out worlds whose arms share nothing it has the smaller error in"
    assert f"{said} {all_worlds - won}; Steady makes {ratio} times its errors." in page


def test_errors_in_the_papers_settings_are_those_of_the_record() -> None:
    page = (ROOT / "docs/research/steady.md").read_text()
    with (ROOT / "benchmarks/results/beyond_paper.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    columns = ["P1-RAGE", "P1-RAGE blocks", "G-BAI blocks", "Steady fixed", "Steady iid", "Steady"]
    rates: dict[tuple[str, str], dict[str, float]] = {}
    for row in records:
        rate = max(int(row["errors"]), 0.5) / int(row["trials"])
        rates.setdefault((row["figure"], row["value"]), {})[row["policy"]] = rate
    for row_name, setting in (
        ("Soare's arms, nothing moves, T = 1010", ("soare_stationary", "1010")),
        ("16 layouts, nothing moves", ("multivariate_stationary", "")),
        ("16 layouts, scale 3", ("multivariate_scale", "3")),
        ("16 layouts, scale 6", ("multivariate_scale", "6")),
        ("16 layouts, scale 8", ("multivariate_scale", "8")),
        ("16 layouts, period 1800", ("multivariate_period", "1800")),
        ("Soare's arms, scale 9", ("soare_scale", "9")),
        ("malicious switch", ("malicious", "")),
    ):
        line = re.search(rf"^\| {re.escape(row_name)} \| (.*) \|$", page, re.MULTILINE)
        assert line is not None
        for text, policy in zip(line[1].split(" | "), columns, strict=True):
            unit = 10.0 ** (1 - len(text))  # of the last digit
            assert abs(float(text) - rates[setting][policy]) <= 0.51 * unit, (row_name, policy)
    hard = [found for found in rates.values() if found["P1-RAGE"] > 0.002]
    ratios = [
        np.exp(np.mean([np.log(found[policy] / found["P1-RAGE"]) for found in hard]))
        for policy in columns[1:]
    ]
    means = " | ".join(f"{ratio:.3f}" for ratio in ratios)
    assert f"ratios to P1-RAGE, {len(hard)} settings | 1 | {means} |" in page
