"""Experiment: a live test in a storage, with ask and tell.

An experiment validates arguments, stores assignments and rewards, and applies the decisions that
`decisions` computes. Any number of processes may load the same experiment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from steadyarm.covariates import add_expected
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RewardsPendingError,
    SteadyArmError,
    StorageError,
    UnknownAssignmentError,
    WrongStateError,
)
from steadyarm.inference import HealthReport
from steadyarm.live.after_test import (
    AfterTest,
    RollOut,
    choose_default,
    place_of_unit,
    roll_out,
    validate_reason,
)
from steadyarm.live.assigner import (
    AssignmentId,
    At,
    LiveAssignment,
    Report,
    ReportStatus,
    Values,
    Visit,
    not_running,
    refusal,
    validate_values,
    when_of,
)
from steadyarm.live.breakdowns import Breakdown
from steadyarm.live.decisions import decide, is_over
from steadyarm.live.estimates import MetricResult
from steadyarm.live.export import export_experiment
from steadyarm.live.metrics import microseconds
from steadyarm.live.moment import Moment
from steadyarm.live.replay import Replay, replay
from steadyarm.live.results import (
    LiveResults,
    LiveTest,
    Status,
    compute_status,
    with_outlier,
)
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import ITSELF, LEVEL, find_early_stop, stop_now
from steadyarm.live.units import (
    Covariates,
    Given,
    levels_in,
    values_in,
)
from steadyarm.live.verdict import Verdict
from steadyarm.policies import Policy
from steadyarm.storages.records import (
    ACTIONS,
    LATEST,
    AssignmentResult,
    AuditEntry,
    Change,
    CorrectionResult,
    Event,
    ExperimentHead,
    ExperimentState,
    RecordResult,
    StoredAssignment,
    Target,
    describe_state,
    id_of,
    parse_assignment_id,
    to_datetime,
    to_micros,
    validate_unit,
)
from steadyarm.validation import length_error
from steadyarm.wording import shortened

if TYPE_CHECKING:
    from steadyarm.storages.storage import Storage

log = logging.getLogger("steadyarm")

UNKNOWN = UnknownAssignmentError("the unit has no variant yet.")
OVER = (BudgetSpentError, WrongStateError)  # why a unit is not part of the test
EXAMINED = 60.0  # seconds after which it is examined again whether a test is decided
SECOND = microseconds(1)
ONLY = {
    "draft": "a draft can be started",
    "running": "a running one can be paused",
    "paused": "a paused one can be resumed",
}


class Experiment(LiveTest):
    """A live test in a storage; `create_experiment` and `load_experiment` make one.

    Parameters
    ----------
    storage : where it is kept
    record : its record in the storage
    policy : a policy of your own that the storage cannot name

    Attributes
    ----------
    name : the name of the experiment
    settings : everything that it was created with
    storage : where it is kept
    exhausted : whether a segment had no positions left when rewards were last recorded; only then
        may `refresh` have something to do

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
    ) -> None:
        self.storage = storage
        self.name, self.key, self.tag = record.name, record.key, record.tag
        self.settings = Settings.from_dict(record.config, policy)
        self.created = to_datetime(record.created)
        self._values = self.settings.variant_values
        self._place = record.place or 0.0  # of its share of the traffic
        self.exhausted = True
        self._over = False  # the test is over for ever, so that units are only looked up
        self._examined: object = None  # what the look rested on that is done with
        self._next_look = 0.0  # when it is examined next whether there are more
        self._undecided = "draft", 0  # in this state nothing is chosen after the test until then
        self._next_check = 0  # when windows are checked again, once a second

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {self.settings.policy.name}, {self.arms.size} variants)"

    @property
    def state(self) -> ExperimentState:
        """draft, running, paused, stopped or archived."""
        return self.storage.find(self.name).state

    def now(self) -> int:
        """The time by the storage's clock, in microseconds since 1970."""
        return self.storage.now()

    # Assignments

    def ask(
        self,
        unit: str | None = None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
        expected: float | None = None,
        preview: str | None = None,
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
        preview : a variant to look at, outside of the test: nothing is stored
        """
        visit = self.validate_visit(unit, attributes, covariates, expected, preview)
        (answer,) = self.answer_visits([visit])
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
        lists = {"attributes": attributes, "covariates": covariates, "expected": expected}
        for what, given in lists.items():
            if given is not None and len(given) != len(units):
                raise length_error(units, given, what)
        visits = []
        for i, unit in enumerate(units):
            try:
                visit = self.validate_visit(
                    unit,
                    attributes[i] if attributes else None,
                    covariates[i] if covariates else None,
                    expected[i] if expected else None,
                )
            except InvalidInputError as error:
                visit = Visit("", {}, error)
            visits.append(visit)
        return visits

    def validate_visit(
        self,
        unit: str | None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
        expected: float | None = None,
        preview: str | None = None,
    ) -> Visit:
        """Validate the arguments of `ask`."""
        unit = "" if unit is None and self.settings.sticky == "none" else validate_unit(unit)
        included = self.settings.traffic == 1 or self._includes(unit)
        if preview is not None:
            self.arms.index(preview)
            return Visit(unit, {}, included=included, preview=preview)
        if attributes is None and covariates is None and expected is None:
            return Visit(unit, {}, included=included)
        levels = levels_in(self.settings.attributes, attributes)
        values = values_in(self.settings.covariates, add_expected(covariates, expected))
        return Visit(unit, dict.fromkeys(levels, 1.0) | values, included=included)

    def _includes(self, unit: str) -> bool:
        """Whether a unit is in the test's share of the traffic."""
        traffic, layer = self.settings.traffic, self.settings.layer
        # Not by the seed alone, by which roll-outs choose units.
        place = place_of_unit(f"{self.settings.seed} traffic" if layer is None else layer, unit)
        return self._place <= place < self._place + traffic

    def answer_visits(self, visits: Sequence[Visit]) -> list[LiveAssignment | SteadyArmError]:
        """Assign variants; if the segment is exhausted, decide and assign again."""
        if self.settings.window is not None and self.now() >= self._next_check:
            self._next_check = self.now() + SECOND
            self.refresh()
        answers = self.try_visits(visits)
        refused: SteadyArmError | None = None
        while answers is None:
            if self._over:
                self._choose_default()
            else:
                refused = self._open_segment()
            answers = self.try_visits(visits, refused)
        return answers

    def try_visits(
        self, visits: Sequence[Visit], refused: SteadyArmError | None = None
    ) -> list[LiveAssignment | SteadyArmError] | None:
        """Assign variants in one transaction; None if something must be decided first.

        A service calls this for each batch, and `answer_visits` in another thread if it returns
        None, because decisions may take long.

        refused : why there are no positions left
        """
        now = self.storage.now()
        waiting = [
            visit
            for visit in visits
            if visit.assigned is None
            and visit.included
            and visit.preview is None
            and visit.error is None
        ]
        units = [visit.unit for visit in waiting]
        if refused is None and not self._over:
            values = [visit.values for visit in waiting]
            result = self.storage.assign(self.key, units, values if any(values) else (), now=now)
        else:
            result = self.storage.find_assignments(self.key, units)
        for visit, assigned in zip(waiting, result.assigned, strict=True):
            visit.assigned = assigned
        outside = None if result.outside is None else AfterTest.read(result.outside)
        state, until = self._undecided
        undecided = outside is None and result.state == state and now < until
        self._over = undecided or outside is not None or result.state in ("stopped", "archived")
        default = None
        if None in result.assigned:
            if refused is None and result.state == "running" and outside is None and not undecided:
                return None  # a segment has to be opened
            refused = refused or not_running(result.state)
            if self.settings.after == "show" and isinstance(refused, OVER):
                if outside is not None and outside.default is not None:
                    default = outside.default
                elif undecided or (outside is None and result.state in ("draft", "paused")):
                    default = self.settings.control
                else:
                    self._over = True
                    return None  # the default has to be chosen
        return [self._answer_visit(visit, outside, default, refused, now) for visit in visits]

    def _answer_visit(
        self,
        visit: Visit,
        outside: AfterTest | None,
        default: str | None,
        refused: SteadyArmError | None,
        now: int,
    ) -> LiveAssignment | SteadyArmError:
        """The answer to a visit: a variant in the test or outside of it, or an error."""
        if visit.error is not None:
            return visit.error
        shown = visit.preview or (outside and outside.variant_for(self.settings.seed, visit.unit))
        if shown is None and visit.assigned is not None:
            return self.answer(visit.assigned)
        if shown is None and not visit.included:
            shown = (outside and outside.default) or self.settings.control
        shown = shown or default
        if shown is None:
            assert refused is not None
            return refused
        arm = self.arms.index(shown)
        value, created = self._values[arm], to_datetime(now)
        return LiveAssignment("", visit.unit, arm, shown, nan, created, False, value, in_test=False)

    def answer(self, assigned: StoredAssignment) -> LiveAssignment:
        """An assignment of the test, as programs work with it.

        Parameters
        ----------
        assigned : its record in the storage
        """
        return LiveAssignment(
            id_of(self.tag, assigned.number, assigned.unit),
            assigned.unit,
            assigned.arm,
            self.settings.arms.names[assigned.arm],
            assigned.probability,
            to_datetime(assigned.created),
            assigned.new,
            self._values[assigned.arm],
        )

    def find_visible(
        self, units: Sequence[str | None], stored: AssignmentResult | None = None
    ) -> list[LiveAssignment | None]:
        """The variants that units see already, read without waiting for writers; assigns nothing.

        These are their assignments or, once it is chosen what is shown outside of the test, that;
        None for units that would have to be assigned first.

        stored : what the storage has of them, if it was read before
        """
        visits = self.visits(units)
        if stored is None:
            good = [visit.unit for visit in visits if visit.error is None]
            stored = self.storage.find_assignments(self.key, good)
        assigned = {row.unit: row for row in stored.assigned if row is not None}
        outside, default, now = AfterTest.read(stored.outside), None, 0
        if outside is not None:
            default = outside.default if self.settings.after == "show" else None
            now = self.now()
        answers = []
        for visit in visits:
            visit.assigned = assigned.get(visit.unit)
            answer = self._answer_visit(visit, outside, default, UNKNOWN, now)
            answers.append(answer if isinstance(answer, LiveAssignment) else None)
        return answers

    def _open_segment(self) -> SteadyArmError | None:
        """Make sure that there are positions; returns why there can be none."""
        while True:
            snapshot = self.storage.snapshot(self.key)
            last = snapshot.segments[-1][0] if snapshot.segments else None
            if last is not None and last.closed is None and last.used < last.rounds:
                return None
            now = self.now()
            try:
                decision = decide(self.settings, snapshot, now, need=True)
            except (BudgetSpentError, RewardsPendingError) as error:
                return error
            assert decision is not None
            stored = self.storage.decide(self.key, snapshot.experiment.version, decision, now)
            if stored and decision.opened:
                return None

    def _choose_default(self) -> None:
        """Choose what is shown after the test, unless that was done."""
        known = self.storage.find_assignments(self.key, [])
        if choose_default(self, AfterTest.read(known.outside)) is None:
            self._undecided = known.state, self.now() + microseconds(EXAMINED)

    # Rewards

    def tell(
        self,
        assignment: LiveAssignment | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> None:
        """Record the reward of an assignment, its id or a unit, in any order, late or not.

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
        nowhere; a refused one has the error in its place, and the others are stored. An archived
        test refuses all with a WrongStateError.

        refresh : False leaves it to the caller to `refresh` afterwards
        """
        now = self.now()
        answers: list[ReportStatus | SteadyArmError] = []
        places: list[int] = []  # of the report that each event is part of
        events: list[Event] = []
        reports = [Report(*reward) for reward in rewards]
        for place, report in enumerate(reports):
            try:
                reported = self._events_of(report, now)
            except (InvalidInputError, UnknownAssignmentError) as error:
                answers.append(error)
                continue
            answers.append("repeated" if reported else "outside")
            events += reported
            places += [place] * len(reported)
        recorded = self.storage.record(self.key, events, now) if events else RecordResult((), False)
        outcomes = recorded.outcomes
        unknown = any(outcome.status == "unknown" for outcome in outcomes)
        outside = unknown and self._shows_outside()
        for place, event, outcome in zip(places, events, outcomes, strict=True):
            if outcome.status == "repeated" or isinstance(answers[place], SteadyArmError):
                continue
            if outcome.status == "stored":
                answers[place] = "stored"
            elif outside and outcome.status == "unknown" and isinstance(event.target, str):
                answers[place] = "outside"
            else:
                target = reports[place].target
                answers[place] = refusal(self.settings, self.name, target, event, outcome, now)
        archived = [answer for answer in answers if isinstance(answer, WrongStateError)]
        if archived and len(archived) == len(answers):
            raise archived[0]
        self.exhausted = recorded.exhausted
        stops_itself = self.settings.stop == "when sure"
        if refresh and "stored" in answers and (self.exhausted or stops_itself):
            self._try_to_refresh()
        return answers

    def _events_of(self, report: Report, now: int) -> list[Event]:
        """Validate a report: one event for each of its metrics, none if it is of no assignment."""
        given = report.target
        if (given.id if isinstance(given, LiveAssignment) else given) == "":
            return []  # the id of what is shown outside of the test
        target = self._target(given)
        at = None if report.at is None else when_of(report.at, now)
        if not isinstance(report.values, Mapping) and not self.settings.by_event:
            return [Event(target, self.settings.check_reward(report.values), at=at)]
        values = validate_values(self.settings, report.values, report.event)
        return [Event(target, value, name, at, report.event) for name, value in values.items()]

    def _shows_outside(self) -> bool:
        """Whether units without an assignment may have been shown something."""
        if self.settings.traffic < 1:
            return True
        known = self.storage.find_assignments(self.key, [])
        return known.outside is not None or (
            known.state != "running" and self.settings.after == "show"
        )

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
        closed = False
        while self.due:
            snapshot, now = self.storage.snapshot(self.key), self.now()
            decision = decide(self.settings, snapshot, now, need=False)
            if decision is None:
                break
            if self.storage.decide(self.key, snapshot.experiment.version, decision, now):
                closed = True
                # A superseded segment is shorter, and may be over itself.
                if decision.supersede is None:
                    break
        if self.settings.stop != "when sure":
            return
        if closed or time.monotonic() >= self._next_look:  # others may have closed some, too
            self._next_look = time.monotonic() + EXAMINED
            self._stop_when_sure()

    def _stop_when_sure(self) -> None:
        """Stop the test if it is sure at its last look; another process may be faster.

        A look that lacked evidence is not examined again, unless rewards are corrected. One that
        only a guardrail or a health check kept from stopping is, until the next one is taken.
        """
        if self.state not in ("running", "paused"):
            return
        moment = self.read_moment()
        results = moment.results
        look, reopened = results.last_look, moment.snapshot.experiment.reopened
        if reopened and results.looks and results.looks[-1].number <= reopened:
            return
        if not look or look == self._examined or not results.tells:
            return
        stopped, done = stop_now(results, moment.metrics(LEVEL))
        self._examined = look if done else None
        if stopped is not None:
            detail = stopped.to_dict()
            self.storage.move(self.key, "stopped", self.now(), by=ITSELF, detail=detail)
            log.info("experiment %r has stopped: %s", self.name, stopped.reason)

    @property
    def due(self) -> bool:
        """Whether `refresh` has something to do; cheap."""
        parts = self.storage.progress(self.key)
        return any(is_over(self.settings, part, self.now()) for part in parts)

    def _target(self, target: LiveAssignment | str) -> Target:
        """Number and check of an assignment, or the unit."""
        if isinstance(target, LiveAssignment):
            target = target.id
        if isinstance(target, str) and (parsed := parse_assignment_id(target, self.tag)):
            return parsed
        if isinstance(target, AssignmentId):
            raise UnknownAssignmentError(
                f"{shortened(str(target))} is not the id of an assignment of {self.name!r}."
            )
        unit = validate_unit(target)
        if self.settings.sticky == "none":
            raise UnknownAssignmentError(
                f'{target!r} is not the id of an assignment of {self.name!r}; with sticky="none" '
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
        stop early, the verdict is that of its last look, and intervals hold at all looks at once
        with probability 0.95. Another `level` or `anytime` asks for an analysis beside the looks.

        Parameters
        ----------
        level : probability with which intervals hold, for all variants at once
        anytime : by default intervals hold at all times at once with probability `level`, however
            often the verdict is read: those of a confidence sequence until the whole budget is
            assigned and the last window has closed, then those of a single analysis;
            `Session.recommend` says more. False asks for a single analysis. True asks for the
            sequence alone, for tests of any size if a reward_range was given and the set is not
            large.
        by : an attribute of units, for results in each of its levels instead of a verdict;
            exploratory
        """
        bounds = self.settings.reward_range if anytime else None
        if by is not None:
            return self.read_moment().breakdown(by, level, anytime, bounds)
        return self.read_moment().recommend(level, anytime, bounds)

    def metrics(self, level: float = 0.95, anytime: bool | None = None) -> tuple[MetricResult, ...]:
        """Results of the secondary metrics and guardrails, each on visits whose window ended.

        level, anytime : as for `recommend`; intervals of all secondary metrics hold at once, and
            those of each guardrail by themselves
        """
        return self.read_moment().metrics(level, anytime)

    def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing or late."""
        results = self.read_moment().results
        return with_outlier(results, None if results.clicks else self.storage.extreme(self.key))

    def results(self) -> LiveResults:
        """All that the test says of itself; missing="fail" refuses missing rewards at the end."""
        return self.read_moment().results.check_complete()

    def read_moment(self) -> Moment:
        """Read the stored state of the test, from which all results follow."""
        snapshot, days = (
            self.storage.snapshot(self.key, everything=True),
            self.storage.days(self.key),
        )
        needed = self.settings.further or self.settings.attributes
        series = self.storage.series(self.key) if needed else ()
        stopped = find_early_stop(self.storage.history, self.settings, snapshot.experiment)
        return Moment(self.settings, snapshot, days, series, self.now(), stopped)

    def status(self) -> Status:
        """The status of the test in numbers."""
        snapshot = self.storage.snapshot(self.key, everything=True)
        return compute_status(self.settings, snapshot)

    def replay(self) -> Replay:
        """Compute the whole test anew from its log, and compare."""
        return replay(self.storage, self.storage.find(self.name), self.settings)

    def export(self, path: str | Path) -> Path:
        """Write the log into a .csv or .parquet file that `analyze` reads.

        A description is written beside it, from which `analyze` reads settings and segments.

        Parameters
        ----------
        path : the path of the file

        Returns
        -------
        Path : of the description beside it
        """
        return export_experiment(self, path)

    # Corrections; each is an entry of the audit log

    def void(self, target: LiveAssignment | str, *, reason: str, by: str = "") -> CorrectionResult:
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
    ) -> CorrectionResult:
        """Leave out all visits of a unit, or those of a period: they count nowhere.

        Parameters
        ----------
        unit : whose visits; of a period if it is not given
        since, until : times of assignments, the first one included and the last one not
        reason : why, for those who read the audit log; name no unit in it
        by : the author, for the audit log
        """
        now = self.now()
        ends = {
            name: None if when is None else to_micros(when, LATEST)
            for name, when in (("since", since), ("until", until))
        }
        who = None if unit is None else validate_unit(unit)
        return self._correct(by, now, kind="exclude", unit=who, reason=reason, **ends)

    def erase(self, unit: str, *, reason: str = "", by: str = "") -> CorrectionResult:
        """Erase the identity of a unit: its visits stay, under a random name.

        Rewards that are reported by the ids of these visits still count. If the unit comes again
        it is a new one. This is possible in every state.

        Parameters
        ----------
        unit : who
        reason : why, for those who read the audit log; name no unit in it
        by : the author, for the audit log
        """
        return self._correct(by, kind="erase", unit=validate_unit(unit), reason=reason)

    def corrections(self) -> list[AuditEntry]:
        """The entries of the audit log that corrected something, oldest first."""
        return [entry for entry in self.history() if entry.action in ACTIONS.values()]

    def history(self) -> list[AuditEntry]:
        """All entries of the audit log about this experiment, oldest first."""
        return self.storage.history(self.name)

    def _correct(self, by: str, now: int | None = None, **change: Any) -> CorrectionResult:
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
        by : the author, for the audit log
        """
        self._move("paused", "running", by)

    def resume(self, by: str = "") -> None:
        """From paused to running again.

        Parameters
        ----------
        by : the author, for the audit log
        """
        self._move("running", "paused", by)

    def stop(self, by: str = "") -> None:
        """Assign nothing any more; rewards of earlier assignments are still recorded.

        Without a reward window this also says that no more rewards are expected: missing ones
        count as declared from now on.

        Parameters
        ----------
        by : the author, for the audit log
        """
        self._move("stopped", None, by)

    def reopen(self, *, reason: str, by: str = "") -> None:
        """From stopped to running again, if it was stopped by mistake.

        Intervals hold as if the test had not been stopped. A test that stopped itself does so again
        at a later look. Refused if a variant is rolled out.

        Parameters
        ----------
        reason : why, for those who read the audit log; name no unit in it
        by : the author, for the audit log
        """
        if not validate_reason(reason).strip():
            raise InvalidInputError.of("reason", reason, "a sentence for the audit log")
        looks = [int(entry.detail.get("look", 0)) for entry in self.history()]
        self.storage.reopen(self.key, max(looks), self.now(), by=by, reason=reason)

    def archive(self, by: str = "") -> None:
        """Accept neither assignments nor rewards any more.

        Parameters
        ----------
        by : the author, for the audit log
        """
        self._move("archived", None, by)

    def delete(self, by: str = "") -> None:
        """Delete a draft; nothing was assigned in it, and its name is free again.

        Parameters
        ----------
        by : the author, for the audit log
        """
        self.storage.delete_draft(self.key, self.now(), by=by)

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
        units. Others keep their variant of the test; new ones see the control or, if there is none,
        the default.

        Parameters
        ----------
        variant : its name; by default what is rolled out already, else the recommended variant, if
            the decision is clear
        share : the share of all units, from 0 to 1; it may be raised at any time
        stop : True stops the test if it is still running; without it such a test is refused
        change : True allows that units lose what was rolled out to them, because the share gets
            smaller or another variant takes its place
        by, reason : the author and the reason, for the audit log
        """
        return roll_out(self, variant, share, stop, change, by, reason)

    def _move(self, to: ExperimentState, only: ExperimentState | None, by: str) -> None:
        state = self.state
        if only is not None and state not in (only, to):
            raise WrongStateError(
                f"the experiment {self.name!r} is {describe_state(state)}; only {ONLY[only]}."
            )
        self.storage.move(self.key, to, self.now(), by=by)

    def close(self) -> None:
        """Let go of the storage's connections."""
        self.storage.close()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
