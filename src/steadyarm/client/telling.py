"""Telling: which rewards are sent, which wait in the buffer, and which are of no test."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from steadyarm.answers import LATEST, At, LiveAssignment, Reported, instant, shortened, ticket_in
from steadyarm.client.buffer import Told
from steadyarm.client.problems import DOWN
from steadyarm.client.reading import Outcome
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.validation import finite_number

if TYPE_CHECKING:
    from steadyarm.client.client import Client

__all__ = ["Telling"]

Send = Callable[[Sequence[Told]], list[Outcome | SteadyArmError]]


class Telling:
    """Rewards of one experiment, on their way to the service.

    Attributes
    ----------
    tag : that the experiment's ids begin with, once one was seen
    """

    def __init__(self, client: Client, name: str) -> None:
        self.tag: str | None = None
        self._client, self._name = client, name

    def tell(
        self,
        rewards: Sequence[Reported],
        send: Send,
        outside: Container[str] = (),
    ) -> list[Outcome | SteadyArmError]:
        """What becomes of each reward; those that can be sent are, together.

        outside : units whose rewards are of no test, since they were shown a default arm
        """
        outcomes: list[Outcome | SteadyArmError | None] = []
        sending: list[Told] = []
        for target, reward, *at in rewards:
            try:
                told = self._told(target, reward, at[0] if at else None)
                outcomes.append(self._here(told, outside))
            except SteadyArmError as error:
                outcomes.append(error)
            if outcomes[-1] is None:
                sending.append(told)
        sent = iter(self._or_keep(sending, send) if sending else ())
        return [next(sent) if outcome is None else outcome for outcome in outcomes]

    def _here(self, told: Told, outside: Container[str]) -> Outcome | None:
        """What becomes of it without the service; None if that must be asked."""
        if not told.target or (told.kind == "unit" and told.target in outside):
            self._client.count("ignored")
            return "ignored"
        return "kept" if self._client.holds(self._name, told) else None

    def _or_keep(self, rewards: Sequence[Told], send: Send) -> list[Outcome | SteadyArmError]:
        if not self._client.buffers:
            return send(rewards)
        if self._client.transport.breaker.allows():
            try:
                return send(rewards)
            except DOWN:
                pass
        return self._client.keep(self._name, rewards)

    def _told(self, target: LiveAssignment | str, reward: float, at: At) -> Told:
        value = finite_number(reward, "the reward")
        when = time.time()
        if isinstance(at, timedelta):
            when -= at.total_seconds()
        elif at is not None:
            when = instant(at, LATEST) / 1e6
        if isinstance(target, LiveAssignment):
            return Told("assignment", target.id, value, when)
        if not isinstance(target, str):
            raise InvalidInputError(
                f"the reward is of {target!r}; expected what ask() gave, its id, or a unit."
            )
        try:
            target.encode()
        except UnicodeEncodeError:  # neither the service nor the buffer can have it
            raise InvalidInputError(
                f"the reward is of {shortened(target)}, which is no proper text; expected one "
                "without halves of characters."
            ) from None
        # The service, too, takes a "unit" in the form of this experiment's ids for an id.
        known = self.tag is not None and ticket_in(target, self.tag) is not None
        return Told("assignment" if known else "unit", target, value, when)
