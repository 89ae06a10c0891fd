"""Where many small simulations run: threads or processes of this machine, or a Dask cluster.

An engine runs a function on many argument lists and gives the results as they finish. What all
calls need (`shared`) is sent to each worker once.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any, Protocol

from steadyarm.errors import InvalidInputError, MissingExtraError, SteadyArmError
from steadyarm.validation import check_choice, whole_number

WINDOW = 32  # calls submitted at a time; waiting takes as many locks
ELSEWHERE = 64  # workers that a cluster of other machines is taken to have
NAMES = ("threads", "processes", "dask")

Calls = Sequence[tuple[Any, ...]]


class Engine(Protocol):
    """Something that runs calls."""

    @property
    def workers(self) -> int:
        """How many calls run at a time, about."""

    def run(
        self, function: Callable[..., Any], calls: Calls, shared: Any = None
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish.

        function : called as ``function(*call)``, or as ``function(shared, *call)``
        """


def engine_named(name: str | Engine, jobs: int | None = None) -> Engine:
    """The engine of that name, "threads", "processes" or "dask"; an engine is returned as it is.

    jobs : threads or processes; one per core by default

    Examples
    --------
    >>> engine_named("threads", jobs=2)
    LocalEngine(jobs=2)
    """
    if not isinstance(name, str):
        if not hasattr(name, "run"):
            raise InvalidInputError.of("engine", name, f"one of {', '.join(NAMES)}, or an engine")
        return name
    check_choice(name, "engine", NAMES)
    if name == "dask":
        return DaskEngine(jobs=jobs)
    return ProcessEngine(jobs) if name == "processes" else LocalEngine(jobs)


class _WithJobs:
    """What engines share that run `jobs` calls at a time, by default one per core."""

    jobs: int | None

    def __post_init__(self) -> None:
        if self.jobs is not None:
            whole_number(self.jobs, "jobs", least=1)

    @property
    def workers(self) -> int:
        """How many calls run at a time."""
        return self.jobs or os.cpu_count() or 1


@dataclass(frozen=True)
class LocalEngine(_WithJobs):
    """Threads; the compiled kernels run in parallel. None is one thread per core."""

    jobs: int | None = None

    def run(
        self, function: Callable[..., Any], calls: Calls, shared: Any = None
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""
        given = () if shared is None else (shared,)
        pool = ThreadPoolExecutor(self.workers)
        yield from _windowed(pool, function, [(i, (*given, *call)) for i, call in enumerate(calls)])

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        """The results in the order of the calls."""
        found = dict(self.run(function, calls))
        return [found[i] for i in range(len(calls))]


def _windowed(
    pool: Executor, function: Callable[..., Any], calls: list[tuple[int, tuple[Any, ...]]]
) -> Iterator[tuple[int, Any]]:
    """Results as they finish; a long list of calls is not submitted all at once."""
    places: dict[Future[Any], int] = {}

    def finished() -> Iterator[tuple[int, Any]]:
        for future in wait(places, return_when=FIRST_COMPLETED).done:
            yield places.pop(future), future.result()

    try:
        for i, call in calls:
            places[pool.submit(function, *call)] = i
            if len(places) >= WINDOW:
                yield from finished()
        while places:
            yield from finished()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class ProcessEngine(_WithJobs):
    """Processes of this machine, for policies and worlds that are written in plain Python.

    What runs there must be importable: functions and classes of modules, no lambdas, and in a
    script below ``if __name__ == "__main__":``. A process that dies is replaced, and what it was
    computing is computed again. If the script is killed its processes end with it.

    Attributes
    ----------
    jobs : how many; one per core by default
    retries : how often processes are replaced
    """

    jobs: int | None = None
    retries: int = 5

    def run(
        self, function: Callable[..., Any], calls: Calls, shared: Any = None
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""
        try:
            content = pickle.dumps((function, shared))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidInputError(
                f"what to compute cannot be sent to other processes ({error}); define policies and "
                'worlds in a module, by functions with names, or use engine="threads".'
            ) from None
        left = dict(enumerate(calls))
        for attempt in range(self.retries + 1):
            pool = ProcessPoolExecutor(
                self.workers, get_context("spawn"), initializer=_receive, initargs=(content,)
            )
            try:
                for i, result in _windowed(pool, _call, list(left.items())):
                    del left[i]
                    yield i, result
                return
            except BrokenProcessPool:
                if attempt == self.retries:
                    raise SteadyArmError(
                        f"processes of the engine died {attempt + 1} times, for want of memory "
                        "perhaps, or because a script has no line "
                        '`if __name__ == "__main__":`; finished cells are in the journal, if '
                        "there is one."
                    ) from None


_received: tuple[Callable[..., Any], Any] | None = None


def _receive(content: bytes) -> None:
    """What a new process is told: the function, and what all calls need."""
    global _received
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _received = pickle.loads(content)


def _end_with_parent() -> None:
    """A process whose parent was killed has nobody to answer; it would wait for calls forever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _call(*call: Any) -> Any:
    assert _received is not None
    function, shared = _received
    return function(*call) if shared is None else function(shared, *call)


@dataclass(frozen=True)
class DaskEngine(_WithJobs):
    """Workers of a Dask cluster; a call whose worker is lost is tried again elsewhere.

    Attributes
    ----------
    scheduler : its address, such as tcp://host:8786, or a cluster object, such as dask-jobqueue's
        SLURMCluster; None starts a cluster of processes here
    jobs : how many processes that cluster has; one per core by default
    retries : how often a call is tried again
    timeout : seconds to wait for the scheduler to answer
    """

    scheduler: Any = None
    jobs: int | None = None
    retries: int = 5
    timeout: float = 10

    @property
    def workers(self) -> int:
        """Processes of a cluster here; of another one it is a guess, since workers may join."""
        return ELSEWHERE if self.scheduler is not None and self.jobs is None else super().workers

    def run(
        self, function: Callable[..., Any], calls: Calls, shared: Any = None
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""
        try:
            from distributed import Client, as_completed
        except ImportError:
            raise MissingExtraError(
                "the Dask engine needs dask and distributed; "
                "install them with: pip install 'steadyarm[cluster]'"
            ) from None
        try:
            if self.scheduler is None:
                client = Client(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    dashboard_address=None,
                    timeout=self.timeout,
                )
            else:
                client = Client(self.scheduler, timeout=self.timeout)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"no Dask scheduler answers at {self.scheduler} ({error}); start one with "
                "'dask scheduler' or leave the address out to start a local cluster."
            ) from None
        with client:
            # Not scattered: scattered data is lost with the worker that keeps it, a task is not.
            given = () if shared is None else (client.submit(_same, shared, pure=False),)
            futures = [
                client.submit(function, *given, *call, pure=False, retries=self.retries)
                for call in calls
            ]
            places = {future.key: i for i, future in enumerate(futures)}
            for future, result in as_completed(futures, with_results=True):
                yield places[future.key], result
                future.release()


def _same(shared: Any) -> Any:
    return shared
