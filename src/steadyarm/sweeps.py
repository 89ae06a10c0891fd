"""Sweeps: many policies in many worlds on an engine, with a journal of what is finished.

A task is one policy in one world, run some number of times. It is cut into chunks with their own
random streams (`simulation.CHUNK`), so that its counts do not depend on the engine. `compare` makes
tasks of objects, `paper` of the paper's figures.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steadyarm import __version__
from steadyarm.engines import Engine
from steadyarm.environments.environment import noise_text
from steadyarm.errors import InvalidInputError
from steadyarm.files import write_atomically
from steadyarm.fingerprints import content_of, declared_fingerprint
from steadyarm.policies import Policy
from steadyarm.simulation import (
    CHUNK,
    AnyWorld,
    chunk_count,
    chunk_size,
    clopper_pearson,
    run_chunk,
)

Value = float | int | None
RESULTS_VERSION = 2  # raised by hand when the same settings give other results
BATCH_ROUNDS = 2_000_000  # rounds of the units that are sent to a worker together, about
BATCH_UNITS = 64
LINE = b'{"key": "'  # how every line of a journal begins
SYNCED = 0.5  # seconds between two waits for the disk
KEPT = 64  # worlds in each process
MOST_ARMS = 64  # different recommended arms that are counted one by one in a result


@dataclass(frozen=True)
class CellResult:
    """What one policy gave in one world.

    Attributes
    ----------
    world : name of the world, or of the figure in the paper's runs
    parameter : what `value` is of, such as "budget"; empty if the world has a single setting
    value : of the parameter; None if there is a single setting
    policy : its name
    trials, errors : runs, and how many of them ended with a wrong recommendation
    min_gap : by how much the best arm of the world beats the second best; nan if not known
    seconds : processor time of the policy in all trials, without compiling
    regret, regret_error : mean simple regret under the time average, and its standard error; None
        if the world does not know its means
    budget, arms, features, noise : of the world; noise in words
    good : by simple regret, how many trials recommended an arm of that regret; empty if there are
        many different ones
    """

    world: str
    parameter: str
    value: Value
    policy: str
    trials: int
    errors: int
    min_gap: float
    seconds: float
    regret: float | None = None
    regret_error: float | None = None
    budget: int = 0
    arms: int = 0
    features: int = 0
    noise: str = ""
    good: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Exact interval for the probability of error."""
        return clopper_pearson(self.errors, self.trials, level)

    def good_rate(self, epsilon: float) -> float:
        """Share of trials whose recommended arm is at most `epsilon` worse than the best; or nan.

        Examples
        --------
        >>> found = CellResult("A", "", None, "P", 10, 4, 0.1, 1.0, good={"0.0": 6, "0.1": 4})
        >>> found.good_rate(0.05), found.good_rate(0.1)
        (0.6, 1.0)
        """
        if not self.good:
            return math.nan
        limit = epsilon * (1 + 1e-12)
        return sum(n for regret, n in self.good.items() if float(regret) <= limit) / self.trials


@dataclass(frozen=True, eq=False)
class Task:
    """One policy in one world, run `trials` times: the unit of a sweep.

    Attributes
    ----------
    world_name, parameter, value, policy_name : how its result is called
    policy : an instance
    make : makes the world, on whichever machine computes; it should be quick to send. Tasks that
        have the same object here have the same world
    fingerprint : of the world, which a worker compares with that of its own; empty if it has none
    facts : what results say of the world
    trials : number of independent runs
    stream : seed of this task alone
    key : the same key means the same computation
    """

    world_name: str
    parameter: str
    value: Value
    policy_name: str
    policy: Policy[Any]
    make: Callable[[], AnyWorld]
    fingerprint: str
    facts: Facts
    trials: int
    stream: int
    key: str

    @property
    def rounds(self) -> int:
        """Rounds of all trials."""
        return self.trials * self.facts.budget

    def world(self) -> AnyWorld:
        """The world; a process makes it once, as long as it is needed again soon."""
        return _made(self.make, self.fingerprint, f"{self.world_name} {self.value}")


@lru_cache(maxsize=KEPT)
def _made(make: Callable[[], AnyWorld], fingerprint: str, name: str) -> AnyWorld:
    """A world, known by the very object that makes it: tasks of one sweep alone share it."""
    found = make()
    if fingerprint and world_fingerprint(found) != fingerprint:
        raise InvalidInputError(
            f"this worker ({platform.node()}, SteadyArm {__version__}) makes another world of "
            f"{name}; give all workers the same data and code, and keep nothing that changes in "
            "global variables that the world's functions read."
        )
    return found


def world_fingerprint(world: Any) -> str:
    """Of a world by its own account, or else of all it holds; empty if that cannot be compared."""
    return declared_fingerprint(world) or content_of(world).fingerprint


class Facts(NamedTuple):
    """What results say of a world; gap is nan if the world does not know it."""

    budget: int
    arms: int
    features: int
    gap: float
    noise: str

    @classmethod
    def of(cls, world: Any) -> Facts:
        """Those of this world."""
        gap = float(getattr(world, "gap", math.nan))
        noise = noise_text(getattr(world, "noise", None)) or getattr(world, "scatter", "")
        return cls(world.budget, world.arms.size, world.arms.dimension, gap, noise)


def stream_of(seed: int, *names: Any) -> int:
    """A seed that depends on all of these: tasks are independent of each other."""
    text = json.dumps([seed, *names])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def key_of(policy: Policy[Any], world: str, trials: int, stream: int, *more: Any) -> str:
    """What makes a stored result that of a task.

    The policy with its settings, the world's fingerprint, the code of both if it is not ours, and
    the version of this package.

    world : the world's fingerprint
    """
    versions = [__version__, CHUNK, RESULTS_VERSION]
    text = json.dumps([*content_of(policy), world, trials, stream, *versions, *more])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Journal:
    """Finished tasks in a file of JSON lines, which a run that was killed goes on from.

    Lines are written whole when their tasks are finished, so that a killed process loses none of
    them. The disk is waited for twice a second at most and at the end of a run: only what a power
    failure takes from the last half second is computed again. A line that a crash cut off is
    dropped when the journal is opened; it is never taken for a result.

    path : of the file; None keeps results in memory alone
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._results: dict[str, CellResult] = {}
        self._synced = time.monotonic()
        if path is not None:
            if path.is_dir():
                raise InvalidInputError.of("journal", str(path), "the name of a file, no folder")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._results = self._read(path)
            except OSError as error:
                raise InvalidInputError(
                    f"the journal {path} cannot be read or written ({error}); give another file."
                ) from None

    def get(self, key: str) -> CellResult | None:
        """The result with this key, if it was finished before."""
        return self._results.get(key)

    def add(self, *found: tuple[str, CellResult]) -> None:
        """Keep results by their keys; they are in the file when this returns."""
        if found and self.path is not None:
            with self.path.open("ab") as file:
                file.write(b"".join(_line(key, result) for key, result in found))
            if time.monotonic() - self._synced >= SYNCED:
                self.sync()
        self._results.update(found)

    def sync(self) -> None:
        """Wait until everything that was added is on disk."""
        if self.path is not None and self.path.exists():
            with self.path.open("ab") as file:
                os.fsync(file.fileno())
        self._synced = time.monotonic()

    def drop(self, keys: Iterable[str]) -> None:
        """Forget the results with these keys, and only those."""
        for key in keys:
            self._results.pop(key, None)
        if self.path is not None:
            lines = [_line(key, result) for key, result in self._results.items()]
            write_atomically(self.path, b"".join(lines))

    @staticmethod
    def _read(path: Path) -> dict[str, CellResult]:
        if not path.exists():
            return {}
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        cut = content[len(whole) :]  # by a crash
        results, lines = {}, whole.splitlines()
        if not (cut.startswith(LINE) or LINE.startswith(cut)):  # nothing that we have begun
            lines.append(cut)
        for number, line in enumerate(lines, 1):
            try:
                entry: dict[str, Any] = json.loads(line)
                key = entry.pop("key")
                results[key] = CellResult(**entry)
                results[key].interval()  # counts that are none
            except (ValueError, TypeError, KeyError, AttributeError):
                raise InvalidInputError(
                    f"line {number} of {path} is not a result; remove the file to start afresh, "
                    "or give another one."
                ) from None
        if cut:
            with path.open("r+b") as file:
                file.truncate(len(whole))
        return results


def _line(key: str, result: CellResult) -> bytes:
    return json.dumps({"key": key} | vars(result)).encode() + b"\n"


# Run tasks: chunk by chunk on an engine, journalled, never twice.


Unit = tuple[int, int]  # a task, and one of its chunks


class Work(NamedTuple):
    """How far a sweep is: rounds and cells that are done, with those in the journal, and all."""

    rounds: int
    all_rounds: int
    cells: int
    all_cells: int

    @property
    def text(self) -> str:
        """How many cells are finished, in words."""
        return f"{self.cells:,} of {self.all_cells:,} cells"


def run_tasks(
    tasks: Sequence[Task],
    engine: Engine,
    journal: Journal,
    progress: Callable[[Work], object] | None = None,
) -> list[CellResult]:
    """Results of all tasks, from the journal or computed now.

    Parameters
    ----------
    progress : called when it begins, and whenever something is done; never if nothing is to do
    """
    missing = list({t.key: t for t in tasks if journal.get(t.key) is None}.values())
    running = [Running(task) for task in missing]
    batches = list(_batches(missing, engine.workers))
    calls = [(batch, __version__) for batch in batches]
    work = work_of(tasks, journal)
    if missing and progress is not None:
        progress(work)
    try:
        for place, parts in engine.run(run_batch, calls, shared=missing):
            finished, rounds = [], 0
            for (at, chunk), part in zip(batches[place], parts, strict=True):
                task = missing[at]
                if running[at].add(part):
                    finished.append((task.key, running[at].result()))
                rounds += chunk_size(task.trials, chunk) * task.facts.budget
            journal.add(*finished)
            work = work._replace(rounds=work.rounds + rounds, cells=work.cells + len(finished))
            if progress is not None:
                progress(work)
    finally:
        journal.sync()
    results = [journal.get(task.key) for task in tasks]
    return [result for result in results if result is not None]


def work_of(tasks: Sequence[Task], journal: Journal) -> Work:
    """What there is to do, and what the journal has already."""
    once = {task.key: task for task in tasks}
    done = [task for key, task in once.items() if journal.get(key) is not None]
    rounds, every = (sum(task.rounds for task in some) for some in (done, once.values()))
    return Work(rounds, every, len(done), len(once))


def _batches(tasks: Sequence[Task], workers: int) -> Iterator[list[Unit]]:
    """Units that are sent together: small ones by the dozen, large ones alone."""
    total = sum(task.rounds for task in tasks)
    most = min(BATCH_ROUNDS, total / (4 * workers))  # so that all workers have something to do
    batch: list[Unit] = []
    rounds = 0
    for at, task in enumerate(tasks):
        for chunk in range(chunk_count(task.trials)):
            batch.append((at, chunk))
            rounds += chunk_size(task.trials, chunk) * task.facts.budget
            if rounds >= most or len(batch) == BATCH_UNITS:
                yield batch
                batch, rounds = [], 0
    if batch:
        yield batch


@dataclass(frozen=True)
class Part:
    """What one chunk of a task gave, small to send.

    good : by simple regret, in how many trials; None where the world does not know its means
    """

    errors: int
    regret: float
    squared_regret: float
    seconds: float
    good: Mapping[str, int] | None


def run_batch(tasks: Sequence[Task], batch: Sequence[Unit], version: str) -> list[Part]:
    """What each unit of a batch gives."""
    return [run_unit(tasks[at], chunk, version) for at, chunk in batch]


def run_unit(task: Task, chunk: int, version: str = __version__) -> Part:
    """What one chunk of a task gives: a pure function, wherever it runs, but for the time.

    The version and the world are compared with those of who asked: a worker with other code or
    other data must not answer.
    """
    if version != __version__:
        raise InvalidInputError(
            f"this worker has version {__version__} of SteadyArm, and was asked for {version}; "
            "give all workers the same data and code."
        )
    size = chunk_size(task.trials, chunk)
    try:
        found = run_chunk(task.policy, task.world(), task.stream, chunk, size)
    except Exception as error:  # whatever a policy or world of a user raises
        where = f"{task.parameter} {task.value}" if task.parameter else "its only setting"
        error.add_note(f"in the policy {task.policy_name!r}, world {task.world_name!r}, {where}")
        raise
    regrets = found.regrets
    counted = None
    if not np.isnan(regrets).any():
        values, counts = np.unique(regrets, return_counts=True)
        counted = {repr(float(v)): int(n) for v, n in zip(values, counts, strict=True)}
    squared = float((regrets * regrets).sum())
    return Part(found.errors, float(regrets.sum()), squared, found.seconds, counted)


class Running:
    """A task whose chunks come in, in any order."""

    def __init__(self, task: Task) -> None:
        self._task, self._left = task, chunk_count(task.trials)
        self._errors, self._seconds = 0, 0.0
        self._regret: list[float] = []
        self._squared: list[float] = []
        self._good: dict[str, int] | None = {}

    def add(self, part: Part) -> bool:
        """Add a chunk; True if it was the last one."""
        self._left -= 1
        self._errors += part.errors
        self._seconds += part.seconds
        self._regret.append(part.regret)
        self._squared.append(part.squared_regret)
        if part.good is None or self._good is None:
            self._good = None
        else:
            for regret, count in part.good.items():
                self._good[regret] = self._good.get(regret, 0) + count
        return self._left == 0

    def result(self) -> CellResult:
        """The whole; sums of chunks do not depend on their order."""
        task, n = self._task, self._task.trials
        mean, error = None, None
        if self._good is not None:
            mean = math.fsum(self._regret) / n
            variance = max(math.fsum(self._squared) / n - mean * mean, 0.0)
            error = math.sqrt(variance / (n - 1)) if n > 1 else None
        good = self._good or {}
        return CellResult(
            *(task.world_name, task.parameter, task.value, task.policy_name, n, self._errors),
            min_gap=task.facts.gap,
            seconds=self._seconds,
            regret=mean,
            regret_error=error,
            budget=task.facts.budget,
            arms=task.facts.arms,
            features=task.facts.features,
            noise=task.facts.noise,
            good=dict(sorted(good.items())) if len(good) <= MOST_ARMS else {},
        )
