"""Client and RemoteExperiment: live tests of a service, for programs whose threads wait."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeVar

import httpx2

from steadyarm.client.buffer import Delivery, RewardBuffer
from steadyarm.client.core import (
    DOWN,
    PATIENCE,
    Answer,
    BusyError,
    Call,
    ExperimentCore,
    OnUnknown,
    Outcome,
    Report,
    Result,
    Service,
    refuse,
    select_unsent,
)
from steadyarm.errors import ServiceError, SteadyArmError
from steadyarm.live.assigner import At, Values
from steadyarm.live.units import Covariates, Given
from steadyarm.wire.responses import AssignmentAnswer, ExperimentAnswer, Recommendation

R = TypeVar("R")


class Connection:
    """Connections to a service that threads share; each thread waits for its answer."""

    def __init__(self, service: Service) -> None:
        self._http = httpx2.Client(**service.connection)

    def send(self, call: Call[R]) -> R:
        """The result of a call; raises the error that its answer means."""
        while True:
            if self._http.is_closed:
                raise ServiceError("this client was closed; make another one.")
            try:
                return call.receive(self._http.request(**call.request()))
            except (httpx2.RequestError, BusyError) as error:
                time.sleep(call.pause_after(error))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class BaseClient:
    """The base of `Client` and `AsyncClient`: settings and counters."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 2.0,
        retries: int = 3,
        default_arm: str | None = None,
        buffer: str | os.PathLike[str] | RewardBuffer | None = None,
        cooldown: float = 5.0,
        on_unknown: OnUnknown = "ignore",
    ) -> None:
        buffered = buffer is not None
        self.service = Service(
            url, token, timeout, retries, default_arm, cooldown, on_unknown, buffered
        )
        self.connection = Connection(self.service)
        self.delivery: Delivery | None = None
        if buffer is not None:
            opened = buffer if isinstance(buffer, RewardBuffer) else RewardBuffer(buffer)
            self.delivery = Delivery(self.service, opened, self.connection.send)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.service.url!r})"

    @property
    def defaulted(self) -> int:
        """The number of times the default arm was returned."""
        return self.service.defaulted

    @property
    def ignored(self) -> int:
        """Rewards of default arms and of units without an assignment."""
        return self.service.ignored

    @property
    def lost(self) -> int:
        """Rewards that were neither delivered nor kept."""
        return self.service.lost

    @property
    def pending(self) -> int:
        """Rewards in the buffer, of all processes that share it."""
        return 0 if self.delivery is None else self.delivery.pending

    @property
    def rejected(self) -> int:
        """Buffered rewards that the service refused when this client delivered them."""
        return 0 if self.delivery is None else self.delivery.rejected

    def keep(
        self,
        experiment: str | None,
        reports: Sequence[Report],
        error: SteadyArmError,
        default_arm: str | None,
    ) -> list[Result]:
        """Keep rewards of a request that failed; raise the error where that does not help."""
        if not isinstance(error, DOWN):
            return refuse(reports, error)
        if self.delivery is None:
            return self.service.lose(experiment, len(reports), error, default_arm)
        return self.delivery.keep(experiment, reports)


class Client(BaseClient):
    """A connection to a SteadyArm service; one serves a whole program, and threads share it.

    Requests are tried again if the service does not answer, where that is safe: assignments of
    units and rewards mean the same if they are processed twice. A program that forks makes its
    client after the fork.

    Parameters
    ----------
    url : the address of the service, such as "http://localhost:8000"; a /v1 at its end is left out
    token : that the service requires; see `steadyarm token create`
    timeout : seconds after which `ask` and `tell` give up, all tries together
    retries : how often a request is tried again
    default_arm : variant that `ask` gives if the service gives none: it is down, the budget is
        spent, the test is paused, the token is wrong. Logged; None raises the error instead
    buffer : file in which rewards are kept while the service is down. Without it `tell` raises
        ServiceError, or with a default arm the reward is lost. A `RewardBuffer` to say how many
    cooldown : seconds after a failure in which `ask` gives the default arm at once, and `tell`
        writes into the buffer at once; then one call tries whether the service is back
    on_unknown : what `tell` and `track` do if the unit has no assignment: "ignore" logs and counts
        it, "raise" raises UnknownAssignmentError

    Attributes
    ----------
    defaulted : how often the default arm was given
    ignored : rewards of those, and of units without an assignment
    lost : rewards that were neither delivered nor kept
    pending : rewards in the buffer, of all processes that share it
    rejected : buffered rewards that the service refused

    Examples
    --------
    Pages still get a variant if nothing answers:

    >>> with Client("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...     shown = client.experiment("shop").ask("visitor 1")
    >>> shown.arm, shown.in_test, client.defaulted
    ('A', False, 1)
    """

    def experiment(self, name: str, default_arm: str | None = None) -> RemoteExperiment:
        """The experiment of that name; requests are sent when it is used, not before.

        default_arm : in place of the client's
        """
        return RemoteExperiment(self, self.service.experiment(name, default_arm))

    def track(
        self, event: str, unit: str, value: float = 1.0, *, id: str | None = None, at: At = None
    ) -> Outcome:
        """Report an event of a unit to every experiment that measures it.

        These are the experiments in which the unit has an assignment and that have a metric of this
        name; an experiment whose reward has no name of its own takes "reward" and the experiment's
        name. Kept in the buffer while the service is down, as rewards are.

        Parameters
        ----------
        event : its name
        unit : whose it is
        value : what it counts, such as the worth of an order
        id : identifies the event, such as the number of an order; metrics that a unit may have
            several events of need it
        at : when it happened, if not just now, as in `Experiment.tell`

        Returns
        -------
        "stored", "repeated" if it was there already, "kept" until the service is back, or "ignored"
        if no experiment of the unit measures it, which on_unknown="raise" makes an error. Raises
        the error of an experiment that refuses it if no other one counts it.
        """
        report = self.service.event(event, unit, value, id, at)
        (result,) = self.deliver(None, [report], self.service.default_arm)
        outcome = self.service.settle(None, report, result)
        if isinstance(outcome, SteadyArmError):
            raise outcome
        return outcome

    def deliver(
        self, experiment: str | None, reports: Sequence[Report], default_arm: str | None
    ) -> list[Result]:
        """Send rewards of an experiment, or events; keep them if the service is down."""
        if not reports:
            return []
        try:
            self.service.check_up()
            return self.send(self.service.deliver(experiment, reports))
        except SteadyArmError as error:
            return self.keep(experiment, reports, error, default_arm)

    def send(self, call: Call[R]) -> R:
        """The result of a call; raises the error that its answer means."""
        return self.connection.send(call)

    def flush(self, seconds: float = PATIENCE) -> None:
        """Send the rewards in the buffer now; ServiceError if that takes longer."""
        if self.delivery is not None:
            self.delivery.flush(seconds)

    def close(self) -> None:
        """Close connections; rewards that wait stay in their file."""
        if self.delivery is not None:
            self.delivery.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteExperiment:
    """An experiment of a service; `Client.experiment` makes one.

    With a default arm `ask` gives that arm whenever the service gives no variant, because it is
    down, the test is paused and has no control, or a token is wrong: an assignment with an empty
    id that is not `in_test`. The reason is logged as a warning of "steadyarm.client", each kind at
    most once a minute.

    Rewards of default arms are ignored, also those reported by unit, until the unit gets a variant
    of the test here; other processes cannot know what it was shown.

    Examples
    --------
    >>> import steadyarm as sa
    >>> with sa.Client("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...     client.experiment("shop").ask("visitor 1").arm  # nothing answers there
    'A'
    """

    def __init__(self, client: Client, core: ExperimentCore) -> None:
        self.client, self._core = client, core

    def __repr__(self) -> str:
        return f"RemoteExperiment({self._core.name!r}, {self._core.service.url})"

    def ask(
        self,
        unit: str | None = None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
        expected: float | None = None,
    ) -> AssignmentAnswer:
        """The variant to show to a unit.

        If the response gets lost, the request for a unit that keeps its variant is sent again,
        which gives the same variant. With sticky="none" every request is another assignment: one
        whose response gets lost stays without reward, and is not requested again. With a default
        arm only a bad unit, bad attributes or bad covariates raise.

        attributes, covariates, expected : what is known of the unit, as in `Experiment.ask`
        """
        (answer,) = self.ask_many([unit], [attributes], [covariates], [expected])
        if isinstance(answer, SteadyArmError):
            raise answer
        return answer

    def ask_many(
        self,
        units: Sequence[str | None],
        attributes: Sequence[Given | None] | None = None,
        covariates: Sequence[Covariates | None] | None = None,
        expected: Sequence[float | None] | None = None,
    ) -> list[Answer]:
        """Variants for many units, in their order; an error takes the place of one refused.

        With a default arm that takes its place, unless the unit is bad.

        attributes, covariates, expected : of each unit, as in `Experiment.ask_many`
        """
        core = self._core
        answers: list[Answer] = []
        for visits in core.visits(units, attributes, covariates, expected):
            try:
                core.check_up()
                if core.settings is None:
                    self.status()
                assigned = self.client.send(core.assign(visits))
                answers += core.settle(visits, assigned)
            except SteadyArmError as error:
                answers += core.settle_failure(visits, error)
        return answers

    def tell(
        self,
        assignment: AssignmentAnswer | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> None:
        """Report the reward of an assignment, its id or a unit; repeating it is harmless.

        The reward of a default arm is ignored, also that of a unit which was shown one last, and
        of a unit without an assignment unless the client has on_unknown="raise".

        at : when it happened, if not just now, as in `Experiment.tell`; the time is sent in any
            case, so that a reward which waits in the buffer counts by when it happened
        reward, event : values by the names of metrics and the key of their event are as in
            `Experiment.tell`, too
        """
        (outcome,) = self.tell_many([(assignment, reward, at, event)])
        if isinstance(outcome, SteadyArmError):
            raise outcome

    def tell_many(self, rewards: Iterable[tuple[Any, ...]]) -> list[Result]:
        """Report many rewards, each as the arguments of `tell`.

        Each is "stored", there already ("repeated"), "kept" until the service is back, of something
        that was shown "outside" of the test, or "ignored" or "lost" as in `tell`; an error takes
        the place of one refused.
        """
        results: list[Result] = []
        for reports in self._core.reports(rewards):
            sent = self.client.deliver(
                self._core.name, select_unsent(reports), self._core.default_arm
            )
            results += self._core.settle_rewards(reports, sent)
        return results

    def status(self) -> ExperimentAnswer:
        """The settings of the test, and its progress in numbers."""
        return self.client.send(self._core.status())

    def recommend(self, level: float = 0.95, anytime: bool | None = None) -> Recommendation:
        """The best variant on mature visits; see `Experiment.recommend`.

        Parameters
        ----------
        level, anytime : see `Experiment.recommend`
        """
        return self.client.send(self._core.recommendation(level, anytime))
