"""Experiment: ask/tell for a live test that is kept in a storage.

The facade checks its arguments, the storage keeps them, the `Assigner` assigns positions, and
`decisions` computes what follows. Any number of processes may hold the same experiment.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from steadyarm.covariates import each_with_expected, with_expected
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    SteadyArmError,
    StorageError,
    UnknownAssignmentError,
    WrongStateError,
)
from steadyarm.inference import HealthReport
from steadyarm.live.after_test import Outside, RollOut, choose_default, roll_out, why_stopped
from steadyarm.live.assigner import (
    AssignmentId,
    At,
    LiveAssignment,
    Report,
    ReportedEvent,
    ReportStatus,
    Values,
    Visit,
    checked_unit,
    checked_values,
    close_segments,
    is_due,
    not_running,
    open_segment,
    refusal,
    take_positions,
    when_of,
)
from steadyarm.live.breakdowns import Breakdown, breakdown_of
from steadyarm.live.estimates import MetricResult
from steadyarm.live.export import export_experiment
from steadyarm.live.measured import metric_results
from steadyarm.live.metrics import microseconds
from steadyarm.live.replay import Replay, replay
from steadyarm.live.results import (
    LiveResults,
    LiveTest,
    Status,
    results_of,
    status_of,
    with_outlier,
)
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import ITSELF, LEVEL, Stopped, stop_now, stopped_in
from steadyarm.live.units import (
    Covariates,
    Given,
    check_as_many,
    check_attribute,
    levels_in,
    values_in,
)
from steadyarm.live.verdict import Verdict
from steadyarm.policies import Policy
from steadyarm.storages.changes import ACTIONS, AuditEntry, Change, Corrected
from steadyarm.storages.records import (
    LATEST,
    Assigned,
    AssignmentResult,
    ExperimentHead,
    ExperimentState,
    Outcome,
    Target,
    id_of,
    in_words,
    parse_assignment_id,
    to_datetime,
    to_micros,
)
from steadyarm.wording import shortened

if TYPE_CHECKING:
    from steadyarm.storages.storage import Storage

log = logging.getLogger("steadyarm")

OVER = (BudgetSpentError, WrongStateError)  # why a unit is not part of the test
EXAMINED = 60.0  # seconds after which it is examined again whether a test stops itself
SECOND = microseconds(1)
ONLY = {
    "draft": "a draft can be started",
    "running": "a running one can be paused",
    "paused": "a paused one can be resumed",
}
OWN_CLOCK = "given"  # in the config of experiments that were created with a clock


class Experiment(LiveTest):
    """A live test in a storage; `create_experiment` and `load_experiment` make one.

    Parameters
    ----------
    storage : where it is kept
    record : what the storage has of it
    policy : a policy of your own that the storage cannot name
    clock : seconds since 1970, for simulations; by default the storage's clock

    Attributes
    ----------
    name : of the experiment
    settings : everything that it was created with
    storage : where it is kept

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 1000, "memory", seed=1, missing="drop"
    ... )
    >>> for visitor in range(100):
    ...     shown = test.ask(f"visitor {visitor}")
    ...     test.tell(shown, 1.0 if shown.name == "B" else 0.0)
    >>> test.status().rewarded, test.recommend().name
    ((51, 49), 'B')
    """

    def __init__(
        self,
        storage: Storage,
        record: ExperimentHead,
        policy: Policy[Any] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.storage = storage
        self.name, self.key, self.tag = record.name, record.key, record.tag
        self.settings = Settings.from_dict(record.config, policy)
        self.created = to_datetime(record.created)
        self._clock, self._simulated = clock, record.config.get("clock") == OWN_CLOCK
        self._warned = False  # that the clock given is wrong
        self._over = False  # the test is over for ever, so that units are only looked up
        self._examined: object = None  # what the look rested on that is done with
        self._next_look = 0.0  # when it is examined next whether there are more
        self._next_check = 0  # when windows are checked again, once a second

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {self.settings.policy.name}, {self.arms.size} variants)"

    @property
    def state(self) -> ExperimentState:
        """draft, running, paused, stopped or archived."""
        return self.storage.find(self.name).state

    def now(self) -> int:
        """The time by the storage's clock, or by the one that the experiment was created with.

        A clock given by somebody else is compared with the storage's: if they differ by more than
        a second it is not used, since it would close windows for all.
        """
        if self._clock is None:
            return self.storage.now()
        own = microseconds(self._clock())
        if self._simulated:
            return own
        now = self.storage.now()
        if abs(own - now) <= SECOND:
            return own
        if not self._warned:
            self._warned = True
            log.warning(
                "the clock given for experiment %r differs from the storage's by %.0f s; the "
                "storage's is used.",
                self.name,
                abs(own - now) / SECOND,
            )
        return now

    # Assignments

    def ask(
        self,
        unit: str | None = None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
        expected: float | None = None,
    ) -> LiveAssignment:
        """The variant to show to a unit: a visitor, a session, a device.

        Once the test is over a unit without a variant sees the default, outside of the test
        (`LiveAssignment.in_test`, `Settings.after`); so it does while the test is paused or a draft
        and has a control. Under a roll-out units see what was rolled out.

        attributes : what is known of the unit, such as {"device": "mobile"}, of the attributes that
            were declared; kept with a new assignment, for `recommend(by="device")`
        covariates : numbers that are known of the unit, such as {"spend": 41.0}, of the covariates
            that were declared; kept with a new assignment, to take noise away
        expected : the covariate of that name: the reward that a model of your own predicts
        """
        known = with_expected(covariates, expected)
        (answer,) = self.ask_many(
            [unit],
            attributes=None if attributes is None else [attributes],
            covariates=None if known is None else [known],
        )
        if isinstance(answer, SteadyArmError):
            raise answer
        return answer

    def ask_many(
        self,
        units: Sequence[str | None],
        attributes: Sequence[Given | None] | None = None,
        covariates: Sequence[Covariates | None] | None = None,
        expected: Sequence[float | None] | None = None,
    ) -> list[LiveAssignment | SteadyArmError]:
        """Variants for many units in one transaction, in their order.

        A unit that cannot have one, because rewards must come first or it is no proper unit, gets
        the error in its place.

        attributes, covariates, expected : of each unit, as in `ask`
        """
        return self.answer_visits(self.visits(units, attributes, covariates, expected))

    def visits(
        self,
        units: Sequence[str | None],
        attributes: Sequence[Given | None] | None = None,
        covariates: Sequence[Covariates | None] | None = None,
        expected: Sequence[float | None] | None = None,
    ) -> list[Visit]:
        """Validate the arguments of `ask_many`; a visit that is wrong holds its error."""
        check_as_many(units, attributes, "attributes")
        check_as_many(units, covariates, "covariates")
        check_as_many(units, expected, "expected")
        covariates = each_with_expected(covariates, expected)
        visits = []
        for i, unit in enumerate(units):
            try:
                levels = levels_in(self.settings.attributes, attributes[i] if attributes else None)
                values = values_in(self.settings.covariates, covariates[i] if covariates else None)
                visits.append(Visit(self._unit(unit), dict.fromkeys(levels, 1.0) | values))
            except InvalidInputError as error:
                visits.append(Visit(error, {}))
        return visits

    def answer_visits(self, visits: Sequence[Visit]) -> list[LiveAssignment | SteadyArmError]:
        """Assign variants; if the segment is exhausted, decide and assign again."""
        if self.settings.window is not None and self._is_time():
            self.refresh()
        refused: SteadyArmError | None = None
        while (answers := self.try_visits(visits, refused)) is None:
            if self._over:
                self._choose_default()
            else:
                refused = open_segment(self.storage, self.key, self.settings, self.now)
        return answers

    def try_visits(
        self, visits: Sequence[Visit], refused: SteadyArmError | None = None
    ) -> list[LiveAssignment | SteadyArmError] | None:
        """Assign variants in one transaction; None if something must be decided first.

        A service calls this for each batch, and `answer_visits` in another thread if it returns
        None, because decisions may take long.

        refused : why there are no positions left
        """
        now = self.now()
        new = refused is None and not self._over
        result = take_positions(self.storage, self.key, visits, now, new)
        self._over = result.outside is not None or result.state in ("stopped", "archived")
        waiting = any(visit.waiting for visit in visits)
        if waiting and result.running and refused is None:
            return None
        if waiting and refused is None:
            refused = not_running(result)
        outside = Outside.read(result.outside)
        shows = waiting and self.settings.after == "show" and isinstance(refused, OVER)
        if shows and outside is None and result.state in ("draft", "paused"):
            outside = Outside(default=self.settings.control)
        elif shows and (outside is None or outside.default is None):
            self._over = True
            return None
        default = outside.default if shows and outside is not None else None
        if waiting and default is None and result.state == "stopped":
            refused = why_stopped(self)
        return [self._answer_visit(visit, outside, default, refused, now) for visit in visits]

    def _answer_visit(
        self,
        visit: Visit,
        outside: Outside | None,
        default: str | None,
        refused: SteadyArmError | None,
        now: int,
    ) -> LiveAssignment | SteadyArmError:
        """What a visit is shown, in the test or outside of it, or why nothing."""
        if not isinstance(visit.unit, str):
            return visit.unit
        rolled_out = outside and outside.variant_for(self.settings.seed, visit.unit)
        if rolled_out:
            return self._shown_outside(visit.unit, rolled_out, now)
        if visit.assigned is not None:
            return self.answer(visit.assigned)
        if default is not None:
            return self._shown_outside(visit.unit, default, now)
        assert refused is not None
        return refused

    def _choose_default(self) -> None:
        """Choose what is shown after the test, unless that was done."""
        outside = Outside.read(self.storage.known(self.key, []).outside)
        choose_default(self, outside)

    def _shown_outside(self, unit: str, name: str, now: int) -> LiveAssignment:
        arm = self.arms.index(name)
        value = self.settings.variant_values[arm]
        created = to_datetime(now)
        return LiveAssignment("", unit, arm, name, math.nan, created, False, value, in_test=False)

    def _is_time(self) -> bool:
        """Whether windows have not been checked for a second."""
        now = self.now()
        due = now >= self._next_check
        if due:
            self._next_check = now + SECOND
        return due

    def known(
        self, units: Sequence[str | None], stored: AssignmentResult | None = None
    ) -> list[LiveAssignment | None]:
        """What units see already, without waiting for anybody who writes; nothing is assigned.

        These are their assignments or, once it is chosen what is shown outside of the test, that;
        None for units that would have to be assigned first.

        stored : what the storage has of them, if it was read before
        """
        visits = self.visits(units)
        good = [str(visit.unit) for visit in visits if isinstance(visit.unit, str)]
        result = self.storage.known(self.key, good) if stored is None else stored
        assigned = {row.unit: row for row in result.assigned if row is not None}
        outside, now = Outside.read(result.outside), 0
        default = None
        if outside is not None:
            now = self.now()
            default = outside.default if self.settings.after == "show" else None
        answers: list[LiveAssignment | None] = []
        for visit in visits:
            unit = visit.unit if isinstance(visit.unit, str) else ""
            visit.assigned = assigned.get(unit)
            reached = outside and outside.variant_for(self.settings.seed, unit)
            if isinstance(visit.unit, str) and (visit.assigned or reached or default):
                shown = self._answer_visit(visit, outside, default, None, now)
                answers.append(shown if isinstance(shown, LiveAssignment) else None)
            else:
                answers.append(None)
        return answers

    # Rewards

    def tell(
        self,
        assignment: LiveAssignment | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> None:
        """Record what an assignment, its id, or a unit brought, in any order, late or not.

        The same reward reported again changes nothing; another one is refused. The reward of what
        was shown outside of the test is ignored.

        reward : the reward, or values by the names of metrics, such as {"bought": 1, "revenue": 35}
        at : when it happened, if not just now: a datetime with its time zone, microseconds since
            1970, or a timedelta for how long ago; `Settings.reward_grace` says how late it may be
            reported
        event : what identifies the event, such as the number of an order; metrics that a unit may
            have several events of need it, so that an event that is reported twice counts once
        """
        (outcome,) = self.tell_many([Report(assignment, reward, at, event)])
        if isinstance(outcome, SteadyArmError):
            raise outcome

    def tell_many(
        self, rewards: Iterable[Report | tuple[Any, ...]], refresh: bool = True
    ) -> list[ReportStatus | SteadyArmError]:
        """Record rewards of many assignments, or of their ids or units, in one transaction.

        Each is a `Report`, or a tuple of its fields. The answers say of each whether it was stored,
        was there already, or is of something shown outside of the test ("outside"), which counts
        nowhere; a refused one has the error in its place, and the others are stored. Values of
        further metrics are stored in a second transaction, together with a primary metric that was
        reported beside them.

        refresh : False leaves it to the caller to `refresh` afterwards
        """
        now = self.now()
        answers: list[ReportStatus | SteadyArmError] = []
        events: list[ReportedEvent] = []
        for place, report in enumerate(Report(*reward) for reward in rewards):
            answers.append("repeated")
            target = report.target
            shown = target.id if isinstance(target, LiveAssignment) else target
            if shown == "":  # the id of what is shown outside of the test
                answers[place] = "outside"
                continue
            try:
                events += self._events_of(report, place, shown, now)
            except (InvalidInputError, UnknownAssignmentError) as error:
                answers[place] = error
        try:
            outcomes = self._store(events, now)
        except WrongStateError as error:
            self._refuse_archived(events, answers, error)
            return answers
        unknown = any(outcome.status == "unknown" for outcome in outcomes)
        outside = unknown and self._shows_outside()
        for event, outcome in zip(events, outcomes, strict=True):
            answer: ReportStatus | SteadyArmError
            if outcome.status == "stored" or outcome.status == "repeated":
                answer = outcome.status
            elif outside and outcome.status == "unknown" and isinstance(event.target, str):
                answer = "outside"
            else:
                answer = refusal(self.settings, self.name, event, outcome, now)
            if answer != "repeated" and not isinstance(answers[event.place], SteadyArmError):
                answers[event.place] = answer
        if refresh and "stored" in answers:
            self._try_to_refresh()
        return answers

    def _events_of(self, report: Report, place: int, shown: str, now: int) -> list[ReportedEvent]:
        """Validate a report: one event for each of its metrics, the plain reward without a name."""
        target = self._target(report.target)
        at = None if report.at is None else when_of(report.at, now)
        if isinstance(report.values, Mapping) or self.settings.by_event:
            values = checked_values(self.settings, report.values, report.event)
        else:
            values = {"": self.settings.check_reward(report.values)}
        return [
            ReportedEvent(place, shown, target, metric, value, at, report.event)
            for metric, value in values.items()
        ]

    def _store(self, events: list[ReportedEvent], now: int) -> list[Outcome]:
        """Store plain rewards, then events of metrics; sorts `events` in that order."""
        events.sort(key=lambda event: bool(event.metric))
        plain = [event.as_reward() for event in events if not event.metric]
        measured = [event.as_measured() for event in events if event.metric]
        # Where nothing may be missing a late reward is better than none.
        window = None if self.settings.missing == "fail" else self.settings.window
        outcomes: list[Outcome] = []
        if plain:
            outcomes += self.storage.reward(self.key, plain, window, now, self.settings.grace)
        if measured:
            outcomes += self.storage.measure(self.key, measured, now)
        return outcomes

    def _shows_outside(self) -> bool:
        """Whether units without an assignment may have been shown something."""
        known = self.storage.known(self.key, [])
        return known.outside is not None or (
            known.state != "running" and self.settings.after == "show"
        )

    def _refuse_archived(
        self,
        events: Sequence[ReportedEvent],
        answers: list[ReportStatus | SteadyArmError],
        error: WrongStateError,
    ) -> None:
        """Refuse rewards of an archived test, except those of units that are no part of it."""
        rows = self.storage.find_assignments(self.key, [event.target for event in events])
        outside = self._shows_outside()
        for event, row in zip(events, rows, strict=True):
            unknown = outside and row is None and isinstance(event.target, str)
            answers[event.place] = "outside" if unknown else error
        if all(isinstance(answer, WrongStateError) for answer in answers):
            raise error

    def _try_to_refresh(self) -> None:
        """Refresh; what was stored before stays stored if that fails."""
        try:
            self.refresh()
        except StorageError as error:  # the next call tries again
            log.warning("%s", error)

    def refresh(self) -> None:
        """Let the policy observe segments that are over; `ask` and `tell` do it by themselves.

        A test that is sure at a new look then stops itself.
        """
        closed = close_segments(self.storage, self.key, self.settings, self._closing_time)
        due = closed or time.monotonic() >= self._next_look  # others may have closed some, too
        if self.settings.stop == "when sure" and due:
            self._next_look = time.monotonic() + EXAMINED
            stopped = self._stop_now()
            if stopped is not None:
                self._stop_itself(stopped)

    def _stop_now(self) -> Stopped | None:
        """Why the test stops itself at its last look; None if it goes on.

        A look that lacked evidence is not examined again, unless rewards are corrected. One that
        only a guardrail or a health check kept from stopping is, until the next one is taken.
        """
        if self.state not in ("running", "paused"):
            return None
        results = self._results()
        seen = results.last_look
        if not seen or seen == self._examined or not results.tells:
            return None
        found, done = stop_now(results, self.metrics(LEVEL))
        self._examined = seen if done else None
        return found

    def _stop_itself(self, found: Stopped) -> None:
        """Stop the test; nothing happens if another process was faster."""
        detail = found.to_dict()
        self.storage.move(self.key, "stopped", self.now(), by=ITSELF, detail=detail)
        log.info("experiment %r has stopped itself: %s", self.name, found.reason)

    @property
    def due(self) -> bool:
        """Whether `refresh` has something to do; cheap."""
        return is_due(self.storage, self.key, self.settings, self._closing_time())

    def _closing_time(self) -> int:
        """The time by which windows close; never where the clock of a simulation is not given."""
        return 0 if self._simulated and self._clock is None else self.now()

    def _target(self, target: LiveAssignment | str) -> Target:
        """Number and check of an assignment, or the unit."""
        if isinstance(target, LiveAssignment):
            target = target.id
        if isinstance(target, str) and (parsed := parse_assignment_id(target, self.tag)):
            return parsed
        if isinstance(target, AssignmentId):
            raise UnknownAssignmentError(
                f"{shortened(str(target))} is no id of an assignment of {self.name!r}."
            )
        unit = self._unit(target)
        if self.settings.sticky == "none":
            raise UnknownAssignmentError(
                f"{target!r} is no id of an assignment of {self.name!r}, and units may have many; "
                "report rewards by the id of an assignment."
            )
        return unit

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
        """The best variant on mature visits, with intervals.

        A visit is mature when its reward window and the grace after it have ended, or its reward
        and those of all visits before it are in. Nothing pending counts as zero. If the test may
        stop early, the verdict is that of its last look, and intervals hold at all looks at once.

        Parameters
        ----------
        level : probability with which intervals hold, for all variants at once
        anytime : by default intervals hold at all times at once with probability `level`, however
            often the verdict is read: those of a confidence sequence until the whole budget is
            assigned and the last window has closed, then those of a single analysis;
            `Session.recommend` says more. False asks for a single analysis. True asks for the
            sequence alone, for tests of any size if a reward_range was given.
        by : an attribute of units, to see what variants brought in each of its levels instead of a
            verdict; exploratory
        """
        bounds = self.settings.reward_range if anytime else None
        if by is not None:
            return self._breakdown(by, level, anytime, bounds)
        results, metrics = self.results(), self.metrics(level, anytime)
        stops = self.settings.stop is not None and level != LEVEL
        at_stop = self.metrics(LEVEL) if stops else metrics
        return results.recommend(level, anytime, bounds, metrics, at_stop)

    def _breakdown(
        self,
        by: str,
        level: float,
        anytime: bool | None,
        bounds: tuple[float, float] | None,
    ) -> Breakdown:
        check_attribute(self.settings.attributes, by)
        snapshot = self.storage.snapshot(self.key, everything=True)
        series, days = self.storage.series(self.key), self.storage.days(self.key)
        stopped = stopped_in(self.storage.history, self.settings, snapshot.experiment)
        results = results_of(self.settings, snapshot, days, self.now(), stopped=stopped)
        results = results.check_complete()
        verdict = results.recommend(level, anytime, bounds)
        against = verdict.control or verdict.name
        return breakdown_of(results, snapshot, series, by, against, level, anytime, bounds)

    def metrics(self, level: float = 0.95, anytime: bool | None = None) -> tuple[MetricResult, ...]:
        """What is known of the metrics beside the primary one, each on visits whose window ended.

        level, anytime : as for `recommend`; intervals of all secondary metrics hold at once, and
            those of each guardrail by themselves
        """
        if not self.settings.further:
            return ()
        snapshot = self.storage.snapshot(self.key, everything=True)
        series = self.storage.series(self.key)
        stopped = stopped_in(self.storage.history, self.settings, snapshot.experiment)
        return metric_results(self.settings, snapshot, series, self.now(), level, anytime, stopped)

    def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing or late."""
        found = self._results()
        return with_outlier(found, None if found.clicks else self.storage.extreme(self.key))

    def results(self) -> LiveResults:
        """All that the test says of itself; missing="fail" refuses missing rewards at the end."""
        return self._results().check_complete()

    def _results(self) -> LiveResults:
        snapshot = self.storage.snapshot(self.key, everything=True)
        stopped = stopped_in(self.storage.history, self.settings, snapshot.experiment)
        days = self.storage.days(self.key)
        return results_of(self.settings, snapshot, days, self.now(), stopped=stopped)

    def status(self) -> Status:
        """Where the test stands, in numbers."""
        snapshot = self.storage.snapshot(self.key, everything=True)
        return status_of(self.settings, snapshot)

    def replay(self) -> Replay:
        """Compute the whole test anew from its log, and compare."""
        return replay(self.storage, self.storage.find(self.name), self.settings)

    def export(self, path: str | Path) -> Path:
        """Write the log into a .csv or .parquet file that `analyze` reads.

        A description is written beside it, from which `analyze` reads settings and segments.

        Parameters
        ----------
        path : of the file

        Returns
        -------
        Path : of the description beside it
        """
        return export_experiment(self, path)

    # Corrections; each is an entry of the audit log

    def void(self, target: LiveAssignment | str, *, reason: str, by: str = "") -> Corrected:
        """Take back the reward of an assignment, of its id, or of a unit.

        The assignment then has none. While its segment is open and its window lasts, the right one
        may be reported; else it is missing, and counts as `Settings.missing` says.

        Parameters
        ----------
        target : the assignment, its id, or a unit
        reason : why, for those who read the audit log; name no unit in it
        by : who does it
        """
        return self._correct(by, kind="void", target=self._target(target), reason=reason)

    def exclude(
        self,
        *,
        unit: str | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        reason: str,
        by: str = "",
    ) -> Corrected:
        """Leave out all visits of a unit, or those of a period: they count nowhere.

        Parameters
        ----------
        unit : whose visits; of a period if it is not given
        since, until : times of assignments, the first one included and the last one not
        reason : why, for those who read the audit log; name no unit in it
        by : who does it, for the audit log
        """
        now = self.now()
        ends = {
            name: None if when is None else to_micros(when, LATEST)
            for name, when in (("since", since), ("until", until))
        }
        who = None if unit is None else self._unit(unit)
        return self._correct(by, now, kind="exclude", unit=who, reason=reason, **ends)

    def erase(self, unit: str, *, reason: str = "", by: str = "") -> Corrected:
        """Erase the identity of a unit: its visits stay, under a random name.

        Rewards that are reported by the ids of these visits still count. If the unit comes again
        it is a new one. This is possible in every state.

        Parameters
        ----------
        unit : who
        reason : why, for those who read the audit log; name no unit in it
        by : who does it, for the audit log
        """
        return self._correct(by, kind="erase", unit=self._unit(unit), reason=reason)

    def corrections(self) -> list[AuditEntry]:
        """The entries of the audit log that corrected something, oldest first."""
        return [entry for entry in self.history() if entry.action in ACTIONS.values()]

    def history(self) -> list[AuditEntry]:
        """All entries of the audit log about this experiment, oldest first."""
        return self.storage.history(self.name)

    def _correct(self, by: str, now: int | None = None, **change: Any) -> Corrected:
        at = self.now() if now is None else now
        done = self.storage.correct(self.key, Change(**change), now=at, by=by)
        if change["kind"] != "erase":
            self._try_to_refresh()
        return done

    # States

    def start(self, by: str = "") -> None:
        """From draft to running; `by` is who does it, for the audit log."""
        self._move("running", "draft", by)

    def pause(self, by: str = "") -> None:
        """Assign nothing for now; rewards are still recorded.

        Parameters
        ----------
        by : who does it, for the audit log
        """
        self._move("paused", "running", by)

    def resume(self, by: str = "") -> None:
        """From paused to running again.

        Parameters
        ----------
        by : who does it, for the audit log
        """
        self._move("running", "paused", by)

    def stop(self, by: str = "") -> None:
        """Assign nothing any more; rewards of earlier assignments are still recorded.

        Without a reward window this also says that no more rewards are expected: missing ones
        count as declared from now on.

        Parameters
        ----------
        by : who does it, for the audit log
        """
        self._move("stopped", None, by)

    def archive(self, by: str = "") -> None:
        """Accept neither assignments nor rewards any more.

        Parameters
        ----------
        by : who does it, for the audit log
        """
        self._move("archived", None, by)

    def roll_out(
        self,
        variant: str | None = None,
        share: float = 1.0,
        *,
        stop: bool = False,
        change: bool = False,
        by: str = "",
        reason: str = "",
    ) -> RollOut:
        """Show a variant to new and old units, outside of the test and at no budget.

        Who belongs to the share follows from the unit alone, so that a share that grows keeps its
        units. Others go on with what they saw: their variant of the test, or the default.

        Parameters
        ----------
        variant : its name; by default what is rolled out already, else the recommended variant, if
            the decision is clear
        share : of all units, from 0 to 1; it may be raised at any time
        stop : True stops the test if it is still running; without it such a test is refused
        change : True allows that units lose what was rolled out to them, because the share gets
            smaller or another variant takes its place
        by, reason : who does it and why, for the audit log
        """
        return roll_out(self, variant, share, stop, change, by, reason)

    def _move(self, to: ExperimentState, only: ExperimentState | None, by: str) -> None:
        state = self.state
        if only is not None and state not in (only, to):
            raise WrongStateError(
                f"the experiment {self.name!r} is {in_words(state)}; only {ONLY[only]}."
            )
        self.storage.move(self.key, to, self.now(), by=by)

    def close(self) -> None:
        """Let go of the storage's connections."""
        self.storage.close()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Arguments and answers

    def _unit(self, unit: Any) -> str:
        if unit is None and self.settings.sticky == "none":
            return ""
        return checked_unit(unit)

    def answer(self, found: Assigned) -> LiveAssignment:
        """An assignment of the test, as programs work with it.

        Parameters
        ----------
        found : what the storage has of it
        """
        return LiveAssignment(
            id_of(self.tag, found.number, found.unit),
            found.unit,
            found.arm,
            self.settings.arms.names[found.arm],
            found.probability,
            to_datetime(found.created),
            found.new,
            self.settings.variant_values[found.arm],
        )
