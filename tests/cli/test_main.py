"""The command line as a whole: typing errors are named, and readers may leave early."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steadyarm.cli.main import main


def test_options_are_taken_by_their_whole_names_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "--arm", "4"])
    assert "--arm" in capsys.readouterr().err


def test_what_was_probably_meant_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "--arms", "4", "--rythm", "weekend"])
    said = capsys.readouterr().err
    assert said.startswith("usage: steadyarm plan ")
    assert said.endswith("unrecognized arguments: --rythm; did you mean --rhythm?\n")
    with pytest.raises(SystemExit, match="2"):
        main(["experiment", "list", "nothing"])
    said = capsys.readouterr().err
    assert said.startswith("usage: steadyarm experiment list ")
    assert said.endswith("unrecognized arguments: nothing.\n")


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["experimnt"])
    assert capsys.readouterr().err.endswith("; did you mean experiment?\n")
    with pytest.raises(SystemExit, match="2"):
        main(["experiment", "crate", "test.toml"])
    assert capsys.readouterr().err.endswith("; did you mean create?\n")
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "--format", "xml"])
    assert "--format: there is no 'xml'; expected one of: text, json.\n" in capsys.readouterr().err


def test_policies_and_worlds_have_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--policy", "stedy", "--world", "soare_oscillating"]) == 1
    assert "there is no policy 'stedy'" in (said := capsys.readouterr().err)
    assert said.endswith("; did you mean steady?\n")
    assert main(["simulate", "--policy", "steady", "--world", "soare_oscilating"]) == 1
    assert capsys.readouterr().err.endswith("; did you mean soare_oscillating?\n")
    assert main(["simulate", "--world", "soare_oscillating", "--set", "omga=0.5"]) == 1
    assert capsys.readouterr().err.endswith("; did you mean omega?\n")


def test_settings_of_a_policy_have_near_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test.toml"
    file.write_text('[policy]\nname = "steady"\nrobustnes = 0.5\n')
    assert main(["simulate", str(file), "--world", "soare_oscillating"]) == 1
    said = capsys.readouterr().err
    assert "Steady has no setting 'robustnes'; its settings are " in said
    assert said.endswith("; did you mean robustness?\n")


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    command = [sys.executable, "-m", "steadyarm.cli.main", "storage", "upgrade", "--storage", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, said = process.communicate()
    assert (said, process.returncode) == (b"", 0)
