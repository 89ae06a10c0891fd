"""AsyncClient: experiments of a service, from another program, under asyncio."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self, get_args

from steadyarm.arms import ArmSet
from steadyarm.client.buffer import (
    EVENTS,
    Delivery,
    Outcome,
    RewardBuffer,
    RewardReport,
    send_rewards,
)
from steadyarm.client.pools import AsyncioPool, Pool, forget_after_fork
from steadyarm.client.remote import AsyncRemoteExperiment, Result, Send, seconds_of
from steadyarm.client.transport import DOWN, PATIENCE, RecentUnits, Transport, understood
from steadyarm.errors import InvalidInputError, SteadyArmError, UnknownAssignmentError
from steadyarm.live.assignments import At, checked_unit
from steadyarm.live.lifecycle import arms_of
from steadyarm.live.metrics import Metric
from steadyarm.policies import Policy
from steadyarm.storages.changes import AuditEntry
from steadyarm.validation import check_choice, finite_number
from steadyarm.wire.responses import ExperimentAnswer, ExperimentList, ListedExperiment
from steadyarm.wire.results import AuditLog

log = logging.getLogger("steadyarm.client")

OnUnknown = Literal["ignore", "raise"]


class AsyncClient:
    """A connection to a SteadyArm service for programs under asyncio; all tasks share one.

    It has the verbs of `Client`, to be awaited, and makes the same decisions: the two differ in how
    they wait. Positions are leased (`RemoteExperiment.local`) by `Client` alone. A buffer is
    written in other threads, and emptied in one.

    A call may be cancelled at any time. If its request was on the way, nobody knows whether it
    was processed; to repeat it is as harmless as after a lost answer. Every event loop has
    connections of its own; close the client in the loop that used it.

    Parameters and attributes are those of `Client`.

    pool : makes the connections

    Parameters
    ----------
    url, token, timeout, retries, default_arm, buffer, cooldown, jitter, on_unknown : see `Client`
    pool : makes the connections

    Examples
    --------
    >>> import asyncio
    >>> async def page():
    ...     async with AsyncClient("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...         return await client.experiment("shop").ask("visitor 1")
    >>> asyncio.run(page()).name
    'A'
    """

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
        jitter: random.Random | None = None,
        on_unknown: OnUnknown = "ignore",
        pool: Callable[[str, Mapping[str, str]], Pool] = AsyncioPool,
    ) -> None:
        self.default_arm = default_arm
        check_choice(on_unknown, "on_unknown", get_args(OnUnknown))
        self.on_unknown = on_unknown
        self.defaulted = self.ignored = self.lost = 0
        self._lock = Lock()
        self._experiments: dict[tuple[str, str | None], AsyncRemoteExperiment] = {}
        self._outside: dict[str, RecentUnits[None]] = {}  # by the experiment's name
        self.transport = Transport(url, token, timeout, retries, cooldown, jitter, pool)
        self.delivery: Delivery | None = None
        if buffer is not None:
            kept = buffer if isinstance(buffer, RewardBuffer) else RewardBuffer(Path(buffer))
            self.delivery = Delivery(self.transport, kept)
        forget_after_fork(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """Of the service."""
        return self.transport.url

    async def experiments(self) -> list[ListedExperiment]:
        """All experiments of the service."""
        found = await self.transport.call(ExperimentList, "GET", "experiments", within=PATIENCE)
        return found.experiments

    async def audit(
        self, after: int = 0, most: int = 1000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """The next entries of the service's audit log after an id; needs the scope admin.

        Parameters
        ----------
        after : the id of an entry; 0 for all
        most : how many entries
        experiment : name of the experiment they are about; of all by default

        Returns
        -------
        entries in the order of their ids
        """
        query = {"after": after, "most": most}
        named = {} if experiment is None else {"experiment": experiment}
        path = ("GET", "audit")
        found = await self.transport.call(AuditLog, *path, query=query | named, within=PATIENCE)
        return understood(lambda: [entry.to_entry() for entry in found.entries])

    def experiment(self, name: str, default_arm: str | None = None) -> AsyncRemoteExperiment:
        """The experiment of that name; requests are sent when it is used, not before.

        default_arm : in place of the client's
        """
        if not isinstance(name, str) or not name.strip("."):
            raise InvalidInputError(
                f"the name is {name!r}; expected an experiment's, such as 'checkout'."
            )
        arm = self.default_arm if default_arm is None else default_arm
        with self._lock:
            if (name, arm) not in self._experiments:
                outside = self._outside.setdefault(name, RecentUnits())
                self._experiments[name, arm] = AsyncRemoteExperiment(self, name, arm, outside)
            return self._experiments[name, arm]

    async def create(
        self,
        name: str,
        arms: ArmSet | Sequence[str] | Mapping[str, Any],
        policy: str | Policy[Any] | Mapping[str, Any] = "steady",
        *,
        budget: int,
        default_arm: str | None = None,
        **settings: Any,
    ) -> AsyncRemoteExperiment:
        """A new live test on the service; settings as in `create_experiment`.

        If the answer gets lost nobody knows whether it was created, and ExperimentExistsError
        may follow when you try again; with load_if_exists=True that does no harm.

        Parameters
        ----------
        name : letters, digits, dots, hyphens and underscores
        arms : the variants, names of them, or a table such as {"factorial": {…}}
        policy : how they are chosen: a policy, its name, or its settings
        budget : how many assignments will be made in all
        default_arm : variant that `ask` gives if the service gives none
        **settings : of `create_experiment`

        Returns
        -------
        the experiment
        """
        body = {
            "name": name,
            "arms": arms_of(arms) if isinstance(arms, ArmSet) else _plain(arms),
            "policy": policy.to_dict() if isinstance(policy, Policy) else policy,
            "budget": budget,
            **{key: _plain(value) for key, value in settings.items() if value is not None},
        }
        repeatable = bool(settings.get("load_if_exists"))
        await self.transport.call(
            ExperimentAnswer,
            "POST",
            "experiments",
            body=body,
            within=PATIENCE,
            repeatable=repeatable,
        )
        return self.experiment(name, default_arm)

    # Events and rewards, and those that wait

    async def track(
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
        (outcome,) = await self.track_many([event_report(event, unit, value, id, at)])
        if isinstance(outcome, UnknownAssignmentError) and self.on_unknown == "ignore":
            self.count("ignored")
            if self.transport.is_new(event, outcome):
                log.warning("an event was ignored: %s", outcome)
            return "ignored"
        if isinstance(outcome, SteadyArmError):
            raise outcome
        return outcome

    async def track_many(self, events: Sequence[RewardReport]) -> list[Result]:
        """The same for many events, at most a batch, that `event_report` made."""
        return await self.report(EVENTS, events, partial(send_rewards, self.transport, EVENTS))

    async def report(
        self, experiment: str, rewards: Sequence[RewardReport | Result], send: Send
    ) -> list[Result]:
        """What becomes of rewards: they are sent together, or kept if the service is down.

        Parameters
        ----------
        experiment : its name
        rewards : also results, of rewards of which it is known already; they stay in their places
        send : sends some of them
        """
        known = [
            await self._kept(experiment, one) if isinstance(one, RewardReport) else one
            for one in rewards
        ]
        sending = [one for one in known if isinstance(one, RewardReport)]
        sent = iter(await self._send_or_keep(experiment, sending, send) if sending else ())
        return [next(sent) if isinstance(one, RewardReport) else one for one in known]

    async def _kept(self, experiment: str, report: RewardReport) -> RewardReport | Result:
        """What becomes of a reward of a target that has one in the buffer; else the reward."""
        delivery = self.delivery
        if delivery is None or not delivery.waiting:
            return report
        try:
            held = await self.transport.pool.apart(lambda: delivery.holds(experiment, report))
        except SteadyArmError as error:
            return error
        return "kept" if held else report

    async def _send_or_keep(
        self, experiment: str, rewards: Sequence[RewardReport], send: Send
    ) -> list[Result]:
        delivery = self.delivery
        if delivery is None:
            return await send(rewards)
        if self.transport.breaker.allows():
            try:
                return await send(rewards)
            except DOWN:
                pass
        return await self.transport.pool.apart(lambda: delivery.keep(experiment, rewards))

    @property
    def pending(self) -> int:
        """Rewards in the buffer, of all processes that share it."""
        return 0 if self.delivery is None else self.delivery.pending

    @property
    def rejected(self) -> int:
        """Buffered rewards that the service refused when this client delivered them."""
        return 0 if self.delivery is None else self.delivery.rejected

    async def flush(self, within: float = PATIENCE) -> None:
        """Send the rewards in the buffer now; ServiceError if that takes longer.

        Parameters
        ----------
        within : seconds
        """
        delivery = self.delivery
        if delivery is not None:
            await self.transport.pool.apart(lambda: delivery.flush(within))

    def count(self, what: Literal["defaulted", "ignored", "lost"], more: int = 1) -> None:
        """Count one or more of what the attributes of the client say.

        Parameters
        ----------
        what : name of the attribute
        more : how many
        """
        with self._lock:
            setattr(self, what, getattr(self, what) + more)

    async def close(self) -> None:
        """Close connections; rewards that wait stay in their file."""
        if self.delivery is not None:
            await self.transport.pool.apart(self.delivery.close)
        await self.transport.pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def forget(self) -> None:
        """Renew the lock, which another thread may have held during a fork."""
        self._lock = Lock()


def event_report(
    event: str, unit: str, value: float = 1.0, id: str | None = None, at: At = None
) -> RewardReport:
    """An event of a unit, checked as the service does: one bad event must not hold up others."""
    checked_unit(event, "the event", "names a metric, such as purchase")
    checked_unit(unit, purpose="names who did it, such as a visitor's id")
    if id is not None:
        checked_unit(id, "the id of the event", "tells it from others of the unit")
    number = finite_number(value, f"the value of {event!r}")
    return RewardReport("unit", unit, {event: number}, seconds_of(at), id)


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Metric):
        return value.description()
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return dict(value) if isinstance(value, Mapping) else value
