from __future__ import annotations

from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.demo import run_live, weekly_world
from steadyarm.cli.main import main


def test_the_demo_prints_a_verdict_and_writes_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), "--trials", "50"]) == 0
    printed = capsys.readouterr().out
    assert "Verdict: show the layout" in printed
    assert "Steady" in printed
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_demos_world_moves_and_misleads_elimination() -> None:
    world = weekly_world()
    weekend, weekday = world.means[0], world.means[5000]
    assert weekend.argmax() != world.best_arm == weekday.argmax()
    steady = sa.simulate(sa.Steady(), world, trials=300, seed=2)
    misled = sa.simulate(sa.Peace(), world, trials=300, seed=2)
    assert steady.interval(0.999)[1] < 0.1
    assert misled.interval(0.999)[0] > 0.7


def test_the_live_run_is_reproducible() -> None:
    world = weekly_world()
    assert run_live(sa.Peace(), world, 5).verdict.arm == run_live(sa.Peace(), world, 5).verdict.arm


def test_errors_are_printed_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--trials", "0", "--out", str(tmp_path)]) == 1
    assert (
        "steadyarm: --trials is 0; expected a whole number of at least 1."
        in capsys.readouterr().err
    )


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "demo" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([])
