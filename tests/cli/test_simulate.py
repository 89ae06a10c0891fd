"""`steadyarm simulate`: what the library says, from options and from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
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


def test_options_go_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "test.toml"
    file.write_text('trials = 10\nseed = 3\n[world]\nname = "soare_stationary"\nbudget = 50\n')
    options = ["--policy", "uniform", "--set", "budget=20", "--format", "json"]
    assert main(["simulate", str(file), *options]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["budget"], facts["trials"], facts["seed"]) == (20, 10, 3)
    assert facts["policy"]["name"] == "Uniform"
