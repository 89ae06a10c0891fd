"""Services to look at: real ones, with the worlds in their storage."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.client.servers import serving
from tests.e2e.browser.names import HOSTILE_TOKEN
from tests.e2e.browser.worlds import create_worlds

__all__ = ["Site", "site", "worlds_in"]


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


def worlds_in(folder: Path) -> Path:
    """The worlds as a file; made once, however many processes ask for it at the same time."""
    path = folder / "worlds.db"
    with (folder / "worlds.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            making = folder / "worlds.making.db"
            create_worlds(f"sqlite:///{making}", time.time())
            making.rename(path)
    return path


@contextmanager
def site(folder: Path, worlds: Path | None, guarded: bool = False) -> Iterator[Site]:
    """A service on a copy of the worlds; without any, it has no experiments."""
    tokens = {}
    if worlds is not None:
        shutil.copy(worlds, folder / "service.db")
    if guarded:
        with closing(open_storage(f"sqlite:///{folder}/service.db")) as storage:
            for scope in ("read", "write", "admin"):
                tokens[scope], record = new_token(f"{HOSTILE_TOKEN} {scope}", scope)
                storage.tokens.add(record)
    with serving(folder) as url:
        yield Site(url, tokens)
