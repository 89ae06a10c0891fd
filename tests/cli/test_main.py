"""The command line as a whole: mistakes are named, and readers may leave early."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steadyarm.cli.main import main
from tests.analysis.logs import random_rows, write_csv
from tests.cli.conftest import TOML, Run

PLAN = "plan --arms 2 --sd 1 --gap 0.5 --traffic 100 --policies g-bai,a/b-test"
REFUSED = (
    ("plan", "--arms is required"),
    ("plan --arms 3 --gap 0.1 --traffic 5", "Give either --rate"),
    (f"{PLAN} --rate 0.1", "Give either --rate"),
    ("plan none.toml", "none.toml cannot be read"),
    ("plan none.toml --gap 3", "--gap cannot be used with a file"),
    (f"{PLAN} --plot plan.gif", "the picture is plan.gif"),
    (f"{PLAN} --rhythm tides", "--rhythm is 'tides'; expected one of 'none', 'weekend'"),
    (f"{PLAN} --jobs 0", "--jobs is 0"),
    (f"{PLAN} --gap -1", "--gap is -1.0; expected a number above 0"),
    (f"{PLAN} --policies stedy", "--policies: there is no policy 'stedy'"),
    ("reproduce soare", "no figure 'soare'"),
    ("reproduce --policies oracle", "no policy 'oracle'"),
    ("reproduce --trials 0", "--trials is 0"),
    ("reproduce yahoo", "set STEADYARM_YAHOO to its file"),
    ("simulate", "Name an environment with --world"),
    ("simulate none.toml", "none.toml cannot be read: No such file"),
    ("simulate --world soare_oscilating", "; did you mean soare_oscillating?"),
    ("simulate --world soare_oscillating --set omga=0.5", "; did you mean omega?"),
    ("simulate --world soare_stationary --set budget", "must have the form KEY=VALUE"),
    ("analyze log.csv --column arm", "must have the form OURS=THEIRS"),
    ("analyze log.csv --metric reward --window 7d", "--window needs --events TABLE"),
    ("analyze log.csv --metric rewrd", "has no column 'rewrd'"),
    ("analyze log.csv --report report.pdf", "use a file name that ends in .html"),
    ("analyze log.csv --report log.csv/report.html", "cannot be written"),
    ("report nobody", "'nobody'"),
    ("report shop --out report.pdf", "use a file name that ends in .html. To get a PDF"),
    ("report shop --storage sqlite:///none.db", "has no experiments"),
    ("token create --name me --scope admin --expires soon", "--expires"),
    ("experiment create test.toml", "'shop'"),
    ("experiment create none.toml", "none.toml"),
    ("experiment create untitled.toml", "untitled.toml has no name"),
    ("experiment create half.toml", "half.toml cannot be read as TOML"),
    ("experiment create typo.toml", "did you mean budget?"),
    ("experiment create missing.toml", "`missing` is required unless"),
    ("experiment recommend shop --level 2", "level is 2"),
    ("experiment export shop log.txt", "ends with '.txt'"),
)
FILES = {
    "half.toml": "name = ",
    "untitled.toml": 'arms = ["A", "B"]\nbudget = 9',
    "typo.toml": TOML + "buget = 7",
    "missing.toml": 'name = "few"\narms = ["A", "B"]\nbudget = 19\n',
}


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_mistakes_are_named(
    command: str,
    message: str,
    shop: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STEADYARM_YAHOO", raising=False)
    if "log.csv" in command:
        write_csv(Path("log.csv"), random_rows(600))
    for name in set(command.split()) & FILES.keys():
        Path(name).write_text(FILES[name])
    before = set(Path().iterdir())
    assert main(command.split()) == 1
    assert message in capsys.readouterr().err
    assert set(Path().iterdir()) - before <= {Path("steadyarm-results")}


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        ("plan --arm 4", "steadyarm plan ", "arguments: --arm; did you mean --arms?"),
        ("experiment list nothing", "steadyarm experiment list ", "arguments: nothing."),
        ("experimnt", "steadyarm ", "; did you mean experiment?"),
        ("plan --format xml", "steadyarm plan ", "not valid; expected one of: text, json."),
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
