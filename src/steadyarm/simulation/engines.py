"""Where many small simulations run: threads of this machine, or a Dask cluster.

An engine calls a function for each of many argument tuples and hands results over as they come.
The function is pure, so the engine changes the time and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Protocol

from steadyarm.errors import InvalidInputError, MissingExtraError

__all__ = ["DaskEngine", "Engine", "LocalEngine"]


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
        try:
            places = {pool.submit(function, *call): i for i, call in enumerate(calls)}
            for future in as_completed(places):
                yield places[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class DaskEngine:
    """Workers of a Dask cluster; a call whose worker is lost is tried again elsewhere.

    Attributes
    ----------
    scheduler : its address, such as tcp://host:8786; None starts a cluster of processes here
    retries : how often a call is tried again
    timeout : seconds to wait for the scheduler to answer
    """

    scheduler: str | None = None
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
