"""Monitoring of the service: metrics for Prometheus, readiness, and warming up."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections import Counter as Count
from collections.abc import Awaitable, Callable, Iterator
from functools import cache, partial
from typing import Any, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

import steadyarm as sa
from steadyarm.errors import StorageError
from steadyarm.inference import boundaries
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.storages.records import ExperimentState
from steadyarm.storages.storage import Storage

log = logging.getLogger("steadyarm.service")

Run = Callable[..., Awaitable[Any]]  # runs something in a thread

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
BUDGET, BATCH = 24, 8  # the smallest test that passes through all of the code
PROBE = 3.0  # seconds within which a probe of readiness is answered
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)


class Metrics:
    """Metrics of this process, and of the experiments of its storage.

    Attributes
    ----------
    connections : returns the number of open connections; set once the socket is open
    """

    def __init__(self, storage: Storage, count_waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.connections: Callable[[], int] = lambda: 0
        self._requests = self._count(
            "requests", "Requests by route and status.", "method", "route", "status"
        )
        self._seconds = Histogram(
            "steadyarm_request_seconds",
            "Duration of requests.",
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
        self.assignments = self._count("assignments", "New assignments.")
        self.rewards = self._count("rewards", "Rewards stored.")
        self.refused = self._count(
            "rewards_refused", "Rewards and events that were not counted, by reason.", "reason"
        )
        self.events = self._count("events", "Values of events that experiments counted.")
        self.problems = self._count("problems", "Requests that were refused, by kind.", "kind")
        self.storage_errors = self._count("storage_errors", "Calls to the storage that failed.")
        self.deliveries = self._count(
            "webhook_attempts", "Messages to webhooks: accepted, failed or given_up.", "outcome"
        )
        self.ready = self._gauge("ready", "Whether the storage accepts writes.")
        self.ready.set(1)
        waiting = self._gauge("waiting_requests", "Requests that wait to be written.")
        waiting.set_function(count_waiting)
        opened = self._gauge("open_connections", "Open connections.")
        opened.set_function(lambda: self.connections())
        build = self._gauge("build_info", "The running version.", "version", "python")
        build.labels(sa.__version__, platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)  # memory, descriptors, and when it has started
        self.registry.register(_States(storage))
        self.assignment_batches = self._sizes.labels("assignments")
        self.reward_batches = self._sizes.labels("rewards")
        self.of_request = cache(self._of_request)

    def _count(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"steadyarm_{name}", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"steadyarm_{name}", about, labels, registry=self.registry)

    def _of_request(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        """The metrics of requests of a kind: their number and their seconds."""
        return self._requests.labels(method, route, status), self._seconds.labels(route)

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        return generate_latest(self.registry)


class _States(Collector):
    """Counts of the storage; none while it does not answer."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = GaugeMetricFamily(
            "steadyarm_experiments", "Experiments by state.", labels=["state"]
        )
        messages = GaugeMetricFamily("steadyarm_webhook_queue", "Messages that wait to be sent.")
        try:
            counts = Count(each.state for each in self._storage.summaries())
            messages.add_metric([], sum(n for n, _ in self._storage.webhooks.waiting().values()))
        except StorageError:
            return
        for state in get_args(ExperimentState):
            found.add_metric([state], counts[state])
        yield from (found, messages)

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing, so that a collector that is registered does not read the storage."""
        return []


# Readiness


class Readiness:
    """Whether the storage accepts durable writes: for probes, and logged when it changes.

    Probes that come during a check share its result. An outage has one line in the log when it
    begins and one when it ends, however many calls fail meanwhile.
    """

    def __init__(self, storage: Storage, run: Run, metrics: Metrics) -> None:
        self._storage, self._run, self._metrics = storage, run, metrics
        self._check: asyncio.Future[str | None] | None = None
        self._failing = False

    async def find_obstacle(self) -> str | None:
        """Why the storage is not ready, in a line that anybody may read; None if it is."""
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(self._run(self._examine))
        try:
            return await asyncio.wait_for(asyncio.shield(self._check), PROBE)
        except TimeoutError:
            return f"the storage has not answered within {PROBE:g} seconds"

    async def watch(self) -> None:
        """During an outage, find out whether it is over."""
        if self._failing:
            await self.find_obstacle()

    def report(self, error: Exception) -> None:
        """Count a call that the storage has failed; the first of an outage is logged."""
        self._metrics.storage_errors.inc()
        self._change(str(error))

    def _examine(self) -> str | None:
        reason = detail = None
        try:
            self._storage.check()
        except StorageError as error:
            reason, detail = error.reason, str(error)
        except Exception as error:  # a storage that cannot be checked is not ready either
            reason, detail = StorageError.reason, f"{type(error).__name__}: {error}"
        self._change(detail)
        return reason

    def _change(self, detail: str | None) -> None:
        failing = detail is not None
        if failing != self._failing:
            self._failing = failing
            self._metrics.ready.set(not failing)
            if failing:
                log.error("not ready: %s", detail)
            else:
                log.warning("ready again: the storage accepts writes")


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
        yield partial(compute_scorecard, test)


def _play_batch(test: sa.Experiment, first: int) -> None:
    answers = test.ask_many([f"{first + i}" for i in range(BATCH)])
    assigned = [answer for answer in answers if not isinstance(answer, sa.SteadyArmError)]
    test.tell_many((answer.id, float(i % 2)) for i, answer in enumerate(assigned))


if __name__ == "__main__":  # compiles ahead, where an image is made
    for step in tiny_tests():
        step()
