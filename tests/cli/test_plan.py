"""`steadyarm plan`: questions from files and options, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.planning.question import TABLES, TOP
from tests.reports.worlds import Elements

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
