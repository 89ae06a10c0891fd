"""Experiments of a service as `steadyarm experiment` uses them: with --storage https://HOST."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

from steadyarm.cli.common import extra
from steadyarm.errors import InvalidInputError

if TYPE_CHECKING:
    from steadyarm.arms import ArmSet
    from steadyarm.client import Client, RemoteExperiment
    from steadyarm.live.metrics import MetricResult
    from steadyarm.live.outside import RollOut
    from steadyarm.live.settings import Settings

PATIENCE = 30.0  # seconds: nobody's page waits


@contextmanager
def connected(args: argparse.Namespace, url: str) -> Iterator[Client]:
    """A client of the service at an address, with the token that was given."""
    with extra("a service is reached with", "client"):
        from steadyarm.client import Client
    token = args.token or os.environ.get("STEADYARM_TOKEN") or None
    with Client(url, token, timeout=PATIENCE, on_unknown="raise") as client:
        yield client


class ServedExperiment:
    """An experiment of a service with what commands use of an `Experiment`.

    Verbs are those of `RemoteExperiment`. The service notes the name of the token as the author of
    a change, so `by` is left out.
    """

    def __init__(self, remote: RemoteExperiment) -> None:
        self._remote, self.name = remote, remote.name

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._remote, verb)
        if "by" in signature(method).parameters:  # of another meaning: the attribute of a breakdown
            return method

        def call(*given: Any, by: str = "", **more: Any) -> Any:
            return method(*given, **more)

        return call

    @cached_property
    def settings(self) -> Settings:
        """What it was created with."""
        from steadyarm.client.pools import run

        return run(self._remote.core.known()).to_settings()

    @property
    def arms(self) -> ArmSet:
        """The variants."""
        return self.settings.arms

    def shares(self) -> dict[int, float]:
        """The share of each variant that is assigned now, by position; empty before the first."""
        from steadyarm.errors import ServiceError
        from steadyarm.wire.results import Allocation

        try:
            weights = self._remote.call(Allocation, "GET", "allocation").weights
        except ServiceError:  # nothing was assigned yet
            return {}
        return {self.arms.index(name): weight for name, weight in weights.items()}

    def roll_out(
        self,
        variant: str | None,
        share: float,
        holdback: float | None,
        *,
        by: str = "",
        **more: Any,
    ) -> RollOut:
        """Show a variant to everybody, or to a share of all units."""
        from steadyarm.client.transport import understood

        status: Any = self._remote.roll_out(variant, share, holdback, **more)
        done: RollOut = understood(lambda: status.outside.roll_outs[0])
        return done

    def metrics(self, level: float, many: str) -> tuple[MetricResult, ...]:
        """What is known of metrics beside the primary one."""
        if many != "bonferroni":
            raise InvalidInputError(
                f"--many {many} is not possible through a service, whose verdicts hold at once for "
                "all secondary metrics; run it on the storage itself."
            )
        return self._remote.recommend(level).metrics
