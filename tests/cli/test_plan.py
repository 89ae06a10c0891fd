"""`steadyarm plan`: questions from files and options, and what is said of wrong ones."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.cli.plan import plan
from steadyarm.planning.question import TABLES, TOP
from steadyarm.wording import Progress

GUIDE = Path(__file__).parents[2] / "docs" / "plan.md"

SHORT = "plan --arms 2 --sd 1 --gap 0.5 --traffic 100 --policies g-bai,a/b-test --trials 100"


def test_a_few_options_are_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "plan.png"
    command = [*SHORT.split(), "--error", "0.1", "--rhythm", "weekend", "--plot", str(picture)]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert (
        "2 arms, one arm leads the others by 0.5; noise of sd 1; 100 visits a day." in printed.out
    )
    assert "A/B-test" in printed.out
    assert f"The picture is in {picture}." in printed.out
    stages = printed.err.splitlines()  # no terminal: a line a stage
    assert stages[0].startswith("  0 %: searching the budget of ")
    assert len({stage.split(": ")[1] for stage in stages}) == 8
    assert "%: comparing answers of " in stages[-1]
    assert picture.exists()


def test_options_ask_for_clear_answers(capsys: pytest.CaptureFixture[str]) -> None:
    more = "--clear 0.7 --control B --rhythm weekend"
    assert main([*SHORT.split(), *more.split(), "--format", "json"]) == 0
    question = json.loads(capsys.readouterr().out)["question"]
    assert (question["clear"], question["control"]) == (0.7, "B")
    assert question["rhythm"]["kind"] == "weekend"


def test_json_is_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT.split(), "--format", "json", "--seed", "4", "--jobs", "1"]) == 0
    facts = json.loads(capsys.readouterr().out)
    plan = sa.plan(facts["question"], trials=100, seed=4)
    assert facts == json.loads(json.dumps(plan.to_dict()))
    assert facts["budget"] == plan.budget


def test_the_example_in_the_help_is_a_question(tmp_path: Path) -> None:
    file = tmp_path / "test.toml"
    file.write_text(inspect.cleandoc(plan.__doc__ or "").split("more:", 1)[1])
    question = sa.Question.from_file(file)
    labels = [candidate.label for candidate in question.candidates]
    assert labels == ["Steady", "A/B-test", "OD-LinBAI", "Steady (robustness=0.9)"]
    assert question.rhythm.days(1, question.traffic_per_day) == 14


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--arms is missing"),
        (["--arms", "3", "--gap", "0.1"], "--traffic is missing"),
        (["--arms", "1", "--gap", "0.1", "--traffic", "5"], "--arms is 1"),
        (["--arms", "3", "--gap", "0.1", "--traffic", "5"], "--rate and --sd are both missing"),
        ([*SHORT.split()[1:], "--rate", "0.1"], "--rate and --sd are both given"),
        (["none.toml"], "none.toml does not exist"),
        (["none.toml", "--gap", "3"], "--gap is given beside none.toml"),
        ([*SHORT.split()[1:], "--plot", "plan.gif"], "the picture is plan.gif"),
        (
            [*SHORT.split()[1:], "--rhythm", "tides"],
            "--rhythm is 'tides'; expected one of 'none', 'weekend', 'promotion', 'trend'",
        ),
        ([*SHORT.split()[1:], "--jobs", "0"], "--jobs is 0"),
        ([*SHORT.split()[1:], "--gap", "-1"], "--gap is -1.0; expected a number above 0"),
        ([*SHORT.split()[1:], "--sd", "0"], "--sd is 0.0; expected a number above 0"),
        ([*SHORT.split()[1:], "--traffic", "0"], "--traffic is 0; expected"),
        ([*SHORT.split()[1:], "--error", "0.5"], "--error is 0.5; expected less than 0.5"),
        ([*SHORT.split()[1:], "--clear", "1"], "--clear is 1.0; expected"),
        (
            [*SHORT.split()[1:], "--control", "C"],
            "--control is 'C'; expected one of the arms, A, B",
        ),
        ([*SHORT.split()[1:], "--policies", "stedy"], "--policies: there is no policy 'stedy'"),
        ([*SHORT.split()[1:], "--trials", "5"], "--trials is 5; expected"),
        (
            [*SHORT.split()[1:], "--error", "0.01"],
            "--error: error is 0.01, but 100 simulated tests would have only about 1 wrong "
            "picks, too few to measure their share; expected trials of at least 500, or a "
            "larger error.",
        ),
        (
            ["--arms=3", "--rate=0.05", "--gap=0.1", "--traffic=9", "--rhythm=weekend"],
            "--gap: with this rate and rhythm",
        ),
    ],
)
def test_bad_requests_are_answered(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *options]) == 1
    assert message in capsys.readouterr().err


def test_errors_name_the_file_and_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test.toml"
    file.write_text('traffic_per_day = "many"\n[arms]\none_hot = ["A", "B"]\n')
    assert main(["plan", str(file)]) == 1
    assert f"{file}: " in capsys.readouterr().err


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


def test_what_takes_long_is_heard_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("steadyarm.wording.time.monotonic", lambda: now[0])
    with Progress() as bar:
        for done, second in enumerate((0, 1, 19, 21, 30, 42)):
            now[0] = second
            bar.show(done, 10, "searching")
    said = capsys.readouterr().err.splitlines()
    assert said == ["  0 %: searching", " 30 %: searching", " 50 %: searching"]


def test_a_report_that_cannot_be_written_does_not_cost_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    options = ["--arms", "2", "--sd", "1", "--gap", "0.5", "--traffic", "100", "--trials", "100"]
    report = str(tmp_path / "file" / "plan.html")
    assert main(["plan", *options, "--policies", "g-bai", "--report", report]) == 1
    printed = capsys.readouterr()
    assert "Take G-BAI: " in printed.out
    assert "The report is in" not in printed.out
    assert "cannot be written" in printed.err
