"""RemoteExperiment: ask/tell for a live test that a service keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyarm.client.buffer import Told
from steadyarm.client.delivery import BATCH, Telling, in_halves, send_rewards
from steadyarm.client.fallback import Fallback, UnitsOutside
from steadyarm.client.responses import (
    Outcome,
    TooLargeError,
    corrected_in,
    drift_in,
    entries_in,
    health_in,
    names_in,
    outcome_in,
    read_assignment,
    results_in,
    status_in,
    understood,
    verdict_in,
)
from steadyarm.client.transport import PATIENCE
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.inference import DriftReport, HealthReport
from steadyarm.live.assignments import At, LiveAssignment, Reported, Status
from steadyarm.live.verdict import Verdict
from steadyarm.storages.changes import AuditEntry, Corrected
from steadyarm.validation import check_choice

if TYPE_CHECKING:
    from steadyarm.client.client import Client
    from steadyarm.client.local import LocalExperiment

__all__ = ["RemoteExperiment", "is_default"]

LONGEST = 300.0  # seconds in which a period with very many visits is excluded


def is_default(assignment: LiveAssignment) -> bool:
    """Whether this is the default arm, since the service gave no variant: no part of the test."""
    return not assignment.id


class RemoteExperiment:
    """An experiment of a service; `Client.experiment` and `Client.create` make one.

    It has the verbs of `Experiment` and raises the same errors. With a default arm `ask` answers
    with that whenever the service gives no variant, because it is down, the budget is spent, the
    test is paused or a token is wrong: an assignment without id, see `is_default`. The reason is
    logged as a warning of "steadyarm.client", each kind at most once a minute.

    Rewards of default answers are ignored, also when told by unit, until the unit gets a variant
    of the test here; other processes cannot know what it was shown.
    """

    def __init__(
        self, client: Client, name: str, default_arm: str | None, outside: UnitsOutside
    ) -> None:
        self.client, self.name = client, name
        self._fallback = Fallback(client, name, default_arm, outside)
        self._path = ("experiments", name)
        self._settings: Mapping[str, Any] | None = None
        self._names: Sequence[str] = ()
        self._telling = Telling(client, name)
        self.outside = outside

    def __repr__(self) -> str:
        return f"RemoteExperiment({self.name!r}, {self.client.url})"

    @property
    def default_arm(self) -> str | None:
        """What `ask` answers with where the service gives no variant."""
        return self._fallback.arm

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was created with, as `Settings.to_dict` has it; asked for once."""
        if self._settings is None:
            self._learn(self.call("GET"))
        assert self._settings is not None, "just learned"
        return self._settings

    def _learn(self, answer: Any) -> None:
        self._names = understood(lambda got: names_in(got["settings"]), answer)
        self._settings = answer["settings"]
        self._fallback.learn(self._names)

    @property
    def sticky(self) -> bool:
        """Whether a unit keeps its first variant."""
        return understood(lambda settings: bool(settings["sticky"] == "unit"), self.settings)

    # Handing out

    def ask(self, unit: str | None = None) -> LiveAssignment:
        """The variant to show to a unit.

        A unit that keeps its variant may be asked for again and again, and is if the answer gets
        lost. With sticky="none" every request is another assignment: one whose answer gets lost
        stays without reward, and is not asked for again. With a default arm only a bad unit raises.
        """
        return self.one_or_default(unit, lambda: self.ask_service(unit))

    def ask_service(self, unit: str | None) -> LiveAssignment:
        """The service's answer, never the default arm."""
        status, answer = self.client.transport.answer(
            "POST", *self._path, "assignments", body={"unit": unit}, repeatable=self.sticky
        )
        return self.assignment_in(answer, status == 201)

    def one_or_default(self, unit: str | None, ask: Callable[[], LiveAssignment]) -> LiveAssignment:
        """What `ask` gives, or else the default arm, if there is one."""
        (answer,) = self._or_default([unit], lambda: [ask()])
        assert isinstance(answer, LiveAssignment)
        return answer

    def ask_many(self, units: Sequence[str | None]) -> list[LiveAssignment | SteadyArmError]:
        """Variants for many units, in their order; an error stands in the place of one refused.

        With a default arm that stands there, but for a bad unit.
        """
        parts = (units[i : i + BATCH] for i in range(0, len(units), BATCH))
        return [
            answer
            for part in parts
            for answer in in_halves(self._ask_part, part, raising=SteadyArmError)
        ]

    def _ask_part(self, units: Sequence[str | None]) -> list[LiveAssignment | SteadyArmError]:
        def many() -> list[LiveAssignment | SteadyArmError]:
            answer = self.call(
                "POST",
                "assignments:batch",
                body={"units": list(units)},
                within=PATIENCE,
                repeatable=self.sticky,
            )
            found = understood(results_in, answer, "assignments", len(units))
            return [
                one if isinstance(one, SteadyArmError) else self.assignment_in(one) for one in found
            ]

        return self._or_default(units, many)

    def _or_default(
        self,
        units: Sequence[str | None],
        ask: Callable[[], list[LiveAssignment | SteadyArmError]],
    ) -> list[LiveAssignment | SteadyArmError]:
        transport = self.client.transport
        found: Sequence[LiveAssignment | SteadyArmError]
        if self.default_arm is None:
            found = ask()
        elif transport.breaker.allows():
            try:
                found = ask()
            except InvalidInputError:
                raise
            except SteadyArmError as error:
                if isinstance(error, TooLargeError) and len(units) > 1:
                    raise  # fewer at a time may work
                found = [error] * len(units)
        else:
            found = [transport.failure] * len(units)
        return [
            self._fallback.settle(unit, answer) for unit, answer in zip(units, found, strict=True)
        ]

    def assignment_in(self, data: Mapping[str, Any], new: bool | None = None) -> LiveAssignment:
        """An assignment that the service tells of."""
        assignment = understood(read_assignment, data, self._names, new)
        self._telling.tag = assignment.id.partition("-")[0]
        return assignment

    def local(self, positions: int = 1000, seconds: float = 60.0) -> LocalExperiment:
        """Hand out variants in this process, without a request for each; see `LocalExperiment`."""
        from steadyarm.client.local import LocalExperiment

        return self.client.owning(LocalExperiment(self, positions, seconds))

    # Rewards

    def tell(
        self,
        assignment: LiveAssignment | str,
        reward: float,
        at: At = None,
    ) -> None:
        """The reward of an assignment, of its id, or of a unit; the same told again is fine.

        If the service is down the reward is kept in the client's buffer, if it has one. The reward
        of a default arm is ignored, and counted; so is that of a unit which was shown it last.

        at : when it happened, if not just now, as in `Experiment.tell`; the service is told when in
            any case, so that a reward which waits in the buffer counts by when it happened
        """
        (outcome,) = self._telling.tell([(assignment, reward, at)], self._tell_one, self.outside)
        if isinstance(outcome, SteadyArmError):
            raise outcome

    def tell_many(self, rewards: Iterable[Reported]) -> list[Outcome | SteadyArmError]:
        """Rewards of many assignments, in their order; a third value is when each happened.

        Says for each whether it was "stored", there already ("repeated"), "kept" until the service
        is back, or "ignored" as that of a default arm; an error stands in the place of one refused.
        """
        given = list(rewards)
        parts = (given[i : i + BATCH] for i in range(0, len(given), BATCH))
        return [
            outcome
            for part in parts
            for outcome in self._telling.tell(part, self._tell_part, self.outside)
        ]

    def tell_checked(self, rewards: Sequence[Reported]) -> list[Outcome | SteadyArmError]:
        """Rewards, at most a batch, that were found to be of the test when they were told."""
        return self._telling.tell(rewards, self._tell_part)

    def _tell_one(self, rewards: Sequence[Told]) -> list[Outcome | SteadyArmError]:
        (told,) = rewards
        answer = self.call("POST", "rewards", body=told.to_dict(), stamped=True)
        return [understood(outcome_in, answer)]

    def _tell_part(self, rewards: Sequence[Told]) -> list[Outcome | SteadyArmError]:
        return send_rewards(self.client.transport, self.name, rewards)

    # What it concludes

    def recommend(self, level: float = 0.95, anytime: bool | None = None) -> Verdict:
        """The best variant on mature visits; see `Experiment.recommend`."""
        query: dict[str, Any] = {"level": level}
        if anytime is not None:
            query["anytime"] = str(bool(anytime)).lower()
        return understood(verdict_in, self._read("recommendation", **query))

    def health(self) -> HealthReport:
        """Whether variants were handed out as planned, and whose rewards are missing."""
        return understood(health_in, self._read("health"))

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise."""
        return understood(drift_in, self._read("drift", periods=periods, level=level))

    def status(self) -> Status:
        """Where the test stands, in numbers."""
        answer = self.call("GET")
        self._learn(answer)
        return understood(status_in, answer)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write every assignment with its reward into a file: .csv or .parquet.

        This is the log, for `steadyarm analyze` and for other programs. To move an experiment
        into another storage use `steadyarm experiment export` on the storage itself: it writes
        the log and the description that `import` needs with it.
        """
        target = Path(path)
        form = target.suffix.lstrip(".")
        check_choice(form, "the file's ending", ("csv", "parquet"))
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with (
                self.client.transport.stream(
                    *self._path, "export", query={"format": form}
                ) as pieces,
                unfinished.open("wb") as file,
            ):
                file.writelines(pieces)
            return unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)

    # Corrections; they need the scope admin, and the token's name is the author

    def void(self, target: LiveAssignment | str, *, reason: str) -> Corrected:
        """Take back the reward of an assignment, of its id, or of a unit."""
        return self._correct("void", reason, **_aimed(target))

    def correct(self, target: LiveAssignment | str, reward: float, *, reason: str) -> Corrected:
        """Give an assignment another reward in the place of the one it has."""
        return self._correct("correct", reason, **_aimed(target), reward=reward)

    def exclude(
        self,
        *,
        unit: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str,
    ) -> Corrected:
        """Leave out all visits of a unit, or those of a period; see `Experiment.exclude`."""
        times = {"since": since, "until": until}
        given = {name: when.isoformat() for name, when in times.items() if when is not None}
        named = {} if unit is None else {"unit": unit}
        return self._correct("exclude", reason, **given, **named)

    def include(self, entry: int, *, reason: str) -> Corrected:
        """Undo an exclusion, by the id of its entry in the audit log."""
        return self._correct("include", reason, entry=entry)

    def erase(self, unit: str, *, reason: str = "") -> Corrected:
        """Erase the identity of a unit; rewards that wait in this client's buffer keep it."""
        return self._correct("erase", reason, unit=unit)

    def corrections(self) -> list[AuditEntry]:
        """The entries of the audit log that corrected something, oldest first."""
        return understood(entries_in, self._read("corrections"), "corrections")

    def _correct(self, kind: str, reason: str, **given: Any) -> Corrected:
        body = {"kind": kind, "reason": reason, **given}
        answer = self.call("POST", "corrections", body=body, within=LONGEST, repeatable=False)
        return understood(corrected_in, answer)

    # States

    def start(self) -> Status:
        """From draft to running."""
        return self._move("start")

    def pause(self) -> Status:
        """Hand nothing out for now; rewards are still counted."""
        return self._move("pause")

    def resume(self) -> Status:
        """From paused to running again."""
        return self._move("resume")

    def stop(self) -> Status:
        """Hand nothing out any more; rewards of what was handed out are still counted."""
        return self._move("stop")

    def archive(self) -> Status:
        """Close the books: neither assignments nor rewards any more."""
        return self._move("archive")

    def _move(self, verb: str) -> Status:
        return understood(status_in, self.call("POST", verb, within=PATIENCE))

    def _read(self, what: str, **query: Any) -> Any:
        return self.call("GET", what, query=query, within=PATIENCE)

    def call(self, method: str, *path: str, **more: Any) -> Any:
        """A request about this experiment; see `Transport.call`."""
        return self.client.transport.call(method, *self._path, *path, **more)


def _aimed(target: LiveAssignment | str) -> dict[str, str]:
    """Whose reward; the service takes a unit in the form of the experiment's ids for an id."""
    return {"assignment": target.id} if isinstance(target, LiveAssignment) else {"unit": target}
