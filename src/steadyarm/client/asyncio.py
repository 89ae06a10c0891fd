"""AsyncClient and AsyncRemoteExperiment: live tests of a service, for programs under asyncio.

They have the methods of `blocking.Client` and `blocking.RemoteExperiment` as coroutines. The
logic that both share is in `core`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

import httpx2

from steadyarm.client.blocking import BaseClient
from steadyarm.client.core import (
    PATIENCE,
    Answer,
    BusyError,
    Call,
    ExperimentCore,
    Outcome,
    Report,
    Result,
    select_unsent,
)
from steadyarm.errors import ServiceError, SteadyArmError
from steadyarm.live.assigner import At, Values
from steadyarm.live.units import Covariates, Given
from steadyarm.wire.responses import AssignmentAnswer, ExperimentAnswer, Recommendation

R = TypeVar("R")


class AsyncClient(BaseClient):
    """A connection to a SteadyArm service for programs under asyncio; all tasks share one.

    It has the methods of `Client` as coroutines and makes the same decisions. A client belongs to
    one event loop. A buffer is written in other threads, and emptied in one.

    A call may be cancelled at any time. If its request was already sent, the service may or may
    not have processed it. You can safely repeat the call.

    Parameters and attributes are those of `Client`.

    Examples
    --------
    >>> import asyncio
    >>> async def page():
    ...     async with AsyncClient("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...         return await client.experiment("shop").ask("visitor 1")
    >>> asyncio.run(page()).arm
    'A'
    """

    @cached_property
    def _http(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(**self.service.connection)

    def experiment(self, name: str, default_arm: str | None = None) -> AsyncRemoteExperiment:
        """The experiment of that name; requests are sent when it is used, not before.

        default_arm : in place of the client's
        """
        return AsyncRemoteExperiment(self, self.service.experiment(name, default_arm))

    async def track(
        self, event: str, unit: str, value: float = 1.0, *, id: str | None = None, at: At = None
    ) -> Outcome:
        """Report an event of a unit to every experiment that measures it."""
        report = self.service.event(event, unit, value, id, at)
        (result,) = await self.deliver(None, [report], self.service.default_arm)
        outcome = self.service.settle(None, report, result)
        if isinstance(outcome, SteadyArmError):
            raise outcome
        return outcome

    async def deliver(
        self, experiment: str | None, reports: Sequence[Report], default_arm: str | None
    ) -> list[Result]:
        """Send rewards of an experiment, or events; keep them if the service is down."""
        if not reports:
            return []
        try:
            self.service.check_up()
            return await self.send(self.service.deliver(experiment, reports))
        except SteadyArmError as error:
            return await asyncio.to_thread(self.keep, experiment, reports, error, default_arm)

    async def send(self, call: Call[R]) -> R:
        """The result of a call; raises the error that its answer means."""
        while True:
            if self._http.is_closed:
                raise ServiceError("this client was closed; make another one.")
            request = call.request()
            try:
                async with asyncio.timeout(request["timeout"]):  # also if bytes come one by one
                    response = await self._http.request(**request)
                return call.receive(response)
            except (httpx2.RequestError, TimeoutError, BusyError) as error:
                await asyncio.sleep(call.pause_after(error))

    async def flush(self, seconds: float = PATIENCE) -> None:
        """Send the rewards in the buffer now; ServiceError if that takes longer."""
        if self.delivery is not None:
            await asyncio.to_thread(self.delivery.flush, seconds)

    async def close(self) -> None:
        """Close connections; rewards that wait stay in their file."""
        if self.delivery is not None:
            await asyncio.to_thread(self.delivery.close)
        self.connection.close()
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncRemoteExperiment:
    """An experiment of a service; `AsyncClient.experiment` makes one.

    It has the verbs of `RemoteExperiment`, to be awaited.

    Examples
    --------
    >>> import asyncio
    >>> import steadyarm as sa
    >>> async def page():
    ...     async with sa.AsyncClient("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...         return await client.experiment("shop").ask("visitor 1")
    >>> asyncio.run(page()).in_test  # nothing answers there
    False
    """

    def __init__(self, client: AsyncClient, core: ExperimentCore) -> None:
        self.client, self._core = client, core

    def __repr__(self) -> str:
        return f"AsyncRemoteExperiment({self._core.name!r}, {self._core.service.url})"

    async def ask(
        self,
        unit: str | None = None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
        expected: float | None = None,
    ) -> AssignmentAnswer:
        """The variant to show to a unit; see `RemoteExperiment.ask`."""
        (answer,) = await self.ask_many([unit], [attributes], [covariates], [expected])
        if isinstance(answer, SteadyArmError):
            raise answer
        return answer

    async def ask_many(
        self,
        units: Sequence[str | None],
        attributes: Sequence[Given | None] | None = None,
        covariates: Sequence[Covariates | None] | None = None,
        expected: Sequence[float | None] | None = None,
    ) -> list[Answer]:
        """Variants for many units; see `RemoteExperiment.ask_many`."""
        core = self._core
        answers: list[Answer] = []
        for visits in core.visits(units, attributes, covariates, expected):
            try:
                core.check_up()
                if core.settings is None:
                    await self.status()
                assigned = await self.client.send(core.assign(visits))
                answers += core.settle(visits, assigned)
            except SteadyArmError as error:
                answers += core.settle_failure(visits, error)
        return answers

    async def tell(
        self,
        assignment: AssignmentAnswer | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> None:
        """Report the reward of an assignment, its id or a unit; see `RemoteExperiment.tell`."""
        (outcome,) = await self.tell_many([(assignment, reward, at, event)])
        if isinstance(outcome, SteadyArmError):
            raise outcome

    async def tell_many(self, rewards: Iterable[tuple[Any, ...]]) -> list[Result]:
        """Report many rewards, each as the arguments of `tell`."""
        results: list[Result] = []
        for reports in self._core.reports(rewards):
            sent = await self.client.deliver(
                self._core.name, select_unsent(reports), self._core.default_arm
            )
            results += self._core.settle_rewards(reports, sent)
        return results

    async def status(self) -> ExperimentAnswer:
        """The settings of the test, and its progress in numbers."""
        return await self.client.send(self._core.status())

    async def recommend(self, level: float = 0.95, anytime: bool | None = None) -> Recommendation:
        """The best variant on mature visits; see `RemoteExperiment.recommend`."""
        return await self.client.send(self._core.recommendation(level, anytime))
