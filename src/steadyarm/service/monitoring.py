"""What operators see of the service: metrics for Prometheus, readiness, and warming up."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter as Count
from collections.abc import Awaitable, Callable, Iterator
from functools import cache, partial
from typing import Any, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

import steadyarm as sa
from steadyarm.errors import StorageError
from steadyarm.inference import boundaries
from steadyarm.live.scorecard import scorecard_of
from steadyarm.storages.records import ExperimentState
from steadyarm.storages.storage import Storage

log = logging.getLogger("steadyarm.service")

Run = Callable[..., Awaitable[Any]]  # runs something in a thread

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
BUDGET, BATCH = 24, 8  # the smallest test that passes through all of the code
PROBE = 3.0  # seconds within which a probe of readiness is answered
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)


class Metrics:
    """Metrics of the service; of all workers together if there are many."""

    def __init__(self, storage: Storage) -> None:
        self._states = _States(storage)
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "steadyarm_requests",
            "Requests by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "steadyarm_request_seconds",
            "How long requests took.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._sizes = Histogram(
            "steadyarm_batch_size",
            "Requests that were written in one transaction.",
            ("kind",),
            buckets=SIZES,
            registry=self.registry,
        )
        self.assignments = Counter(
            "steadyarm_assignments", "New assignments.", registry=self.registry
        )
        self.rewards = Counter("steadyarm_rewards", "Rewards stored.", registry=self.registry)
        self.refused = Counter(
            "steadyarm_rewards_refused",
            "Rewards and events that were not counted, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self.assignment_batches = self._sizes.labels("assignments")
        self.reward_batches = self._sizes.labels("rewards")
        self.of_request = cache(self._of_request)

    def _of_request(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        """Where requests of a kind are counted, and their seconds observed."""
        return self._requests.labels(method, route, status), self._seconds.labels(route)

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        registry = CollectorRegistry()
        registry.register(self._states)
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # of the library
            return generate_latest(registry)
        return generate_latest(self.registry) + generate_latest(registry)


class _States(Collector):
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counts = Count(each.state for each in self._storage.summaries())
        found = GaugeMetricFamily(
            "steadyarm_experiments", "Experiments by state.", labels=["state"]
        )
        for state in get_args(ExperimentState):
            found.add_metric([state], counts[state])
        yield found


# Readiness


class Readiness:
    """Whether the storage accepts durable writes: for probes, and logged when it changes.

    Probes that come during a check share its result.
    """

    def __init__(self, storage: Storage, run: Run) -> None:
        self._storage, self._run = storage, run
        self._check: asyncio.Future[str | None] | None = None
        self._logged: str | None = None

    async def find_obstacle(self) -> str | None:
        """Why the storage is not ready, in a line that anybody may read; None if it is."""
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(self._run(self._examine))
        try:
            return await asyncio.wait_for(asyncio.shield(self._check), PROBE)
        except TimeoutError:
            return f"the storage has not answered within {PROBE:g} seconds"

    def _examine(self) -> str | None:
        reason = detail = None
        try:
            self._storage.check()
        except StorageError as error:
            reason, detail = error.reason, str(error)
        except Exception as error:  # a storage that cannot be checked is not ready either
            reason, detail = StorageError.reason, f"{type(error).__name__}: {error}"
        if reason != self._logged:
            self._logged = reason
            if reason is None:
                log.warning("ready again: the storage accepts writes")
            else:
                log.error("not ready: %s", detail)
        return reason


# Warming up


def tiny_tests() -> Iterator[Callable[[], object]]:
    """Whole tests in memory, in parts, which import and compile what requests need later."""
    arm_sets = (  # whose designs take different ways
        sa.ArmSet.one_hot(["A", "B", "C"]),
        sa.ArmSet.factorial({"a": ["1", "2"], "b": ["1", "2"]}),
        sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.5]]),
    )
    for arms in arm_sets:
        test = sa.create_experiment(
            "warm", arms, sa.Steady(), BUDGET, "memory", seed=1, missing="drop"
        )
        for first in range(0, BUDGET, BATCH):
            yield partial(_play_batch, test, first)
        yield partial(test.recommend, anytime=True)
        yield partial(boundaries, (0.5, 1.0), 0.025)
        yield partial(scorecard_of, test)


def _play_batch(test: sa.Experiment, first: int) -> None:
    answers = test.ask_many([f"{first + i}" for i in range(BATCH)])
    assigned = [answer for answer in answers if not isinstance(answer, sa.SteadyArmError)]
    test.tell_many((answer.id, float(i % 2)) for i, answer in enumerate(assigned))


if __name__ == "__main__":  # compiles ahead, where an image is made
    for step in tiny_tests():
        step()
