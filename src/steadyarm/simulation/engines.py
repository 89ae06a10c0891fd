"""Where many small simulations run: threads of this machine, or a Dask cluster.

An engine calls a function for each of many argument tuples and hands results over as they come.
The function is pure, so the engine changes the time and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from steadyarm.errors import InvalidInputError, MissingExtraError

__all__ = ["DaskEngine", "Engine", "LocalEngine"]


WINDOW = 32  # calls in the hands of the threads at a time; waiting costs as many locks


class Engine(Protocol):
    """Something that runs calls."""

    def run(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""


@dataclass(frozen=True)
class LocalEngine:
    """Threads; the compiled kernels run in parallel. None is one thread per core."""

    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise InvalidInputError(f"jobs is {self.jobs}; expected at least 1.")

    def run(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""
        pool = ThreadPoolExecutor(self.jobs or os.cpu_count() or 1)
        places: dict[Future[Any], int] = {}
        try:
            for i, call in enumerate(calls):
                places[pool.submit(function, *call)] = i
                if len(places) >= WINDOW:  # a long list of calls is not held all at once
                    yield from self._finished(places)
            while places:
                yield from self._finished(places)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    @staticmethod
    def _finished(places: dict[Future[Any], int]) -> Iterator[tuple[int, Any]]:
        for future in wait(places, return_when=FIRST_COMPLETED).done:
            yield places.pop(future), future.result()


@dataclass(frozen=True)
class DaskEngine:
    """Workers of a Dask cluster; a call whose worker is lost is tried again elsewhere.

    Attributes
    ----------
    scheduler : its address, such as tcp://host:8786; None starts a cluster of processes here
    jobs : how many processes that cluster has; one per core by default
    retries : how often a call is tried again
    timeout : seconds to wait for the scheduler to answer
    """

    scheduler: str | None = None
    jobs: int | None = None
    retries: int = 5
    timeout: float = 10

    def run(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
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
                workers = {"n_workers": self.jobs or os.cpu_count(), "threads_per_worker": 1}
                client = Client(**workers, dashboard_address=None, timeout=self.timeout)
            else:
                client = Client(self.scheduler, timeout=self.timeout)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"no Dask scheduler answers at {self.scheduler} ({error}); start one with "
                "'dask scheduler' or leave the address out to start a local cluster."
            ) from None
        with client:
            futures = [
                client.submit(function, *call, pure=False, retries=self.retries) for call in calls
            ]
            places = {future.key: i for i, future in enumerate(futures)}
            for future, result in as_completed(futures, with_results=True):
                yield places[future.key], result
