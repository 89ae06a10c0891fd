"""An empty folder with a storage, and commands that are run in it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steadyarm.cli.main import main

__all__ = ["TOML", "Run", "facts"]

Run = Callable[..., str]

TOML = """
name = "shop"
arms = ["now", "short", "long"]
budget = 600
seed = 5
reward_range = [0, 1]
reward_window = "2d"
control = { now = 0.25 }
min_share = { long = 0.1 }
"""


def facts(run: Run, *words: str, stdin: str = "") -> Any:
    return json.loads(run(*words, "--format", "json", stdin=stdin))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a verb in an empty folder; gives what was printed, on standard error if it failed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEADYARM_STORAGE", f"sqlite:///{tmp_path}/tests.db")
    (tmp_path / "test.toml").write_text(TOML)

    def run(*words: str, stdin: str = "", status: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        assert main(["experiment", *words]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return run


@pytest.fixture
def shop(run: Run) -> Run:
    """The same with an experiment that is through: 600 visitors, short is the best."""
    run("create", "test.toml")
    visitors = "\n".join(f"v{i}" for i in range(600))
    asked = json.loads(run("ask", "shop", "-", "--format", "json", stdin=visitors))["assignments"]
    good = {"now": 3, "short": 1, "long": 6}
    rewards = [f"{a['id']},{int(i % good[a['arm']] == 0)}" for i, a in enumerate(asked)]
    run("tell", "shop", "-", stdin="\n".join(rewards))
    return run
