"""RemoteExperiment: ask and tell for a live test that a service runs."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import msgspec

from steadyarm.client.buffer import Outcome, RewardReport, send_rewards
from steadyarm.client.transport import (
    BATCH,
    DOWN,
    PATIENCE,
    R,
    RecentUnits,
    TooLargeError,
    each_in,
    in_halves,
    understood,
)
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.inference import DriftReport, HealthReport
from steadyarm.live.assignments import (
    At,
    LiveAssignment,
    Reported,
    Status,
    Values,
    finite_values,
)
from steadyarm.live.attributes import Declared, Given, check_as_many, check_attribute
from steadyarm.live.covariates import Covariates, with_expected
from steadyarm.live.people import Breakdown
from steadyarm.live.verdict import Verdict
from steadyarm.storages.changes import AuditEntry, Corrected
from steadyarm.storages.records import LATEST, parse_assignment_id, to_micros
from steadyarm.validation import check_choice
from steadyarm.wire.responses import (
    AssignmentAnswer,
    Assignments,
    ExperimentAnswer,
    RewardStatus,
    SettingsAnswer,
)
from steadyarm.wire.results import (
    BreakdownAnswer,
    CorrectedAnswer,
    Corrections,
    Drift,
    Health,
    Recommendation,
)
from steadyarm.wording import shortened

if TYPE_CHECKING:
    from steadyarm.client.client import Client
    from steadyarm.client.local import LocalExperiment


log = logging.getLogger("steadyarm.client")

LISTED = 20  # variants; no more fit into a message
EVERY = 60.0  # seconds between two lines in the log for the same kind of reason
LONGEST = 300.0  # seconds in which a period with very many visits is excluded


Send = Callable[[Sequence[RewardReport]], list[Outcome | SteadyArmError]]


class Fallback:
    """The default arm of one experiment; `arm` is None if there is none.

    units : which saw it last. A reward that is reported by such a unit must not count for a
        variant that the unit was given elsewhere
    """

    def __init__(
        self,
        client: Client,
        experiment: str,
        arm: str | None,
        units: RecentUnits[None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arm, self.units = arm, units
        self._client, self._experiment, self._clock = client, experiment, clock
        self._names: Sequence[str] | None = None
        self._logged: dict[type[SteadyArmError], float] = {}

    def learn(self, names: Sequence[str]) -> None:
        """Remember the experiment's variants; the default arm should be one of them."""
        if self._names is None and self.arm is not None and names and self.arm not in names:
            log.warning(
                "the default arm %r is no variant of the experiment %r; it has %s",
                self.arm,
                self._experiment,
                shortened(list(names[:LISTED])),
            )
        self._names = names

    def settle(
        self, unit: str | None, answer: LiveAssignment | SteadyArmError
    ) -> LiveAssignment | SteadyArmError:
        """The same answer, or the default arm instead of an error that is not the unit's fault."""
        if isinstance(answer, LiveAssignment):
            self.units.pop(unit or "")
            return answer
        if self.arm is None or isinstance(answer, InvalidInputError):
            return answer
        self._log(answer)
        if unit and isinstance(unit, str):
            self.units[unit] = None
        self._client.count("defaulted")
        names = self._names or ()
        arm = names.index(self.arm) if self.arm in names else -1
        return LiveAssignment("", unit or "", arm, self.arm, math.nan, datetime.now(UTC), False)

    def _log(self, reason: SteadyArmError) -> None:
        now, kind = self._clock(), type(reason)
        if now - self._logged.get(kind, -math.inf) >= EVERY:
            self._logged[kind] = now
            log.warning(
                "the experiment %r answers with its default arm %r, outside the test: %s: %s",
                self._experiment,
                self.arm,
                kind.__name__,
                reason,
            )


def is_default(assignment: LiveAssignment) -> bool:
    """Whether this is the default arm, which is shown where the service gives no variant."""
    return not assignment.id


class RemoteExperiment:
    """An experiment of a service; `Client.experiment` and `Client.create` make one.

    It has the methods of `Experiment` and raises the same errors. With a default arm `ask` gives
    that arm whenever the service gives no variant, because it is down, the budget is spent, the
    test is paused or a token is wrong: an assignment without id, see `is_default`. The reason is
    logged as a warning of "steadyarm.client", each kind at most once a minute.

    Rewards of default arms are ignored, also those reported by unit, until the unit gets a variant
    of the test here; other processes cannot know what it was shown.
    """

    def __init__(
        self, client: Client, name: str, default_arm: str | None, outside: RecentUnits[None]
    ) -> None:
        self.client, self.name, self.outside = client, name, outside
        self._fallback = Fallback(client, name, default_arm, outside)
        self._path = ("experiments", name)
        self._settings: SettingsAnswer | None = None
        self._names: Sequence[str] = ()
        self._tag: str | None = None  # with which ids of the experiment begin, once one was seen

    def __repr__(self) -> str:
        return f"RemoteExperiment({self.name!r}, {self.client.url})"

    @property
    def default_arm(self) -> str | None:
        """The variant that `ask` gives where the service gives none."""
        return self._fallback.arm

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was created with, as `Settings.to_dict` writes it; requested once."""
        found: Mapping[str, Any] = msgspec.to_builtins(self._known)
        return found

    @property
    def sticky(self) -> bool:
        """Whether a unit keeps its first variant."""
        return self._known.sticky == "unit"

    @property
    def attributes(self) -> Declared:
        """Attributes of units with their levels, as they were declared."""
        return {name: tuple(levels) for name, levels in self._known.attributes.items()}

    @property
    def covariates(self) -> tuple[str, ...]:
        """Names of the numbers that are known of units, as they were declared."""
        return tuple(self._known.covariates)

    @property
    def _known(self) -> SettingsAnswer:
        if self._settings is None:
            return self._learn(self.call(ExperimentAnswer, "GET")).settings
        return self._settings

    def _learn(self, found: ExperimentAnswer) -> ExperimentAnswer:
        self._names = understood(lambda: found.settings.names)
        self._settings = found.settings
        self._fallback.learn(self._names)
        return found

    # Assignments

    def ask(
        self,
        unit: str | None = None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
        expected: float | None = None,
    ) -> LiveAssignment:
        """The variant to show to a unit.

        If the response gets lost, the request for a unit that keeps its variant is sent again,
        which gives the same variant. With sticky="none" every request is another assignment: one
        whose response gets lost stays without reward, and is not requested again. With a default
        arm only a bad unit, bad attributes or bad covariates raise.

        attributes, covariates, expected : what is known of the unit, as in `Experiment.ask`
        """
        known = with_expected(covariates, expected)
        return self.one_or_default(unit, lambda: self.ask_service(unit, attributes, known))

    def ask_service(
        self,
        unit: str | None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
    ) -> LiveAssignment:
        """The variant that the service gives, never the default arm."""
        body: dict[str, Any] = {"unit": unit}
        if attributes is not None:
            body["attributes"] = dict(attributes)
        if covariates is not None:
            body["covariates"] = dict(covariates)
        return self.assignment_in(
            self.call(AssignmentAnswer, "POST", "assignments", body=body, repeatable=self.sticky)
        )

    def one_or_default(self, unit: str | None, ask: Callable[[], LiveAssignment]) -> LiveAssignment:
        """What `ask` gives, or else the default arm, if there is one."""
        (answer,) = self._or_default([unit], lambda: [ask()])
        assert isinstance(answer, LiveAssignment)
        return answer

    def ask_many(
        self,
        units: Sequence[str | None],
        attributes: Sequence[Given | None] | None = None,
        covariates: Sequence[Covariates | None] | None = None,
    ) -> list[LiveAssignment | SteadyArmError]:
        """Variants for many units, in their order; an error takes the place of one refused.

        With a default arm that takes its place, unless the unit is bad.

        attributes, covariates : of each unit, as in `Experiment.ask_many`
        """
        check_as_many(units, attributes, "attributes")
        check_as_many(units, covariates, "covariates")
        none = [None] * len(units)
        visits = list(zip(units, attributes or none, covariates or none, strict=True))
        parts = (visits[i : i + BATCH] for i in range(0, len(visits), BATCH))
        return [
            answer
            for part in parts
            for answer in in_halves(self._ask_part, part, raising=SteadyArmError)
        ]

    def _ask_part(
        self, visits: Sequence[tuple[str | None, Given | None, Covariates | None]]
    ) -> list[LiveAssignment | SteadyArmError]:
        units, attributes, covariates = map(list, zip(*visits, strict=True))
        body: dict[str, Any] = {"units": units}
        for name, given in (("attributes", attributes), ("covariates", covariates)):
            if any(one is not None for one in given):
                body[name] = given

        def many() -> list[LiveAssignment | SteadyArmError]:
            found = self.call(
                Assignments,
                *("POST", "assignments:batch"),
                body=body,
                within=PATIENCE,
                repeatable=self.sticky,
            )
            return self.assignments_in(found, len(units))

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

    def assignment_in(self, found: AssignmentAnswer) -> LiveAssignment:
        """The assignment in a response."""
        self._tag = found.id.partition("-")[0]
        return found.to_assignment(self._names)

    def assignments_in(
        self, found: Assignments, count: int
    ) -> list[LiveAssignment | SteadyArmError]:
        """The assignments in a response to so many units, and why some have none."""
        each = each_in(found.assignments, AssignmentAnswer, count)
        return [one if isinstance(one, SteadyArmError) else self.assignment_in(one) for one in each]

    def local(self, positions: int = 1000, seconds: float = 60.0) -> LocalExperiment:
        """Assign variants in this process, without a request for each; see `LocalExperiment`."""
        from steadyarm.client.local import LocalExperiment

        return self.client.owning(LocalExperiment(self, positions, seconds))

    # Rewards

    def tell(
        self,
        assignment: LiveAssignment | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> None:
        """Report what an assignment, its id, or a unit brought; repeating it is harmless.

        If the service is down the reward is kept in the client's buffer, if it has one. The reward
        of a default arm is ignored, and counted; so is that of a unit which was shown one last.

        at : when it happened, if not just now, as in `Experiment.tell`; the time is sent in any
            case, so that a reward which waits in the buffer counts by when it happened
        reward, event : values by the names of metrics and the key of their event are as in
            `Experiment.tell`, too
        """
        (outcome,) = self._tell([(assignment, reward, at, event)], self._tell_one, self.outside)
        if isinstance(outcome, SteadyArmError):
            raise outcome

    def tell_many(self, rewards: Iterable[Reported]) -> list[Outcome | SteadyArmError]:
        """Report the rewards of many assignments, in their order; a third value is when it was.

        Each is "stored", there already ("repeated"), "kept" until the service is back, or "ignored"
        as that of a default arm; an error takes the place of one refused.
        """
        given = list(rewards)
        parts = (given[i : i + BATCH] for i in range(0, len(given), BATCH))
        return [
            outcome for part in parts for outcome in self._tell(part, self._tell_part, self.outside)
        ]

    def tell_checked(self, rewards: Sequence[Reported]) -> list[Outcome | SteadyArmError]:
        """Report rewards, at most a batch, that are known to be part of the test."""
        return self._tell(rewards, self._tell_part)

    def _tell(
        self, rewards: Sequence[Reported], send: Send, outside: Container[str] = ()
    ) -> list[Outcome | SteadyArmError]:
        """What becomes of each reward: it is sent, buffered or ignored; those sent go together.

        outside : units whose rewards are not part of the test, because they saw a default arm
        """
        outcomes: list[Outcome | SteadyArmError | None] = []
        sending: list[RewardReport] = []
        for target, reward, *more in rewards:
            try:
                report = self._report(target, reward, *more)
                outcomes.append(self._here(report, outside))
            except SteadyArmError as error:
                outcomes.append(error)
            if outcomes[-1] is None:
                sending.append(report)
        sent = iter(self._send_or_keep(sending, send) if sending else ())
        return [next(sent) if outcome is None else outcome for outcome in outcomes]

    def _here(self, report: RewardReport, outside: Container[str]) -> Outcome | None:
        """What becomes of a reward without the service; None if it must be sent."""
        if not report.target or (report.kind == "unit" and report.target in outside):
            self.client.count("ignored")
            return "ignored"
        delivery = self.client.delivery
        return "kept" if delivery and delivery.holds(self.name, report) else None

    def _send_or_keep(
        self, rewards: Sequence[RewardReport], send: Send
    ) -> list[Outcome | SteadyArmError]:
        delivery = self.client.delivery
        if delivery is None:
            return send(rewards)
        if self.client.transport.breaker.allows():
            try:
                return send(rewards)
            except DOWN:
                pass
        return delivery.keep(self.name, rewards)

    def _report(
        self,
        target: LiveAssignment | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> RewardReport:
        value = finite_values(reward)
        when = time.time()
        if isinstance(at, timedelta):
            when -= at.total_seconds()
        elif at is not None:
            when = to_micros(at, LATEST) / 1e6
        if isinstance(target, LiveAssignment):
            return RewardReport("assignment", target.id, value, when, event)
        if not isinstance(target, str):
            raise InvalidInputError(
                f"the reward is of {target!r}; expected an assignment, its id, or a unit."
            )
        try:
            target.encode()
        except UnicodeEncodeError:  # neither the service nor the buffer can store it
            raise InvalidInputError(
                f"the reward is of {shortened(target)}, which is no proper text; expected one "
                "without halves of characters."
            ) from None
        # The service, too, takes a "unit" in the form of this experiment's ids for an id.
        known = self._tag is not None and parse_assignment_id(target, self._tag) is not None
        return RewardReport("assignment" if known else "unit", target, value, when, event)

    def _tell_one(self, rewards: Sequence[RewardReport]) -> list[Outcome | SteadyArmError]:
        (report,) = rewards
        return [
            self.call(RewardStatus, "POST", "rewards", body=report.to_dict(), stamped=True).status
        ]

    def _tell_part(self, rewards: Sequence[RewardReport]) -> list[Outcome | SteadyArmError]:
        return send_rewards(self.client.transport, self.name, rewards)

    # Results

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
        """The best variant on mature visits, or a breakdown; see `Experiment.recommend`."""
        query: dict[str, Any] = {"level": level}
        if anytime is not None:
            query["anytime"] = str(bool(anytime)).lower()
        if by is not None:
            check_attribute(self.attributes, by)
            path = ("GET", "breakdowns", by)
            found = self.call(BreakdownAnswer, *path, query=query, within=PATIENCE)
            return understood(found.to_breakdown)
        return understood(self._read(Recommendation, "recommendation", **query).to_verdict)

    def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing."""
        return self._read(Health, "health").to_report()

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise."""
        return understood(self._read(Drift, "drift", periods=periods, level=level).to_report)

    def status(self) -> Status:
        """The progress of the test in numbers."""
        return understood(self._learn(self.call(ExperimentAnswer, "GET")).to_status)

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
        stream = self.client.transport.stream
        try:
            with (
                stream(*self._path, "export", query={"format": form}) as pieces,
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
        """Replace the reward of an assignment."""
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
        given = {
            "unit": unit,
            "since": None if since is None else since.isoformat(),
            "until": None if until is None else until.isoformat(),
        }
        return self._correct("exclude", reason, **given)

    def include(self, entry: int, *, reason: str) -> Corrected:
        """Undo an exclusion, by the id of its entry in the audit log."""
        return self._correct("include", reason, entry=entry)

    def erase(self, unit: str, *, reason: str = "") -> Corrected:
        """Erase the identity of a unit; rewards that wait in this client's buffer keep it."""
        return self._correct("erase", reason, unit=unit)

    def corrections(self) -> list[AuditEntry]:
        """The entries of the audit log that corrected something, oldest first."""
        found = self._read(Corrections, "corrections").corrections
        return understood(lambda: [entry.to_entry() for entry in found])

    def _correct(self, kind: str, reason: str, **given: Any) -> Corrected:
        body = {"kind": kind, "reason": reason, **given}
        path = ("POST", "corrections")
        done = self.call(CorrectedAnswer, *path, body=body, within=LONGEST, repeatable=False)
        return Corrected(done.entry, done.assignments)

    # States

    def start(self) -> Status:
        """Change the state from draft to running."""
        return self._move("start")

    def pause(self) -> Status:
        """Assign nothing for now; rewards still count."""
        return self._move("pause")

    def resume(self) -> Status:
        """Change the state from paused to running again."""
        return self._move("resume")

    def stop(self) -> Status:
        """Assign nothing any more; rewards of earlier assignments still count."""
        return self._move("stop")

    def archive(self) -> Status:
        """End the experiment: neither assignments nor rewards any more."""
        return self._move("archive")

    def _move(self, action: str) -> Status:
        return understood(self.call(ExperimentAnswer, "POST", action, within=PATIENCE).to_status)

    def _read(self, gives: type[R], what: str, **query: Any) -> R:
        return self.call(gives, "GET", what, query=query, within=PATIENCE)

    def call(self, gives: type[R], method: str, *path: str, **more: Any) -> R:
        """Send a request about this experiment; see `Transport.call`."""
        return self.client.transport.call(gives, method, *self._path, *path, **more)


def _aimed(target: LiveAssignment | str) -> dict[str, str]:
    """Whose reward; the service takes a unit in the form of the experiment's ids for an id."""
    return {"assignment": target.id} if isinstance(target, LiveAssignment) else {"unit": target}
