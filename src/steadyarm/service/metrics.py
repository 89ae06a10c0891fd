"""Metrics for Prometheus, in a registry of their own; of all workers together if there are many."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter as Count
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import Scope

from steadyarm.storages.base import Storage
from steadyarm.storages.records import MOVES

__all__ = ["CONTENT_TYPE_LATEST", "AccessLog", "Metrics"]

# The access log: a line for every request on standard output, and nowhere else.


FLUSH = 0.1  # seconds that a line may wait for others


class AccessLog:
    """One line for every request on standard output, some at a time."""

    def __init__(self, form: str) -> None:
        self._form, self._lines = form, list[str]()

    def add(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        """Note a request; addresses are told as they came, in plain characters."""
        told: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": scope["method"],
            "path": scope.get("raw_path", b"").decode("ascii", "backslashreplace"),
            "status": status,
            "ms": round(1000 * seconds, 2),
            "request_id": scope["request_id"],
        }
        if self._form == "json":
            line = json.dumps(told | {"route": route, "token": scope.get("token")})
        else:
            line = "{time} {method} {path} {status} {ms} ms {request_id}".format_map(told)
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH, self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines = self._lines, []
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)


class Metrics:
    """What the service counts about itself."""

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
        self.asked, self.told = self._sizes.labels("assignments"), self._sizes.labels("rewards")
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request."""
        key = (method, route, status)
        pair = self._known.get(key)
        if pair is None:
            pair = self._requests.labels(*key), self._seconds.labels(route)
            self._known[key] = pair
        pair[0].inc()
        pair[1].observe(seconds)

    def text(self) -> bytes:
        """All of it as Prometheus reads it."""
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
        for state in MOVES:
            found.add_metric([state], counts[state])
        yield found
