"""`steadyarm data yahoo`: the log's files in, a small instance out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import build_parser
from steadyarm.paper import load_yahoo_instance, yahoo_world
from tests.paper.conftest import Week


def command(*words: str) -> None:
    args = build_parser().parse_args(["data", *words])
    args.run(args)


def test_the_command_prints_a_table_and_writes_an_instance(
    week: Week, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "week.npz"
    command("yahoo", str(week.folder), "--out", str(out), "--seed", "2", "--visits-per-day", "300")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["day", "lines", "clicks", "click", "rate", "malformed"]
    assert [line.split()[:3] for line in printed[1:3]] == [
        ["May", "1", "4,000"],
        ["May", "2", "4,000"],
    ]
    assert printed[8].split()[:2] == ["all", "28,000"]
    assert "24 arms in 24 dimensions" in printed[10]
    instance = load_yahoo_instance(out)
    assert (instance.seed, instance.visits_per_day, len(instance.centres)) == (2, 300, 1)
    assert yahoo_world(instance).gap >= 0.05


def test_options(week: Week, tmp_path: Path) -> None:
    out = tmp_path / "week.npz"
    command("yahoo", str(week.folder), "--out", str(out), "--days", "2,4", "--per-day-basis")
    instance = load_yahoo_instance(out)
    assert (instance.days.tolist(), len(instance.centres)) == ([2, 4], 2)


def test_malformed_lines_are_printed(
    week: Week, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "ydata-fp-td-clicks-v1_0.20090501.gz"
    (tmp_path / name).write_bytes((week.folder / name).read_bytes())
    with (tmp_path / name).open("ab") as file:
        file.write(gzip.compress(b"half a line\n"))
    words = ["yahoo", str(tmp_path), "--out", str(tmp_path / "x.npz"), "--days", "1"]
    command(*words)
    assert f"malformed: {name}, line 4001: not 'timestamp article click" in capsys.readouterr().out
    with pytest.raises(sa.InvalidInputError, match="1 of the first 4,001 lines"):
        command(*words, "--max-malformed", "0")


def test_errors_come_before_the_work_or_say_what_to_do(week: Week, tmp_path: Path) -> None:
    with pytest.raises(sa.InvalidInputError, match="is a folder; give --out the name of a file"):
        command("yahoo", str(week.folder), "--out", str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(sa.InvalidInputError, match="cannot be written"):
        command("yahoo", str(week.folder), "--days", "1", "--out", str(tmp_path / "file" / "x"))
    with pytest.raises(sa.InvalidInputError, match="is not a folder"):
        command("yahoo", str(tmp_path / "nowhere"))
