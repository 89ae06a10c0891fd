"""`steadyarm demo`, `plan`, `simulate`, `reproduce` and `analyze`: what is printed and left."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest

import steadyarm as sa
from steadyarm.cli.analyze import _without_password
from steadyarm.cli.demo import weekly_world
from steadyarm.cli.main import build_parser, main
from steadyarm.cli.research import _points
from steadyarm.environments import soare_oscillating
from steadyarm.paper import (
    FIGURES,
    published_counts,
    read_yahoo,
    yahoo_instance,
)
from steadyarm.planning.question import TABLES, TOP
from tests.analysis.logs import random_rows, write_csv
from tests.analysis.tables import random_tables, write_csvs
from tests.paper.clicks import write_log
from tests.reports.worlds import Elements


def test_the_demo_prints_a_verdict_writes_a_picture_and_leaves_an_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), "--trials", "5"]) == 0
    printed = capsys.readouterr().out
    assert "Verdict: show the layout" in printed
    assert "Steady" in printed
    assert "computed anew: all agree." in printed
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    url = f"sqlite:///{tmp_path}/demo.db"
    command = next(line for line in printed.splitlines() if " experiment show " in line)
    script, *words = command.split()
    assert words == f"experiment show demo --storage {url}".split()
    assert script == "steadyarm" or Path(script).is_file()
    assert "open http://127.0.0.1:8000/experiments/demo" in printed
    assert main(words) == 0
    assert "demo: stopped, created 2026-01-03" in capsys.readouterr().out
    with sa.load_experiment("demo", url) as experiment:
        assert sum(experiment.status().rewarded) == 14_000


def test_the_demo_serves_a_test_that_visitors_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    program = f"from steadyarm.cli.demo import serve; serve('sqlite:///{tmp_path}/demo.db', 1)"
    variables = {"STEADYARM_PORT": str(port), "STEADYARM_WARM": "false"}
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | variables)
    try:
        rewarded = 0
        for _ in range(600):
            time.sleep(0.1)
            with suppress(httpx2.TransportError):
                shown = httpx2.get(f"http://127.0.0.1:{port}/v1/experiments/checkout").json()
                rewarded = shown.get("totals", {}).get("rewarded", 0)
            if rewarded:
                break
        assert rewarded
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_the_demos_world_moves_and_misleads_elimination() -> None:
    world = weekly_world()
    weekend, weekday = world.means[0], world.means[5000]
    assert weekend.argmax() != world.best_arm == weekday.argmax()
    steady = sa.simulate(sa.Steady(), world, trials=60, seed=2)
    misled = sa.simulate(sa.Peace(), world, trials=60, seed=2)
    assert steady.interval(0.999)[1] < 0.25
    assert misled.interval(0.999)[0] > 0.5


GUIDE = Path(__file__).parents[2] / "docs/run/plan.md"

SHORT = "plan --arms 2 --sd 1 --gap 0.5 --traffic 100 --policies g-bai,a/b-test --trials 100"


def test_a_few_options_are_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture, report = tmp_path / "plan.png", tmp_path / "plan.html"
    command = f"{SHORT} --error 0.1 --rhythm weekend --plot {picture} --report {report}"
    assert main(command.split()) == 0
    printed = capsys.readouterr()
    question = "2 arms, one arm leads the others by 0.5; noise of sd 1; 100 visits a day."
    assert question in printed.out
    assert f"The picture is in {picture}.\n\nThe report is in {report}.\n" in printed.out
    stages = printed.err.splitlines()  # no terminal: a line a stage
    assert stages[0].startswith("  0 %: searching the budget of ")
    assert "%: comparing answers of " in stages[-1]
    assert picture.exists()
    page = Elements(report.read_text())
    assert f"steadyarm {command}" in page.code
    assert page.text.startswith("How long the test must be")


def test_json_is_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    more = "--clear 0.7 --control B --rhythm weekend --format json --seed 4 --jobs 1 --gap 1"
    assert main([*SHORT.split(), *more.split(), "--policies", "g-bai"]) == 0
    facts = json.loads(capsys.readouterr().out)
    question = facts["question"]
    given = question["clear"], question["control"], question["rhythm"]["kind"]
    assert given == (0.7, "B", "weekend")
    assert facts == json.loads(json.dumps(sa.plan(question, trials=100, seed=4).to_dict()))


def test_the_guide_documents_every_setting_and_its_question_is_one(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    for key in (*TOP, *(key for keys in TABLES.values() for key in keys or ())):
        assert f"`{key}`" in text, f"{key} is not documented"
    file = tmp_path / "checkout.toml"
    file.write_text(text.split("```toml\n")[1].split("```")[0])
    question = sa.Question.from_file(file)
    described = text.split("--plot plan.png\n```\n\n```text\n")[1]
    assert described.startswith(question.describe())
    for candidate in question.candidates:
        assert candidate.label in described


def test_simulate_says_what_the_library_says(capsys: pytest.CaptureFixture[str]) -> None:
    command = "simulate --policy p1-rage --published --world soare_oscillating --set scale=3"
    assert main([*command.split(), "--trials", "300", "--seed", "4", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    world = soare_oscillating(scale=3)
    alone = sa.simulate(sa.P1RAGE.published(), world, trials=300, seed=4)
    assert facts["errors"] == alone.errors
    assert tuple(facts["interval"]) == alone.interval()
    assert facts["best_arm"] == "e10"
    assert facts["policy"]["max_phases"] == 15


def test_options_go_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "test.toml"
    file.write_text('trials = 10\nseed = 3\n[world]\nname = "soare_stationary"\nbudget = 50\n')
    options = ["--policy", "uniform", "--set", "budget=20", "--format", "json"]
    assert main(["simulate", str(file), *options]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["budget"], facts["trials"], facts["seed"]) == (20, 10, 3)
    assert facts["policy"]["name"] == "Uniform"


def test_a_run_leaves_results_pictures_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "malicious", "soare-stationary", "--trials", "60", "--seed", "2"]
    assert main([*command, "--policies", "P1RAGE,peace", "--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "cells.jsonl",
        "results.csv",
        "report.html",
        *("malicious.png", "malicious.pdf", "soare_stationary.png", "soare_stationary.pdf"),
    }
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (1 + 6)
    assert {row["policy"] for row in rows} == {"P1-RAGE", "Peace"}
    assert {row["trials"] for row in rows} == {"60"}
    assert "Report, pictures and results.csv are in" in capsys.readouterr().out


def test_published_trials_are_those_of_the_paper() -> None:
    args = build_parser().parse_args(["reproduce", "--published-trials"])
    figures = [figure for figure in FIGURES.values() if figure.by_default]
    points = _points(figures, args)
    published = published_counts()
    assert len(points) == 288
    assert sum(trials for *_, trials in points) == 1_096_000
    for figure, value, policy, trials in points:
        assert trials == published[figure.name, value, policy].trials


def test_yahoo_runs_from_an_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ["--out", str(tmp_path / "out")]
    write_log(tmp_path / "log", lines=3000, seed=1)
    instance = tmp_path / "instance.npz"
    yahoo_instance(read_yahoo(tmp_path / "log")).save(instance)
    monkeypatch.setenv("STEADYARM_YAHOO", str(instance))
    assert main(["reproduce", "yahoo", "--trials", "20", "--policies", "g-bai", *out]) == 0
    assert (tmp_path / "out" / "yahoo.png").exists()


ROWS = random_rows(600)


def test_analyze_says_what_the_library_says(
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
    for path, header in ((exposures, "who,begin,shown,chance"), (events, "login,begin,what,euros")):
        path.write_text("\n".join([header, *path.read_text().splitlines()[1:]]))
    names = ["exposures.unit=who", "events.unit=login", "timestamp=begin", "arm=shown"]
    names += ["probability=chance", "event=what", "value=euros"]
    options += [f"--column={name}" for name in names]
    assert main(["analyze", str(exposures), "--events", str(events), *options]) == 0
    assert capsys.readouterr().out.startswith(alone.summary)
