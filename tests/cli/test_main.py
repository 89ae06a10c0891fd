"""The command line as a whole: typing errors are named, and readers may leave early."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steadyarm.cli.main import main


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        ("plan --arm 4", "steadyarm plan ", "arguments: --arm; did you mean --arms?"),
        ("experiment list nothing", "steadyarm experiment list ", "arguments: nothing."),
        ("experimnt", "steadyarm ", "; did you mean experiment?"),
        (
            "plan --format xml",
            "steadyarm plan ",
            "not valid; expected one of: text, json.",
        ),
        ("", "steadyarm ", "the following arguments are required: COMMAND"),
    ],
)
def test_typing_errors_are_named(
    words: str, usage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    printed = capsys.readouterr().err
    assert printed.startswith(f"usage: {usage}")
    assert printed.endswith(f"{message}\n")


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    command = [sys.executable, "-m", "steadyarm", "storage", "upgrade", "--storage", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, said = process.communicate()
    assert (said, process.returncode) == (b"", 0)
