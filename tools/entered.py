"""Counts how many files and functions of the package are entered while something is done.

Whoever wants to follow an assignment through the code opens these files. A profile hook notes
every Python function that is called, in all threads. Each task is done once to warm up, so
that imports, compilation and filled caches do not count, and then once more for the count. Compiled
kernels are not seen: they call nothing of ours.

    python -m tools.entered            # a table
    python -m tools.entered --files    # and the functions of each task

The HTTP request goes through the application that ``steadyarm serve`` runs, the service with the
dashboard; the server in front of it, uvicorn, is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import httpx2
import numpy as np

import steadyarm as sa
from steadyarm.cli.main import main as run_command
from steadyarm.dashboard.app import create_app
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage

__all__ = ["Counter", "count_all"]

PACKAGE = Path(sa.__file__).parent
ARMS = {"colour": ["red", "blue"], "text": ["short", "long", "none"], "picture": ["no", "yes"]}


class Entered(NamedTuple):
    """A function of the package, and its file."""

    file: str
    function: str


class Counter:
    """Notes which functions of the package are entered, while it counts."""

    def __init__(self) -> None:
        self._counting = False
        self._code: set[CodeType] = set()

    def install(self) -> None:
        """Watch this thread and all that start from now on."""
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)

    def _watch(self, frame: FrameType, event: str, _: Any) -> None:
        if self._counting and event == "call":
            self._code.add(frame.f_code)

    @contextmanager
    def counting(self, found: set[Entered]) -> Iterator[None]:
        """Add the functions that are entered meanwhile."""
        self._code.clear()
        self._counting = True
        try:
            yield
        finally:
            self._counting = False
        for code in self._code.copy():
            path = Path(code.co_filename)
            own = path.is_relative_to(PACKAGE) and not code.co_name.startswith("<")
            if own:  # comprehensions and lambdas belong to the function around them
                file = path.relative_to(PACKAGE).as_posix()
                found.add(Entered(file, f"{code.co_qualname}:{code.co_firstlineno}"))

    def second(self, task: Callable[[int], object]) -> set[Entered]:
        """The functions that a task enters when it is done for the second time."""
        found: set[Entered] = set()
        task(1)
        with self.counting(found):
            task(2)
        return found


def simulation(counter: Counter, folder: Path) -> set[Entered]:
    """Steady in a small world whose means oscillate."""
    arms = sa.ArmSet.factorial(ARMS)
    waves = np.sin(np.arange(200)[:, None] / 10 + np.arange(arms.dimension))
    thetas = np.linspace(0.1, 0.5, arms.dimension) + 0.1 * waves
    world = sa.Environment.from_parameters(arms, thetas)
    return counter.second(lambda _: sa.simulate(sa.Steady(), world, trials=20, seed=1))


def ask(counter: Counter, folder: Path) -> set[Entered]:
    """A variant for a new unit."""
    with _created(folder, "ask", 10_000) as live:
        return counter.second(lambda k: live.ask(f"visitor {k}"))


def tell(counter: Counter, folder: Path) -> set[Entered]:
    """The reward of an assignment; no segment ends by it."""
    with _created(folder, "tell", 10_000) as live:
        given = [live.ask(f"visitor {k}") for k in range(3)]
        return counter.second(lambda k: live.tell(given[k], 1.0))


def http_assignment(counter: Counter, folder: Path) -> set[Entered]:
    """An assignment for a new unit, over HTTP."""
    url = _url(folder, "http")
    _created(folder, "http", 10_000).close()
    found: set[Entered] = set()

    async def run() -> None:
        app = create_app(open_storage(url), ServiceSettings(storage=url, warm=False))
        transport = httpx2.ASGITransport(app)
        async with (
            _lifespan(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            path = "/v1/experiments/http/assignments"
            for k in range(3):  # twice to warm up: the first one also loads the experiment
                with counter.counting(found if k == 2 else set()):
                    answer = await client.post(path, json={"unit": f"visitor {k}"})
                assert answer.is_success, answer.text

    with redirect_stdout(io.StringIO()):  # the access log
        asyncio.run(run())
    return found


def analysis(counter: Counter, folder: Path) -> set[Entered]:
    """`steadyarm analyze log.csv` on a log of two variants."""
    log = folder / "log.csv"
    lines = ["timestamp,unit,arm,reward,probability"]
    for t in range(3000):
        arm, reward = "AB"[t * 7 % 5 % 2], t % 3 % 2
        lines.append(f"2026-03-{1 + t // 100:02} 12:00:00,{t},{arm},{reward},0.5")
    log.write_text("\n".join(lines))
    with redirect_stdout(io.StringIO()):
        return counter.second(lambda _: run_command(["analyze", str(log)]))


@asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[None]:
    """Start an ASGI application and end it, as a server does."""
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    running = asyncio.create_task(app(scope, heard.get, said.put))
    for event in ("startup", "shutdown"):
        await heard.put({"type": f"lifespan.{event}"})
        answer = await said.get()
        assert answer["type"] == f"lifespan.{event}.complete", answer
        if event == "startup":
            yield
    await running


def _url(folder: Path, name: str) -> str:
    return f"sqlite:///{folder / name}.db"


def _created(folder: Path, name: str, budget: int) -> sa.Experiment:
    """A new experiment in a database of its own."""
    arms = sa.ArmSet.factorial(ARMS)
    return sa.create_experiment(
        name, arms, sa.Steady(), budget, _url(folder, name), seed=1, missing="drop"
    )


TASKS: dict[str, Callable[[Counter, Path], set[Entered]]] = {
    "simulate, Steady": simulation,
    "ask on SQLite, new unit": ask,
    "tell on SQLite": tell,
    "HTTP assignment, new unit": http_assignment,
    "analyze log.csv": analysis,
}


def count_all() -> dict[str, set[Entered]]:
    """The functions that each task enters."""
    counter = Counter()
    counter.install()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return {name: task(counter, Path(folder)) for name, task in TASKS.items()}
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the functions of each task, too")
    options = parser.parse_args()
    counts = count_all()
    width = max(map(len, counts))
    print(f"{'while this is done':{width}}  files  functions")
    for name, entered in counts.items():
        print(f"{name:{width}}  {len({one.file for one in entered}):5}  {len(entered):9}")
    if options.files:
        for name, entered in counts.items():
            print(f"\n{name}:")
            for one in sorted(entered):
                print(f"  {one.file}  {one.function}")


if __name__ == "__main__":
    main()
