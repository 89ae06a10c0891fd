"""Client: experiments of a service, from another program."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from steadyarm.arms import ArmSet
from steadyarm.client.buffer import Delivery, RewardBuffer
from steadyarm.client.remote import RemoteExperiment
from steadyarm.client.transport import (
    PATIENCE,
    RecentUnits,
    Transport,
    forget_after_fork,
    understood,
)
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import arms_of
from steadyarm.live.metrics import Metric
from steadyarm.policies import Policy
from steadyarm.storages.changes import AuditEntry
from steadyarm.wire.responses import ExperimentAnswer, ExperimentList, ListedExperiment
from steadyarm.wire.results import AuditLog

if TYPE_CHECKING:
    from steadyarm.client.local import LocalExperiment


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
    buffer : file in which rewards are kept while the service is down; None raises ServiceError. A
        `RewardBuffer` to say how many
    cooldown : seconds after a failure in which `ask` gives the default arm at once, and `tell`
        writes into the buffer at once; then one call tries whether the service is back
    jitter : makes the pauses between tries reproducible

    Attributes
    ----------
    defaulted : how often the default arm was given
    ignored : rewards of those, also by unit; they are not part of a test
    delivery : of buffered rewards; None without a buffer

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
    ) -> None:
        self.default_arm = default_arm
        self.defaulted = self.ignored = 0
        self._lock = Lock()
        self._experiments: dict[tuple[str, str | None], RemoteExperiment] = {}
        self._outside: dict[str, RecentUnits[None]] = {}  # by the experiment's name
        self._local: list[LocalExperiment] = []
        self.transport = Transport(url, token, timeout, retries, cooldown, jitter)
        self.delivery: Delivery | None = None
        if buffer is not None:
            kept = buffer if isinstance(buffer, RewardBuffer) else RewardBuffer(Path(buffer))
            self.delivery = Delivery(self.transport, kept)
        forget_after_fork(self)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    @property
    def url(self) -> str:
        """Of the service."""
        return self.transport.url

    def experiments(self) -> list[ListedExperiment]:
        """All experiments of the service."""
        found = self.transport.call(ExperimentList, "GET", "experiments", within=PATIENCE)
        return found.experiments

    def audit(
        self, after: int = 0, most: int = 1000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """The next entries of the service's audit log after an id; needs the scope admin."""
        query = {"after": after, "most": most}
        named = {} if experiment is None else {"experiment": experiment}
        found = self.transport.call(AuditLog, "GET", "audit", query=query | named, within=PATIENCE)
        return understood(lambda: [entry.to_entry() for entry in found.entries])

    def experiment(self, name: str, default_arm: str | None = None) -> RemoteExperiment:
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
                self._experiments[name, arm] = RemoteExperiment(self, name, arm, outside)
            return self._experiments[name, arm]

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
        """
        body = {
            "name": name,
            "arms": arms_of(arms) if isinstance(arms, ArmSet) else _plain(arms),
            "policy": policy.to_dict() if isinstance(policy, Policy) else policy,
            "budget": budget,
            **{key: _plain(value) for key, value in settings.items() if value is not None},
        }
        repeatable = bool(settings.get("load_if_exists"))
        self.transport.call(
            ExperimentAnswer,
            "POST",
            "experiments",
            body=body,
            within=PATIENCE,
            repeatable=repeatable,
        )
        return self.experiment(name, default_arm)

    # Rewards that wait

    @property
    def pending(self) -> int:
        """Rewards in the buffer, of all processes that share it."""
        return 0 if self.delivery is None else self.delivery.pending

    @property
    def rejected(self) -> int:
        """Buffered rewards that the service refused when this client delivered them."""
        return 0 if self.delivery is None else self.delivery.rejected

    def flush(self, within: float = PATIENCE) -> None:
        """Send the rewards in the buffer now; ServiceError if that takes longer."""
        if self.delivery is not None:
            self.delivery.flush(within)

    def count(self, what: str) -> None:
        """One more of `defaulted` or `ignored`."""
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)

    def owning(self, local: LocalExperiment) -> LocalExperiment:
        """Close it at the latest with this client."""
        with self._lock:
            self._local = [other for other in self._local if not other.closed]
            self._local.append(local)
        return local

    def close(self) -> None:
        """Close connections and local experiments; rewards that wait stay in their file."""
        for local in self._local:
            local.close()
        if self.delivery is not None:
            self.delivery.close()
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forget(self) -> None:
        """Renew the lock, which another thread may have held during a fork."""
        self._lock = Lock()


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Metric):
        return value.description()
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return dict(value) if isinstance(value, Mapping) else value
