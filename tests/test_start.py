"""What is imported when: help needs nothing, and visits and rewards need no compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.environments.families import WORLDS
from steadyarm.paper import FIGURES
from steadyarm.policies import POLICIES

RUN = """
import sys
from steadyarm.cli.main import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit:
        pass
print(*(name for name in ("numpy", "scipy", "numba") if name in sys.modules))
"""


def loaded(code: str, *lines: str) -> list[str]:
    """The last line that a new process prints, as words."""
    done = subprocess.run(
        [sys.executable, "-c", code, *lines], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


def test_help_and_wrong_command_lines_import_no_numpy() -> None:
    groups = ("experiment", "storage", "token", "data")
    commands = ("plan", "simulate", "demo", "serve", "analyze", "reproduce", "experiment ask")
    helps = [f"{name} --help" for name in (*groups, *commands)]
    wrong = ("", "simulat", "plan --bugdet 3", "experiment", "experiment ask", "serve --port x")
    assert loaded(RUN, "--help", "--version", *helps, *wrong) == []


def test_the_package_imports_what_is_used() -> None:
    names = "print(*(name for name in ('numpy', 'scipy', 'numba') if name in sys.modules))"
    assert loaded(f"import sys, steadyarm; dir(steadyarm); {names}") == []
    used = "steadyarm.ArmSet, steadyarm.Steady(), steadyarm.simulate"
    assert loaded(f"import sys, steadyarm; {used}; {names}") == ["numpy", "scipy"]
    assert "numba" not in loaded(f"import sys, steadyarm; steadyarm.Experiment; {names}")


def test_visits_and_rewards_need_no_compiler_while_nothing_is_decided(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    arms = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog"]})
    with sa.create_experiment(
        "shop", arms, sa.Steady(), 1000, url, reward_range=(0, 1), reward_window="1d"
    ) as shop:
        shop.ask("visitor 1")
    verbs = ("ask shop visitor-2", "tell shop visitor-2 1", "list", "show shop")
    lines = [f"experiment {verb} --storage {url}" for verb in verbs]
    assert "numba" not in loaded(RUN, *lines)


def test_every_public_name_is_there_and_others_are_not() -> None:
    assert all(getattr(sa, name) is not None for name in sa.__all__)
    assert {*sa.__all__, "designs", "__version__"} <= set(dir(sa))
    with pytest.raises(AttributeError, match="has no attribute 'Arms'"):
        _ = sa.Arms  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("simulate", [*(name.lower() for name in POLICIES), *WORLDS]),
        ("reproduce", list(FIGURES)),
    ],
)
def test_help_lists_what_there_is(
    command: str,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "10000")
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert [word for word in words if word not in said] == []
