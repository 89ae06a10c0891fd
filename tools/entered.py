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
from typing import Any

import httpx2
import numpy as np

import steadyarm as sa
from steadyarm.cli.main import main as run_command
from steadyarm.dashboard.app import create_app
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage

PACKAGE = Path(sa.__file__).parent
VISITS = 300
ARMS = {"colour": ["red", "blue"], "text": ["short", "long", "none"], "picture": ["no", "yes"]}


Functions = set[tuple[str, str]]  # of the package: file and name


seen: set[CodeType] = set()


def note(frame: FrameType, event: str, _: Any) -> None:
    """Remember the function that is entered, in whatever thread."""
    if event == "call":
        seen.add(frame.f_code)


@contextmanager
def entered() -> Iterator[Functions]:
    """The functions that any thread enters meanwhile."""
    functions: Functions = set()
    seen.clear()
    yield functions
    for code in seen.copy():
        path = Path(code.co_filename)
        # comprehensions and lambdas belong to the function around them
        if path.is_relative_to(PACKAGE) and not code.co_name.startswith("<"):
            name = f"{code.co_qualname}:{code.co_firstlineno}"
            functions.add((path.relative_to(PACKAGE).as_posix(), name))


def entered_again(task: Callable[[int], object]) -> Functions:
    """The functions that a task enters when it is done for the second time."""
    task(1)
    with entered() as functions:
        task(2)
    return functions


def simulation(folder: Path) -> Functions:
    """Steady in a small world whose means oscillate."""
    arms = sa.ArmSet.factorial(ARMS)
    waves = np.sin(np.arange(200)[:, None] / 10 + np.arange(arms.dimension))
    thetas = np.linspace(0.1, 0.5, arms.dimension) + 0.1 * waves
    world = sa.Environment.from_parameters(arms, thetas)
    return entered_again(lambda _: sa.simulate(sa.Steady(), world, trials=20, seed=1))


def ask(folder: Path) -> Functions:
    """A variant for a new unit."""
    with _created(folder, "ask") as live:
        return entered_again(lambda k: live.ask(f"visitor {k}"))


def tell(folder: Path) -> Functions:
    """The reward of an assignment; no segment ends by it."""
    with _created(folder, "tell") as live:
        assignments = [live.ask(f"visitor {k}") for k in range(3)]
        return entered_again(lambda k: live.tell(assignments[k], 1.0))


def visits(folder: Path) -> Functions:
    """Visits one after the other, with the decisions where segments end."""
    tests = [_created(folder, f"visits-{k}", VISITS + 100) for k in range(3)]

    def visit(k: int) -> None:
        for i in range(VISITS):
            tests[k].tell(tests[k].ask(f"visitor {i}"), float(i % 2))

    functions = entered_again(visit)
    assert tests[2].status().observed > 3, "there were too few decisions"
    return functions


def http_assignment(folder: Path) -> Functions:
    """An assignment for a new unit, over HTTP."""
    url = f"sqlite:///{folder / 'http.db'}"
    _created(folder, "http").close()

    async def run() -> Functions:
        app = create_app(open_storage(url), ServiceSettings(storage=url, warm=False))
        transport = httpx2.ASGITransport(app)
        async with (
            _lifespan(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            path = "/v1/experiments/http/assignments"
            for k in range(3):  # twice to warm up: the first one also loads the experiment
                with entered() as functions:
                    answer = await client.post(path, json={"unit": f"visitor {k}"})
                assert answer.is_success, answer.text
        return functions

    with redirect_stdout(io.StringIO()):  # the access log
        return asyncio.run(run())


def analysis(folder: Path) -> Functions:
    """`steadyarm analyze log.csv` on a log of two variants."""
    log = folder / "log.csv"
    lines = ["timestamp,unit,arm,reward,probability"]
    for t in range(3000):
        arm, reward = "AB"[t * 7 % 5 % 2], t % 3 % 2
        lines.append(f"2026-03-{1 + t // 100:02} 12:00:00,{t},{arm},{reward},0.5")
    log.write_text("\n".join(lines))
    with redirect_stdout(io.StringIO()):
        return entered_again(lambda _: run_command(["analyze", str(log)]))


@asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[None]:
    """Start an ASGI application and end it, as a server does."""
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    running = asyncio.create_task(app(scope, received.get, sent.put))
    for event in ("startup", "shutdown"):
        await received.put({"type": f"lifespan.{event}"})
        answer = await sent.get()
        assert answer["type"] == f"lifespan.{event}.complete", answer
        if event == "startup":
            yield
    await running


def _created(folder: Path, name: str, budget: int = 10_000) -> sa.Experiment:
    """A new experiment in a database of its own."""
    arms = sa.ArmSet.factorial(ARMS)
    return sa.create_experiment(
        name, arms, sa.Steady(), budget, f"sqlite:///{folder / name}.db", seed=1, missing="drop"
    )


TASKS: dict[str, Callable[[Path], Functions]] = {
    "simulate, Steady": simulation,
    "ask on SQLite, new unit": ask,
    "tell on SQLite": tell,
    f"{VISITS} asks and tells with decisions": visits,
    "HTTP assignment, new unit": http_assignment,
    "analyze log.csv": analysis,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the functions of each task, too")
    options = parser.parse_args()
    threading.setprofile(note)
    sys.setprofile(note)
    with tempfile.TemporaryDirectory() as folder:
        counts = {name: task(Path(folder)) for name, task in TASKS.items()}
    print(f"{'while this is done':33}  files  functions")
    for name, functions in counts.items():
        print(f"{name:33}  {len({file for file, _ in functions}):5}  {len(functions):9}")
        for function in sorted(functions) if options.files else ():
            print("  ", *function)


if __name__ == "__main__":
    main()
