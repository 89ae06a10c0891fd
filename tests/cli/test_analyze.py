"""`steadyarm analyze`: the library's verdict, printed; arms and columns as they are typed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.analyze import _without_password, read_arms
from steadyarm.cli.main import main
from tests.analysis.logs import random_rows, write_csv, write_sqlite
from tests.analysis.tables import random_tables, write_csvs, write_sqlite_tables
from tests.reports.worlds import Elements

ROWS = random_rows(600)


def test_text_begins_with_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "log.csv", ROWS)
    assert main(["analyze", str(path), "--level", "0.9"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("The best variant is C. At level 90 % ")
    for part in ("600 rows", "plain mean", "Health: ok", "Drift: ", "Periods are days"):
        assert part in printed


def test_the_command_line_says_what_the_library_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_csv(tmp_path / "log.csv", ROWS, ("day", "unit", "variant", "p", "seconds"))
    names = {"timestamp": "day", "arm": "variant", "probability": "p", "reward": "seconds"}
    options = [f"--column={ours}={theirs}" for ours, theirs in names.items()]
    options += ["--direction", "minimize", "--period", "shares:4"]
    assert main(["analyze", str(path), *options, "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    alone = sa.analyze(path, columns=dict(names), direction="minimize", period="shares:4")
    assert facts == json.loads(json.dumps(alone.to_dict()))
    assert facts["recommended"] == "A"
    assert len(facts["drift"]["periods"]) == 4
    assert [arm["arm"] for arm in facts["arms"]] == ["A", "B", "C"]
    assert facts["health"]["status"] == "ok"


def test_databases_and_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_sqlite(tmp_path / "log.db", ROWS)
    for where in (str(path), f"sqlite://{path}"):
        query = "select * from log where unit <> 'u0'"
        assert main(["analyze", where, "--query", query, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 599


def test_reports_hold_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_csv(tmp_path / "log.csv", ROWS)
    path = tmp_path / "new" / "report.html"
    assert main(["analyze", str(log), "--report", str(path)]) == 0
    verdict = capsys.readouterr().out.splitlines()[0]
    html = path.read_text()
    page, found = Elements(html), sa.analyze(log)
    for part in (
        verdict,
        "Can the log be trusted? ok",
        found.intervals.assumption,
        f"steadyarm analyze {log} --report {path}",
    ):
        assert part in page.text
    estimates = page.table("Time-averaged reward")
    assert ["C", f"{found.counts[2]}", f"{found.estimates[2]:.4g}"] in [r[:3] for r in estimates]
    assert page.table("What was checked")[0][:2] == ["ok", "assignments"]
    assert page.table("Estimates in every period")[0][:2] == ["2026-03-01", "120"]
    assert len(page.pictures) == 2
    page_alone = re.sub(r'src="data:[^"]*"', "", html).replace(str(log), "")
    for outside in ("http", "src=", "<script", "<link"):
        assert outside not in page_alone
    assert main(["analyze", str(log), "--report", "report.pdf"]) == 1
    assert "expected a name in .html" in capsys.readouterr().err
    assert main(["analyze", str(log), "--report", str(log / "report.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_names_in_reports_mean_themselves(tmp_path: Path) -> None:
    rows = [replace(row, arm=f"<b>{row.arm}|*x*") for row in ROWS]
    log, page = write_csv(tmp_path / "log.csv", rows), tmp_path / "report.html"
    assert main(["analyze", str(log), "--report", str(page)]) == 0
    assert "&lt;b&gt;C|*x*</td>" in page.read_text()


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("postgresql://me:secret@host/shop", "postgresql://me:***@host/shop"),
        ("postgresql://me:a@b:c@host/shop", "postgresql://me:***@host/shop"),
        ("postgresql://host/shop?password=secret&x=1", "postgresql://host/shop?password=***&x=1"),
        ("postgresql://me@host:5432/shop", "postgresql://me@host:5432/shop"),
        ("2026-03-01 12:00", "2026-03-01 12:00"),
    ],
)
def test_reports_show_no_passwords(typed: str, shown: str) -> None:
    assert _without_password(typed) == shown


def test_arms_from_files(tmp_path: Path) -> None:
    toml = tmp_path / "arms.toml"
    toml.write_text('[arms]\nfactorial = { a = ["x", "y"], b = ["x", "y"] }\ninteractions = 1\n')
    assert read_arms(toml).rank == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.toml", None, "cannot be read"),
        ("arms.toml", "arms = [", "cannot be read as TOML"),
        ("arms.toml", "x = 1", "has no table [arms]"),
    ],
)
def test_bad_files_of_arms_are_answered(
    name: str, text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    log = write_csv(tmp_path / "log.csv", ROWS)
    assert main(["analyze", str(log), "--arms", str(file)]) == 1
    assert message in capsys.readouterr().err


def test_bad_columns_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_csv(tmp_path / "log.csv", ROWS)
    assert main(["analyze", str(log), "--column", "arm"]) == 1
    assert "not of the form OURS=THEIRS" in capsys.readouterr().err


def test_importing_steadyarm_imports_no_extra() -> None:
    import subprocess
    import sys

    code = (
        "import sys, steadyarm; print({'ibis', 'duckdb', 'pandas', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_two_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exposures, events = random_tables(300)
    files = write_csvs(tmp_path, exposures, events)
    database = write_sqlite_tables(tmp_path / "shop.db", exposures, events)
    metrics = ["purchase", "revenue = sum(purchase) within 3 days", "basket = revenue / purchase"]
    options = [word for metric in metrics for word in ("--metric", metric)]
    options += ["--window", "2 days", "--contaminated", "drop"]
    asked = sa.Events(files[1], metrics, "2 days", "drop")
    alone = sa.analyze(files[0], events=asked)
    tables = [str(files[0]), "--events", str(files[1])]
    assert main(["analyze", *tables, *options, "--format", "json"]) == 0
    found, true = (
        json.loads(text, parse_float=lambda digits: float(f"{float(digits):.9g}"))
        for text in (capsys.readouterr().out, json.dumps(alone.to_dict()))
    )
    assert found == true  # but for the order in which threads add values up
    tables = [str(database), "--query", "exposures", "--events", "select * from events"]
    assert main(["analyze", *tables, *options]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(alone.summary)
    for name in ("revenue", "basket"):
        assert f"\n{name} of {alone.metrics[name].rows} units: " in printed
    assert main(["analyze", str(files[0]), "--metric", "purchase"]) == 1
    assert "give --events TABLE, too" in capsys.readouterr().err
