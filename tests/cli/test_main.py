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


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    command = [sys.executable, "-m", "steadyarm.cli.main", "storage", "upgrade", "--storage", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, said = process.communicate()
    assert (said, process.returncode) == (b"", 0)
