"""AsyncRemoteExperiment: ask and tell for a live test that a service runs."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
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
from steadyarm.covariates import each_with_expected, with_expected
from steadyarm.errors import InvalidInputError, SteadyArmError, UnknownAssignmentError
from steadyarm.inference import DriftReport, HealthReport
from steadyarm.live.assignments import (
    At,
    LiveAssignment,
    Reported,
    Values,
    finite_values,
)
from steadyarm.live.attributes import Declared, Given, check_as_many, check_attribute
from steadyarm.live.covariates import Covariates
from steadyarm.live.people import Breakdown
from steadyarm.live.replay import Replay
from steadyarm.live.results import Status
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
    ReplayAnswer,
)
from steadyarm.wording import shortened

if TYPE_CHECKING:
    from steadyarm.client.client import AsyncClient


log = logging.getLogger("steadyarm.client")

LISTED = 20  # variants; no more fit into a message
EVERY = 60.0  # seconds between two lines in the log for the same kind of reason
LONGEST = 300.0  # seconds: many visits are excluded, or a whole test is computed anew


Result = Outcome | SteadyArmError
Send = Callable[[Sequence[RewardReport]], Awaitable[list[Result]]]


class Fallback:
    """The default arm of one experiment; `arm` is None if there is none.

    units : which saw it last. A reward that is reported by such a unit must not count for a
        variant that the unit was given elsewhere
    """

    def __init__(
        self,
        client: AsyncClient,
        experiment: str,
        arm: str | None,
        units: RecentUnits[None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arm, self.units = arm, units
        self._client, self._experiment, self._clock = client, experiment, clock
        self._names: Sequence[str] | None = None
        self._values: Sequence[Any] = ()
        self._logged: dict[tuple[type[SteadyArmError], str], float] = {}

    def learn(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Remember the experiment's variants; the default arm should be one of them."""
        if self._names is None and self.arm is not None and names and self.arm not in names:
            log.warning(
                "the default arm %r is no variant of the experiment %r; it has %s",
                self.arm,
                self._experiment,
                shortened(list(names[:LISTED])),
            )
        self._names, self._values = names, values

    def settle(
        self, unit: str | None, answer: LiveAssignment | SteadyArmError
    ) -> LiveAssignment | SteadyArmError:
        """The same answer, or the default arm instead of an error that is not the unit's fault."""
        if isinstance(answer, LiveAssignment):
            self.units.pop(unit or "")
            return answer
        if self.arm is None or isinstance(answer, InvalidInputError):
            return answer
        self.log(answer, f"answers with its default arm {self.arm!r}, outside the test")
        if unit and isinstance(unit, str):
            self.units[unit] = None
        self._client.count("defaulted")
        names = self._names or ()
        arm = names.index(self.arm) if self.arm in names else -1
        value = self._values[arm] if arm >= 0 else self.arm
        now = datetime.now(UTC)
        shown = math.nan, now, False, value
        return LiveAssignment("", unit or "", arm, self.arm, *shown, in_test=False)

    def log(self, reason: SteadyArmError, effect: str) -> None:
        """Log what the experiment does and why, each kind of reason at most once a minute."""
        now, kind = self._clock(), (type(reason), effect)
        if now - self._logged.get(kind, -math.inf) >= EVERY:
            self._logged[kind] = now
            name = type(reason).__name__
            log.warning("the experiment %r %s: %s: %s", self._experiment, effect, name, reason)


def is_default(assignment: LiveAssignment) -> bool:
    """Whether this is no part of the test, so that its reward counts nowhere.

    It is the default arm, which is shown where the service gives no variant, or what the service
    shows outside of the test.

    Parameters
    ----------
    assignment : what `ask` gave

    Returns
    -------
    bool

    Examples
    --------
    >>> import steadyarm as sa
    >>> with sa.Client("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...     is_default(client.experiment("shop").ask("visitor 1"))
    True
    """
    return not assignment.id


class AsyncRemoteExperiment:
    """An experiment of a service; `AsyncClient.experiment` and `AsyncClient.create` make one.

    It has the methods of `Experiment`, to be awaited, and raises the same errors. With a default
    arm `ask` gives that arm whenever the service gives no variant, because it is down, the test is
    paused and has no control, or a token is wrong: an assignment without id, see `is_default`.
    The reason is logged as a warning of "steadyarm.client", each kind at most once a minute.

    Rewards of default arms are ignored, also those reported by unit, until the unit gets a variant
    of the test here; other processes cannot know what it was shown.

    Parameters
    ----------
    client : that sends the requests
    name : of the experiment
    default_arm : variant that `ask` gives if the service gives none
    outside : units that were shown a default arm

    Examples
    --------
    >>> import asyncio
    >>> import steadyarm as sa
    >>> async def page():
    ...     async with sa.AsyncClient("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...         return await client.experiment("shop").ask("visitor 1")
    >>> is_default(asyncio.run(page()))  # nothing answers there
    True
    """

    def __init__(
        self, client: AsyncClient, name: str, default_arm: str | None, outside: RecentUnits[None]
    ) -> None:
        self.client, self.name, self.outside = client, name, outside
        self._fallback = Fallback(client, name, default_arm, outside)
        self._path = ("experiments", name)
        self._settings: SettingsAnswer | None = None
        self._names: Sequence[str] = ()
        self._values: Sequence[Any] = ()
        self._tag: str | None = None  # with which ids of the experiment begin, once one was seen

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.client.url})"

    @property
    def default_arm(self) -> str | None:
        """The variant that `ask` gives where the service gives none."""
        return self._fallback.arm

    async def settings(self) -> Mapping[str, Any]:
        """What it was created with, as `Settings.to_dict` writes it; requested once."""
        found: Mapping[str, Any] = msgspec.to_builtins(await self.known())
        return found

    async def values(self) -> Sequence[Any]:
        """What each variant stands for, in their order; empty if only the service has names."""
        await self.known()
        return self._values

    async def known(self) -> SettingsAnswer:
        """The settings as the service answers."""
        if self._settings is None:
            return self._learn(await self.call(ExperimentAnswer, "GET")).settings
        return self._settings

    def _learn(self, found: ExperimentAnswer) -> ExperimentAnswer:
        self._names = understood(lambda: found.settings.names)
        self._values = understood(lambda: found.settings.variant_values)
        self._settings = found.settings
        self._fallback.learn(self._names, self._values)
        return found

    # Assignments

    async def ask(
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
        return await self.one_or_default(unit, lambda: self.ask_service(unit, attributes, known))

    async def ask_service(
        self,
        unit: str | None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
    ) -> LiveAssignment:
        """The variant that the service gives, never the default arm.

        Parameters
        ----------
        unit : who is assigned
        attributes, covariates : what is known of the unit
        """
        body: dict[str, Any] = {"unit": unit}
        if attributes is not None:
            body["attributes"] = dict(attributes)
        if covariates is not None:
            body["covariates"] = dict(covariates)
        path = ("POST", "assignments")
        repeatable = await self._sticky()
        found = await self.call(AssignmentAnswer, *path, body=body, repeatable=repeatable)
        return self.assignment_in(found)

    async def _sticky(self) -> bool:
        """Whether a unit keeps its first variant, so that a request may be sent again."""
        return (await self.known()).sticky == "unit"

    async def one_or_default(
        self, unit: str | None, ask: Callable[[], Awaitable[LiveAssignment]]
    ) -> LiveAssignment:
        """What `ask` gives, or else the default arm, if there is one.

        Parameters
        ----------
        unit : who is assigned
        ask : asks for a variant
        """

        async def one() -> list[LiveAssignment | SteadyArmError]:
            return [await ask()]

        (answer,) = await self._or_default([unit], one)
        assert isinstance(answer, LiveAssignment)
        return answer

    async def ask_many(
        self,
        units: Sequence[str | None],
        attributes: Sequence[Given | None] | None = None,
        covariates: Sequence[Covariates | None] | None = None,
        expected: Sequence[float | None] | None = None,
    ) -> list[LiveAssignment | SteadyArmError]:
        """Variants for many units, in their order; an error takes the place of one refused.

        With a default arm that takes its place, unless the unit is bad.

        attributes, covariates, expected : of each unit, as in `Experiment.ask_many`
        """
        check_as_many(units, attributes, "attributes")
        check_as_many(units, covariates, "covariates")
        check_as_many(units, expected, "expected")
        covariates = each_with_expected(covariates, expected)
        none = [None] * len(units)
        visits = list(zip(units, attributes or none, covariates or none, strict=True))
        parts = (visits[i : i + BATCH] for i in range(0, len(visits), BATCH))
        return [
            answer
            for part in parts
            for answer in await in_halves(self._ask_part, part, raising=SteadyArmError)
        ]

    async def _ask_part(
        self, visits: Sequence[tuple[str | None, Given | None, Covariates | None]]
    ) -> list[LiveAssignment | SteadyArmError]:
        units, attributes, covariates = map(list, zip(*visits, strict=True))
        body: dict[str, Any] = {"units": units}
        for name, given in (("attributes", attributes), ("covariates", covariates)):
            if any(one is not None for one in given):
                body[name] = given

        async def many() -> list[LiveAssignment | SteadyArmError]:
            found = await self.call(
                Assignments,
                *("POST", "assignments:batch"),
                body=body,
                within=PATIENCE,
                repeatable=await self._sticky(),
            )
            return self.assignments_in(found, len(units))

        return await self._or_default(units, many)

    async def _or_default(
        self,
        units: Sequence[str | None],
        ask: Callable[[], Awaitable[list[LiveAssignment | SteadyArmError]]],
    ) -> list[LiveAssignment | SteadyArmError]:
        transport = self.client.transport
        found: Sequence[LiveAssignment | SteadyArmError]
        if self.default_arm is None:
            found = await ask()
        elif transport.breaker.allows():
            try:
                found = await ask()
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
        """The assignment in a response.

        Parameters
        ----------
        found : the response
        """
        if found.id:
            self._tag = found.id.partition("-")[0]
        return found.to_assignment(self._names)

    def assignments_in(
        self, found: Assignments, count: int
    ) -> list[LiveAssignment | SteadyArmError]:
        """The assignments in a response to so many units, and why some have none.

        Parameters
        ----------
        found : the response
        count : number of units
        """
        each = each_in(found.assignments, AssignmentAnswer, count)
        return [one if isinstance(one, SteadyArmError) else self.assignment_in(one) for one in each]

    # Rewards

    async def tell(
        self,
        assignment: LiveAssignment | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> None:
        """Report what an assignment, its id, or a unit brought; repeating it is harmless.

        If the service is down the reward is kept in the client's buffer. Without a buffer the error
        is raised, or with a default arm the reward is lost, which is logged and counted. The reward
        of a default arm is ignored, and counted; so is that of a unit which was shown one last, and
        of a unit without an assignment unless the client has on_unknown="raise".

        at : when it happened, if not just now, as in `Experiment.tell`; the time is sent in any
            case, so that a reward which waits in the buffer counts by when it happened
        reward, event : values by the names of metrics and the key of their event are as in
            `Experiment.tell`, too
        """
        given = [(assignment, reward, at, event)]
        (outcome,) = await self._tell(given, self._tolerant(self._tell_one), self.outside)
        if isinstance(outcome, SteadyArmError):
            raise outcome

    async def tell_many(self, rewards: Iterable[Reported]) -> list[Result]:
        """Report the rewards of many assignments, in their order; a third value is when it was.

        Each is "stored", there already ("repeated"), "kept" until the service is back, of something
        that was shown "outside" of the test, or "ignored" or "lost" as in `tell`; an error takes
        the place of one refused.
        """
        given = list(rewards)
        parts = (given[i : i + BATCH] for i in range(0, len(given), BATCH))
        return [
            outcome
            for part in parts
            for outcome in await self._tell(part, self._tolerant(self._tell_part), self.outside)
        ]

    def _tolerant(self, send: Send) -> Send:
        """A `send` that does not break a page over units without assignments, or an outage."""
        client, transport = self.client, self.client.transport
        drops = self.default_arm is not None and client.delivery is None

        async def sending(rewards: Sequence[RewardReport]) -> list[Result]:
            try:
                if drops and not transport.breaker.allows():
                    raise transport.failure
                results = await send(rewards)
            except UnknownAssignmentError as error:
                results = [error] * len(rewards)
            except DOWN as error:
                if not drops:
                    raise
                self._fallback.log(error, "loses rewards, as the client has no buffer")
                client.count("lost", len(rewards))
                return ["lost"] * len(rewards)
            return [self._known_or_ignored(one) for one in results]

        return sending

    def _known_or_ignored(self, result: Result) -> Result:
        if self.client.on_unknown == "raise" or not isinstance(result, UnknownAssignmentError):
            return result
        self._fallback.log(result, "ignores rewards of units without an assignment")
        self.client.count("ignored")
        return "ignored"

    async def tell_checked(self, rewards: Sequence[Reported]) -> list[Result]:
        """Report rewards, at most a batch, that are known to be part of the test."""
        return await self._tell(rewards, self._tell_part)

    async def _tell(
        self, rewards: Sequence[Reported], send: Send, outside: Container[str] = ()
    ) -> list[Result]:
        """What becomes of each reward: it is sent, buffered or ignored; those sent go together.

        outside : units whose rewards are not part of the test, because they saw a default arm
        """
        reports: list[RewardReport | Result] = []
        for target, reward, *more in rewards:
            try:
                report = self._report(target, reward, *more)
            except SteadyArmError as error:
                reports.append(error)
                continue
            strange = not report.target or (report.kind == "unit" and report.target in outside)
            if strange:
                self.client.count("ignored")
            reports.append("ignored" if strange else report)
        return await self.client.report(self.name, reports, send)

    def _report(
        self,
        target: LiveAssignment | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> RewardReport:
        value, when = finite_values(reward), seconds_of(at)
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

    async def _tell_one(self, rewards: Sequence[RewardReport]) -> list[Result]:
        (report,) = rewards
        path = ("POST", "rewards")
        found = await self.call(RewardStatus, *path, body=report.to_dict(), stamped=True)
        return [found.status]

    async def _tell_part(self, rewards: Sequence[RewardReport]) -> list[Result]:
        return await send_rewards(self.client.transport, self.name, rewards)

    # Results

    @overload
    async def recommend(
        self, level: float = 0.95, anytime: bool | None = None, by: None = None
    ) -> Verdict: ...

    @overload
    async def recommend(
        self, level: float = 0.95, anytime: bool | None = None, *, by: str
    ) -> Breakdown: ...

    async def recommend(
        self, level: float = 0.95, anytime: bool | None = None, by: str | None = None
    ) -> Verdict | Breakdown:
        """The best variant on mature visits, or a breakdown; see `Experiment.recommend`.

        Parameters
        ----------
        level, anytime, by : see `Experiment.recommend`
        """
        query: dict[str, Any] = {"level": level}
        if anytime is not None:
            query["anytime"] = str(bool(anytime)).lower()
        if by is not None:
            check_attribute(declared_in(await self.known()), by)
            path = ("GET", "breakdowns", by)
            found = await self.call(BreakdownAnswer, *path, query=query, within=PATIENCE)
            return understood(found.to_breakdown)
        answer = await self._read(Recommendation, "recommendation", **query)
        return understood(answer.to_verdict)

    async def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing."""
        return (await self._read(Health, "health")).to_report()

    async def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise.

        Parameters
        ----------
        periods : how many shares
        level : confidence level
        """
        found = await self._read(Drift, "drift", periods=periods, level=level)
        return understood(found.to_report)

    async def status(self) -> Status:
        """The progress of the test in numbers."""
        return understood(self._learn(await self.call(ExperimentAnswer, "GET")).to_status)

    async def replay(self) -> Replay:
        """Let the service compute the whole test anew from its log, and compare to the bit.

        It needs the scope admin.
        """
        return (await self.call(ReplayAnswer, "GET", "replay", within=LONGEST)).to_replay()

    async def export(self, path: str | os.PathLike[str]) -> Path:
        """Write every assignment with its reward into a file: .csv or .parquet.

        This is the log, for `steadyarm analyze` and for other programs. To move an experiment
        into another storage use `steadyarm experiment export` on the storage itself: it writes
        the log and the description that `import` needs with it.

        Parameters
        ----------
        path : of the file

        Returns
        -------
        Path : of the file
        """
        target = Path(path)
        form = target.suffix.lstrip(".")
        check_choice(form, "the file's ending", ("csv", "parquet"))
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        log_of = (*self._path, "export")
        try:
            with unfinished.open("wb") as file:
                await self.client.transport.download(file, *log_of, query={"format": form})
            return unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)

    # Corrections; they need the scope admin, and the token's name is the author

    async def void(self, target: LiveAssignment | str, *, reason: str) -> Corrected:
        """Take back the reward of an assignment, of its id, or of a unit.

        Parameters
        ----------
        target : the assignment, its id, or a unit
        reason : why, for those who read the audit log; name no unit in it
        """
        return await self._correct("void", reason, **_aimed(target))

    async def correct(
        self, target: LiveAssignment | str, reward: float, *, reason: str
    ) -> Corrected:
        """Replace the reward of an assignment.

        Parameters
        ----------
        target : the assignment, its id, or a unit
        reward : the right one
        reason : why, for those who read the audit log; name no unit in it
        """
        return await self._correct("correct", reason, **_aimed(target), reward=reward)

    async def exclude(
        self,
        *,
        unit: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str,
    ) -> Corrected:
        """Leave out all visits of a unit, or those of a period; see `Experiment.exclude`.

        Parameters
        ----------
        unit : whose visits; of a period if it is not given
        since, until : times of assignments, the first one included and the last one not
        reason : why, for those who read the audit log; name no unit in it
        """
        given = {
            "unit": unit,
            "since": None if since is None else since.isoformat(),
            "until": None if until is None else until.isoformat(),
        }
        return await self._correct("exclude", reason, **given)

    async def include(self, entry: int, *, reason: str) -> Corrected:
        """Undo an exclusion, by the id of its entry in the audit log.

        Parameters
        ----------
        entry : id of the exclusion
        reason : why, for those who read the audit log; name no unit in it
        """
        return await self._correct("include", reason, entry=entry)

    async def erase(self, unit: str, *, reason: str = "") -> Corrected:
        """Erase the identity of a unit; rewards that wait in this client's buffer keep it.

        Parameters
        ----------
        unit : who
        reason : why, for those who read the audit log; name no unit in it
        """
        return await self._correct("erase", reason, unit=unit)

    async def corrections(self) -> list[AuditEntry]:
        """The entries of the audit log that corrected something, oldest first."""
        found = await self._read(Corrections, "corrections")
        return understood(lambda: [entry.to_entry() for entry in found.corrections])

    async def _correct(self, kind: str, reason: str, **given: Any) -> Corrected:
        body = {"kind": kind, "reason": reason, **given}
        path = ("POST", "corrections")
        done = await self.call(CorrectedAnswer, *path, body=body, within=LONGEST, repeatable=False)
        return Corrected(done.entry, done.assignments)

    # States

    async def start(self) -> Status:
        """Change the state from draft to running."""
        return await self._move("start")

    async def pause(self) -> Status:
        """Assign nothing for now; rewards still count."""
        return await self._move("pause")

    async def resume(self) -> Status:
        """Change the state from paused to running again."""
        return await self._move("resume")

    async def stop(self) -> Status:
        """Assign nothing any more; rewards of earlier assignments still count."""
        return await self._move("stop")

    async def archive(self) -> Status:
        """End the experiment: neither assignments nor rewards any more."""
        return await self._move("archive")

    async def roll_out(
        self,
        variant: str | None = None,
        share: float = 1.0,
        *,
        stop: bool = False,
        change: bool = False,
        reason: str = "",
    ) -> Status:
        """Show a variant to new and old units, outside of the test; see `Experiment.roll_out`.

        Parameters
        ----------
        variant, share, stop, change, reason : see `Experiment.roll_out`
        """
        body: dict[str, Any] = {"share": share, "stop": stop, "change": change, "reason": reason}
        if variant is not None:
            body["variant"] = variant
        done = await self.call(ExperimentAnswer, "POST", "roll-out", body=body, within=PATIENCE)
        return understood(done.to_status)

    async def _move(self, action: str) -> Status:
        found = await self.call(ExperimentAnswer, "POST", action, within=PATIENCE)
        return understood(found.to_status)

    async def _read(self, gives: type[R], what: str, **query: Any) -> R:
        return await self.call(gives, "GET", what, query=query, within=PATIENCE)

    async def call(self, gives: type[R], method: str, *path: str, **more: Any) -> R:
        """Send a request about this experiment; see `Transport.call`.

        Parameters
        ----------
        gives : type of the response
        method : of HTTP
        *path : after the path of the experiment
        **more : for `Transport.call`
        """
        return await self.client.transport.call(gives, method, *self._path, *path, **more)


def seconds_of(at: At) -> float:
    """A time, by default now, in seconds since 1970 by this machine's clock."""
    if at is None or isinstance(at, timedelta):
        return time.time() - (0.0 if at is None else at.total_seconds())
    return to_micros(at, LATEST) / 1e6


def _aimed(target: LiveAssignment | str) -> dict[str, str]:
    """Whose reward; the service takes a unit in the form of the experiment's ids for an id."""
    return {"assignment": target.id} if isinstance(target, LiveAssignment) else {"unit": target}


def declared_in(settings: SettingsAnswer) -> Declared:
    """Attributes of units with their levels, as they were declared."""
    return {name: tuple(levels) for name, levels in settings.attributes.items()}
