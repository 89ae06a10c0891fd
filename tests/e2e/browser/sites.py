"""Services to look at: real ones, with experiments that had traffic."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

import steadyarm as sa
from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.dashboard.clients import stored
from tests.live.scorecards import played
from tests.service.clients import listening

HOSTILE_TOKEN = "<img src=x onerror=alert(5)> {{7*7}}"
HOSTILE_EXPERIMENT = '"><img src=x onerror=alert(4)> & {{7*7}}'
HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "'-alert(1)-' ${alert(1)} %3Cscript%3E",
    "</script></style></textarea></title><svg onload=alert(1)>",
    "שלום עולם (abc) 123",
    "w" * 200,
    "🦊 fox & 🎉 party &amp; &lt;i&gt;",
)
LAYOUTS = {"headline": ["short", "long"], "picture": ["dog", "cat"], "button": ["buy", "add"]}
CHECKOUT = ("standard", "one page", "guest checkout", "long form", "no form")


def experiments() -> Iterator[tuple[str, sa.Experiment]]:
    """Experiments of all kinds, with their names."""
    two = sa.ArmSet.one_hot(["old", "new"])
    rates: dict[str, Any] = {"reward_range": (0.0, 1.0)}
    layouts = sa.ArmSet.factorial(LAYOUTS)
    yield "landing-page", played(layouts, 8000, 4000, days=14, step=100, **rates)
    checkout = sa.ArmSet.one_hot(CHECKOUT)
    yield "checkout", played(checkout, 6000, 6000, days=7, control="standard", step=100, **rates)
    yield "not-started", played(two, visits=0, start=False)
    yield "no-visitors-yet", played(two, visits=0)
    finished = played(two, 1000, 600, days=3)
    finished.stop()
    yield "finished", finished
    hostile = sa.ArmSet.one_hot(HOSTILE_NAMES)
    yield HOSTILE_EXPERIMENT, played(hostile, 4000, 1000, days=2, control=HOSTILE_NAMES[0])


@dataclass(frozen=True)
class Site:
    """A service that runs.

    Attributes
    ----------
    tokens : by scope; empty if none is needed
    """

    url: str
    tokens: Mapping[str, str]

    def api(self) -> httpx2.Client:
        """For requests as programs send them."""
        headers = {"authorization": f"Bearer {self.tokens['admin']}"} if self.tokens else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60)


def store_experiments(folder: Path) -> Path:
    """Store them in a file, once, however many processes ask for it at the same time."""
    path = folder / "experiments.db"
    with (folder / "experiments.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = folder / "unfinished.db"
            with closing(open_storage(f"sqlite:///{unfinished}")) as storage:
                for name, experiment in experiments():
                    stored(experiment, storage, name)
            unfinished.rename(path)
    return path


@contextmanager
def site(folder: Path, stored: Path | None, guarded: bool = False) -> Iterator[Site]:
    """A service on a copy of the stored experiments; without a file, it has none."""
    tokens = {}
    if stored is not None:
        shutil.copy(stored, folder / "tests.db")
    if guarded:
        with closing(open_storage(f"sqlite:///{folder}/tests.db")) as storage:
            for scope in ("read", "write", "admin"):
                tokens[scope], record = new_token(f"{HOSTILE_TOKEN} {scope}", scope)
                storage.tokens.add(record)
    with listening(f"sqlite:///{folder}/tests.db") as url:
        yield Site(url, tokens)
