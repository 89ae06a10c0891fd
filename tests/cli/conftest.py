"""An empty folder with a storage, and commands that are run in it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from steadyarm.cli.main import main

Run = Callable[..., str]

TOML = """
name = "shop"
arms = ["plain", "short", "long"]
budget = 600
seed = 5
reward_range = [0, 1]
reward_window = "2d"
control = { plain = 0.25 }
min_share = { long = 0.1 }
"""


def facts(run: Run, *words: str, stdin: str = "") -> Any:
    return json.loads(run(*words, "--format", "json", stdin=stdin))


def run_verb(*words: str, stdin: str = "", status: int = 0) -> str:
    """What a verb prints, on standard error if it fails."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.StringIO(stdin))
        assert main(["experiment", *words]) == status
    return (err if status else out).getvalue()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a verb in an empty folder; gives what was printed, on standard error if it failed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEADYARM_STORAGE", f"sqlite:///{tmp_path}/tests.db")
    (tmp_path / "test.toml").write_text(TOML)
    return run_verb


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of an experiment that has used its budget: 600 visitors, short is the best."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "test.toml").write_text(TOML)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEADYARM_STORAGE", f"sqlite:///{folder}/tests.db")
        run_verb("create", str(folder / "test.toml"))
        visitors = "\n".join(f"v{i}" for i in range(600))
        asked = facts(run_verb, "ask", "shop", "-", stdin=visitors)["assignments"]
        good = {"plain": 3, "short": 1, "long": 6}
        rewards = [f"{a['id']},{int(i % good[a['arm']] == 0)}" for i, a in enumerate(asked)]
        run_verb("tell", "shop", "-", stdin="\n".join(rewards))
    return folder / "tests.db"


@pytest.fixture
def shop(run: Run, finished: Path) -> Run:
    shutil.copy(finished, "tests.db")
    return run
