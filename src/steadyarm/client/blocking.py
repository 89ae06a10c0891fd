"""Client and RemoteExperiment: the verbs of `AsyncClient` for programs whose threads wait."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Self, overload

from steadyarm.arms import ArmSet
from steadyarm.client.buffer import Delivery, RewardBuffer
from steadyarm.client.client import AsyncClient, OnUnknown
from steadyarm.client.pools import BlockingPool, blocking, forget_after_fork, run
from steadyarm.client.remote import AsyncRemoteExperiment, declared_in
from steadyarm.client.transport import R, RecentUnits, Transport
from steadyarm.live.attributes import Declared
from steadyarm.live.people import Breakdown
from steadyarm.live.verdict import Verdict
from steadyarm.policies import Policy


class Client:
    """A connection to a SteadyArm service; one serves a whole program, and threads share it.

    Requests are tried again if the service does not answer, where that is safe: assignments of
    units and rewards mean the same if they are processed twice.

    Parameters
    ----------
    url : of the service, such as "http://localhost:8000"; a /v1 at its end is left out
    token : that the service requires; see `steadyarm token create`
    timeout : seconds after which `ask` and `tell` give up, all tries together
    retries : how often a request is tried again
    default_arm : variant that `ask` gives if the service gives none: it is down, the budget is
        spent, the test is paused, the token is wrong. Logged; None raises the error instead
    buffer : file in which rewards are kept while the service is down. Without it `tell` raises
        ServiceError, or with a default arm the reward is lost. A `RewardBuffer` to say how many
    cooldown : seconds after a failure in which `ask` gives the default arm at once, and `tell`
        writes into the buffer at once; then one call tries whether the service is back
    jitter : makes the pauses between tries reproducible
    on_unknown : what `tell` and `track` do if the unit has no assignment: "ignore" logs and counts
        it, "raise" raises UnknownAssignmentError

    Attributes
    ----------
    defaulted : how often the default arm was given
    ignored : rewards of those, also by unit, and of units without an assignment
    lost : rewards that were neither delivered nor kept
    delivery : of buffered rewards; None without a buffer
    core : what decides, as coroutines that never wait for anything but connections

    Examples
    --------
    Pages still get a variant if nothing answers:

    >>> with Client("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...     shown = client.experiment("shop").ask("visitor 1")
    >>> shown.name, shown.id, client.defaulted
    ('A', '', 1)
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
    ) -> None:
        self.core = AsyncClient(
            url,
            token,
            timeout=timeout,
            retries=retries,
            default_arm=default_arm,
            buffer=buffer,
            cooldown=cooldown,
            jitter=jitter,
            on_unknown=on_unknown,
            pool=BlockingPool,
        )
        self._lock = Lock()
        self._experiments: dict[AsyncRemoteExperiment, RemoteExperiment] = {}
        forget_after_fork(self)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    @property
    def url(self) -> str:
        """Of the service."""
        return self.core.url

    @property
    def transport(self) -> Transport:
        """How requests are sent."""
        return self.core.transport

    @property
    def default_arm(self) -> str | None:
        """The variant that `ask` gives where the service gives none."""
        return self.core.default_arm

    @property
    def defaulted(self) -> int:
        """How often the default arm was given."""
        return self.core.defaulted

    @property
    def ignored(self) -> int:
        """Rewards of default arms and of units without an assignment."""
        return self.core.ignored

    @property
    def lost(self) -> int:
        """Rewards that were neither delivered nor kept."""
        return self.core.lost

    @property
    def delivery(self) -> Delivery | None:
        """Of buffered rewards; None without a buffer."""
        return self.core.delivery

    @property
    def pending(self) -> int:
        """Rewards in the buffer, of all processes that share it."""
        return self.core.pending

    @property
    def rejected(self) -> int:
        """Buffered rewards that the service refused when this client delivered them."""
        return self.core.rejected

    experiments = blocking(AsyncClient.experiments)
    audit = blocking(AsyncClient.audit)
    track = blocking(AsyncClient.track)
    flush = blocking(AsyncClient.flush)

    def experiment(self, name: str, default_arm: str | None = None) -> RemoteExperiment:
        """The experiment of that name; requests are sent when it is used, not before.

        default_arm : in place of the client's
        """
        core = self.core.experiment(name, default_arm)
        with self._lock:
            if core not in self._experiments:
                self._experiments[core] = RemoteExperiment(self, core)
            return self._experiments[core]

    def create(
        self,
        name: str,
        arms: ArmSet | Sequence[str] | Mapping[str, Any],
        policy: str | Policy[Any] | Mapping[str, Any] = "steady",
        *,
        budget: int,
        default_arm: str | None = None,
        **settings: Any,
    ) -> RemoteExperiment:
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
        RemoteExperiment
        """
        run(self.core.create(name, arms, policy, budget=budget, **settings))
        return self.experiment(name, default_arm)

    def close(self) -> None:
        """Close connections; rewards that wait stay in their file."""
        run(self.core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forget(self) -> None:
        """Renew the lock, which another thread may have held during a fork."""
        self._lock = Lock()


class RemoteExperiment:
    """An experiment of a service; `Client.experiment` and `Client.create` make one.

    It has the methods of `Experiment` and raises the same errors; what it does where the service
    gives no variant is said in `AsyncRemoteExperiment`, whose methods it calls and waits for.

    Parameters
    ----------
    client : that sends the requests
    core : what decides, as coroutines

    Examples
    --------
    >>> import steadyarm as sa
    >>> with sa.Client("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...     client.experiment("shop").ask("visitor 1").name  # nothing answers there
    'A'
    """

    def __init__(self, client: Client, core: AsyncRemoteExperiment) -> None:
        self.client, self.core = client, core

    def __repr__(self) -> str:
        return f"RemoteExperiment({self.name!r}, {self.client.url})"

    @property
    def name(self) -> str:
        """Of the experiment."""
        return self.core.name

    @property
    def default_arm(self) -> str | None:
        """The variant that `ask` gives where the service gives none."""
        return self.core.default_arm

    @property
    def outside(self) -> RecentUnits[None]:
        """Units that saw a default arm last."""
        return self.core.outside

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was created with, as `Settings.to_dict` writes it; requested once."""
        return run(self.core.settings())

    @property
    def sticky(self) -> bool:
        """Whether a unit keeps its first variant."""
        return run(self.core.known()).sticky == "unit"

    @property
    def values(self) -> Sequence[Any]:
        """What each variant stands for, in their order; empty if only the service has names."""
        return run(self.core.values())

    @property
    def attributes(self) -> Declared:
        """Attributes of units with their levels, as they were declared."""
        return declared_in(run(self.core.known()))

    @property
    def covariates(self) -> tuple[str, ...]:
        """Names of the numbers that are known of units, as they were declared."""
        return tuple(run(self.core.known()).covariates)

    @overload
    def recommend(
        self, level: float = 0.95, anytime: bool | None = None, by: None = None
    ) -> Verdict: ...

    @overload
    def recommend(
        self, level: float = 0.95, anytime: bool | None = None, *, by: str
    ) -> Breakdown: ...

    def recommend(
        self, level: float = 0.95, anytime: bool | None = None, by: str | None = None
    ) -> Verdict | Breakdown:
        """The best variant on mature visits, or a breakdown; see `Experiment.recommend`.

        Parameters
        ----------
        level, anytime, by : see `Experiment.recommend`
        """
        if by is not None:
            return run(self.core.recommend(level, anytime, by=by))
        return run(self.core.recommend(level, anytime))

    ask = blocking(AsyncRemoteExperiment.ask)
    ask_many = blocking(AsyncRemoteExperiment.ask_many)
    tell = blocking(AsyncRemoteExperiment.tell)
    tell_many = blocking(AsyncRemoteExperiment.tell_many)
    tell_checked = blocking(AsyncRemoteExperiment.tell_checked)
    health = blocking(AsyncRemoteExperiment.health)
    drift = blocking(AsyncRemoteExperiment.drift)
    status = blocking(AsyncRemoteExperiment.status)
    replay = blocking(AsyncRemoteExperiment.replay)
    export = blocking(AsyncRemoteExperiment.export)
    void = blocking(AsyncRemoteExperiment.void)
    correct = blocking(AsyncRemoteExperiment.correct)
    exclude = blocking(AsyncRemoteExperiment.exclude)
    include = blocking(AsyncRemoteExperiment.include)
    erase = blocking(AsyncRemoteExperiment.erase)
    corrections = blocking(AsyncRemoteExperiment.corrections)
    start = blocking(AsyncRemoteExperiment.start)
    pause = blocking(AsyncRemoteExperiment.pause)
    resume = blocking(AsyncRemoteExperiment.resume)
    stop = blocking(AsyncRemoteExperiment.stop)
    archive = blocking(AsyncRemoteExperiment.archive)
    roll_out = blocking(AsyncRemoteExperiment.roll_out)

    def call(self, gives: type[R], method: str, *path: str, **more: Any) -> R:
        """Send a request about this experiment; see `Transport.call`.

        Parameters
        ----------
        gives : type of the response
        method : of HTTP
        *path : after the path of the experiment
        **more : for `Transport.call`
        """
        return run(self.core.call(gives, method, *path, **more))
