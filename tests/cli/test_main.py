"""The command line as a whole: typing errors are told, and readers may leave early."""

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


def test_policies_and_worlds_have_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--policy", "stedy", "--world", "soare_oscillating"]) == 1
    assert "there is no policy 'stedy'" in (said := capsys.readouterr().err)
    assert said.endswith("; did you mean steady?\n")
    assert main(["simulate", "--policy", "steady", "--world", "soare_oscilating"]) == 1
    assert capsys.readouterr().err.endswith("; did you mean soare_oscillating?\n")


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    command = [sys.executable, "-m", "steadyarm.cli.main", "storage", "upgrade", "--storage", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, said = process.communicate()
    assert (said, process.returncode) == (b"", 0)
