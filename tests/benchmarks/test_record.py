"""Records of benchmarks: what is kept, what is left out, and what happens if one fails."""

from __future__ import annotations

import doctest
import platform
import sys
from pathlib import Path

import pytest

from benchmarks import record as module
from benchmarks.record import ROOT, cleaned, main, read, record, scripts, without_paths


def script(root: Path, body: str, name: str = "how_odd") -> None:
    folder = root / "benchmarks"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(f'"""How odd?"""\nimport sys\n{body}\n')


def test_what_is_printed_is_passed_on_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path, "print('rate µ', *sys.argv[1:])\nprint()\nprint('last')")
    assert record("how_odd", ["--tests", "7", "a b"], tmp_path) == 0
    assert capsys.readouterr().out == "rate µ --tests 7 a b\n\nlast\n"
    kept = read("how_odd", tmp_path)
    assert kept is not None
    assert kept.output == "rate µ --tests 7 a b\n\nlast\n"
    assert kept.facts["command"] == "python -m benchmarks.how_odd --tests 7 'a b'"
    assert kept.facts["python"] == platform.python_version()
    assert kept.facts["load"].endswith(" at the end")
    assert set(kept.facts) >= {*module.FACTS, "date", "seconds"}
    assert [path.name for path in (tmp_path / "benchmarks/results").iterdir()] == ["how_odd.txt"]


def test_a_failure_leaves_the_old_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path, "print('good')")
    assert record("how_odd", root=tmp_path) == 0
    script(tmp_path, "print('half')\nsys.exit(3)")
    assert record("how_odd", root=tmp_path) == 3
    kept = read("how_odd", tmp_path)
    assert kept is not None
    assert kept.output == "good\n"
    assert "half" in capsys.readouterr().out


def test_nothing_of_the_machine_gets_into_it(tmp_path: Path) -> None:
    told = "print('made', __file__)\nprint('in', sys.executable)\nprint('/healthz /v1/experiments')"
    script(tmp_path, f"{told}\nimport platform\nprint('on', platform.node())")
    assert record("how_odd", ["--folder", str(tmp_path / "logs")], tmp_path) == 0
    text = (tmp_path / "benchmarks/results/how_odd.txt").read_text()
    assert "made benchmarks/how_odd.py\n" in text
    assert f"in {Path(sys.executable).name}\n" in text
    assert "/healthz /v1/experiments\n" in text
    assert "on localhost\n" in text
    assert str(tmp_path) not in text
    assert str(ROOT) not in text
    assert "command: python -m benchmarks.how_odd --folder logs\n" in text


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        ("\x1b[31mred\x1b[0m\n", "red\n"),
        ("10 %\r20 %\rdone\nnext\n", "done\nnext\n"),
        ("a\n10 %\r20 %\r\nb\n", "a\n20 %\nb\n"),
        ("a\n10 %\r", "a\n"),
        ("\n\na\n\nb  \n\n", "a\n\nb\n"),
    ],
)
def test_colours_and_progress_are_left_out(printed: str, kept: str) -> None:
    assert cleaned(printed) == kept


def test_paths_become_names() -> None:
    assert without_paths(f"{ROOT}/docs/plan.md and {ROOT}") == "docs/plan.md and ."
    assert without_paths("sqlite:////tmp/x/tests.db") == "sqlite:///tests.db"
    assert without_paths("0.5 /s, a/b/c, http://127.0.0.1/v1/x") == (
        "0.5 /s, a/b/c, http://127.0.0.1/v1/x"
    )


def test_list_names_every_script_with_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    assert said.count("?") == len(scripts()) == said.count("recorded")
    for name in scripts():
        assert name in said


def test_wrong_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["how_nice"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
    assert "--list says which there are" in capsys.readouterr().err


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0
