"""`steadyarm simulate`: what the library says, from options and from files."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.cli.research import simulate
from steadyarm.environments import soare_oscillating


def test_the_command_line_says_what_the_library_says(capsys: pytest.CaptureFixture[str]) -> None:
    command = "simulate --policy p1-rage --published --world soare_oscillating --set scale=3"
    assert main([*command.split(), "--trials", "300", "--seed", "4", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    world = soare_oscillating(scale=3)
    alone = sa.simulate(sa.P1RAGE.published(), world, trials=300, seed=4)
    assert facts["errors"] == alone.errors
    assert tuple(facts["interval"]) == alone.interval()
    assert facts["best_arm"] == "e10"
    assert facts["policy"]["max_phases"] == 15


def test_the_example_in_the_help_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "test.toml"
    file.write_text(inspect.cleandoc(simulate.__doc__ or "").split(":\n", 1)[1])
    assert main(["simulate", str(file), "--trials", "200"]) == 0
    printed = capsys.readouterr().out
    assert "P1-RAGE on 6 arms, budget 5,000" in printed
    assert "of 200 trials" in printed


def test_options_go_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "test.toml"
    file.write_text('trials = 10\nseed = 3\n[world]\nname = "soare_stationary"\nbudget = 50\n')
    options = ["--policy", "uniform", "--set", "budget=20", "--format", "json"]
    assert main(["simulate", str(file), *options]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["budget"], facts["trials"], facts["seed"]) == (20, 10, 3)
    assert facts["policy"]["name"] == "Uniform"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no world is given"),
        (["none.toml"], "none.toml cannot be read: No such file"),
        (["--world", "mars"], "no world 'mars'"),
        (["--world", "soare_stationary", "--policy", "oracle"], "no policy 'oracle'"),
        (["--world", "soare_stationary", "--set", "budget"], "not of the form KEY=VALUE"),
        (["--world", "soare_stationary", "--set", "size=3"], "'size'"),
        (["--world", "soare_stationary", "--trials", "0"], "trials is 0"),
        (["--world", "soare_oscillating", "--set", "scale=abc"], "scale is 'abc'"),
        (["--world", "soare_oscillating", "--set", "budget=1.5"], "budget is 1.5"),
        (["--world", "soare_oscillating", "--set", "budget=-1"], "budget is -1"),
        (["--world", "published_multivariate", "--set", "series=foo"], "series is 'foo'"),
    ],
)
def test_bad_requests_are_answered(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["trails = 20", 'world = "soare_stationary"', 'trials = "x"'])
def test_unknown_settings_in_a_file_are_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test.toml"
    file.write_text(text)
    assert main(["simulate", str(file)]) == 1
    assert f"{text.split()[0]} = " in capsys.readouterr().err
