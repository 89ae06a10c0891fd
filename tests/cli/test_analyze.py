"""`steadyarm analyze`: the library's verdict, printed; arms and columns as they are typed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.analyze import _without_password
from steadyarm.cli.main import main
from tests.analysis.logs import random_rows, write_csv
from tests.analysis.tables import random_tables, write_csvs
from tests.reports.worlds import Elements

ROWS = random_rows(600)


def test_the_command_line_says_what_the_library_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_csv(tmp_path / "log.csv", ROWS, ("day", "unit", "variant", "p", "seconds"))
    names = {"timestamp": "day", "arm": "variant", "probability": "p", "reward": "seconds"}
    options = [f"--column={ours}={theirs}" for ours, theirs in names.items()]
    options += ["--direction", "minimize", "--period", "shares:4"]
    assert main(["analyze", str(path), *options, "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    alone = sa.analyze(path, columns=sa.Columns(**names), direction="minimize", period="shares:4")
    near = partial(pytest.approx, rel=1e-9, abs=1e-12)  # DuckDB's threads add up in any order
    same = json.loads(json.dumps(alone.to_dict()), parse_float=lambda text: near(float(text)))
    assert facts == same
    assert (facts["recommended"], len(facts["drift"]["periods"])) == ("A", 4)


def test_text_and_report_begin_with_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, path = write_csv(tmp_path / "log.csv", ROWS), tmp_path / "new" / "report.html"
    assert main(["analyze", str(log), "--level", "0.9", "--report", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("The best variant is C. At level 90 % ")
    for part in ("600 rows", "plain mean", "Health: ok", "Drift: ", "Periods are days"):
        assert part in printed
    page = Elements(path.read_text())
    command = f"steadyarm analyze {log} --level 0.9 --report {path}"
    assert {printed.splitlines()[0] in page.text, command in page.text} == {True}


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("postgresql://me:a@b:c@host/shop", "postgresql://me:***@host/shop"),
        ("postgresql://host/shop?password=secret&x=1", "postgresql://host/shop?password=***&x=1"),
        ("postgresql://me@host:5432/shop", "postgresql://me@host:5432/shop"),
        ("2026-03-01 12:00", "2026-03-01 12:00"),
    ],
)
def test_reports_show_no_passwords(typed: str, shown: str) -> None:
    assert _without_password(typed) == shown


def test_unknown_columns_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_csv(tmp_path / "log.csv", ROWS)
    for pair, message in (
        ("arm", "must have the form OURS=THEIRS"),
        ("variant=arm", "Our name comes first: arm=variant"),
        ("rewards=y", "did you mean reward?"),
        ("event=y", "'event' is not a column of a log"),
    ):
        assert main(["analyze", str(log), "--column", pair]) == 1
        assert message in capsys.readouterr().err


def test_two_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exposures, events = write_csvs(tmp_path, *random_tables(300))
    metrics = ["purchase", "revenue = sum(purchase) within 3 days", "basket = revenue / purchase"]
    options = [word for metric in metrics for word in ("--metric", metric)]
    options += ["--window", "2 days"]
    alone = sa.analyze(exposures, events=sa.Events(events, metrics, "2 days"))
    assert main(["analyze", str(exposures), "--events", str(events), *options]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(alone.summary)
    for name in ("revenue", "basket"):
        assert f"\n{name} of {alone.metrics[name].rows} units: " in printed
