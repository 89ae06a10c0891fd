"""AfterTest: what an experiment does once its test is over; `outside` has what it keeps of that.

Units that are not part of the test see the default, which is chosen when the first of them comes,
or what an operator rolls out. If some are held back from a roll-out, a follow-up experiment with
fixed shares in the same storage says who, and `ask` and `tell` of the first one pass them on to it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from steadyarm.arms import ArmSet
from steadyarm.errors import (
    BudgetSpentError,
    ExperimentExistsError,
    InvalidInputError,
    SteadyArmError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.live.assignments import (
    AssignmentId,
    LiveAssignment,
    Reported,
    Served,
    Soon,
    Step,
    Steps,
)
from steadyarm.live.decisions import first_state
from steadyarm.live.looks import ITSELF
from steadyarm.live.metrics import unnamed
from steadyarm.live.outside import (
    DEFAULT_CHOSEN,
    ROLLED_OUT,
    Outside,
    RollOut,
    check_change,
    checked_reason,
    checked_share,
)
from steadyarm.live.settings import FOLLOWS, OF_PRIMARY, Settings
from steadyarm.live.verdict import Verdict
from steadyarm.policies import Uniform
from steadyarm.storages.records import (
    POSITIONS,
    Assigned,
    ExperimentRecord,
    ExperimentState,
    Known,
    new_tag,
    parse_assignment_id,
    to_datetime,
)
from steadyarm.validation import finite_number
from steadyarm.wording import strung

if TYPE_CHECKING:
    from steadyarm.live.experiment import Experiment

OVER = (BudgetSpentError, WrongStateError)  # why a unit is not part of the test
Told = Literal["stored", "repeated", "outside"]  # what became of a reward
WAS_OPEN = "Nothing was decided when the first of them came."
FOLLOWED = 10  # budgets: how many units are followed after a roll-out
EVERY = 1.0  # seconds between two looks whether there are follow-ups


class AfterTest:
    """What one experiment shows outside of its test, in one process."""

    def __init__(self, test: Experiment) -> None:
        self._test = test
        self._follow_ups: dict[str, Experiment] = {}
        self._next_follow = 0.0  # when it is read again whether there are some
        self._followed: tuple[str, ...] = ()  # their names, as far as is known
        self.all_used = False  # whether a test that is over waits for no leased position

    def _known(self, units: Sequence[str]) -> Known:
        return self._test.storage.known(self._test.key, units)

    def showing(
        self,
        units: Sequence[str | SteadyArmError],
        found: Sequence[Assigned | SteadyArmError | Soon],
        served: Served,
    ) -> Steps[list[LiveAssignment | SteadyArmError | Soon]]:
        """What units see of a test that is over, paused or a draft."""
        settings, outside = self._test.settings, Outside.read(served.outside)
        waiting = served.state in ("draft", "paused") and outside is None
        if settings.after == "show" and any(isinstance(one, OVER) for one in found):
            if waiting:
                outside = Outside(default=settings.control)
            elif outside is None or outside.default is None:
                outside = yield from self._choosing(served.outside, spent=served.state is None)
        now: int = yield Step(self._test.now, writes=False)
        answers: list[LiveAssignment | SteadyArmError | Soon] = []
        reached = {
            i: rolled
            for i, unit in enumerate(units)
            if outside is not None and isinstance(unit, str)
            for rolled in (outside.rolled(settings.seed, unit),)
            if rolled is not None
        }
        followed = yield from self._following(reached, units)
        for i, (unit, one) in enumerate(zip(units, found, strict=True)):
            if i in followed:
                answers.append(followed[i])
                continue
            shown = reached[i].variant if i in reached else None
            if shown is None and isinstance(one, OVER) and settings.after == "show":
                shown = None if outside is None else outside.default
            if shown is not None:
                answers.append(self._shown_outside(str(unit), shown, now))
            elif isinstance(one, Assigned):
                answers.append(self._test.answer(one))
            elif isinstance(one, WrongStateError) and served.state == "stopped":
                answers.append((yield Step(self._why_stopped, writes=False)))
            else:
                answers.append(one)
        return answers

    def _choosing(self, before: Mapping[str, Any] | None, spent: bool) -> Steps[Outside]:
        """Choose the default for units that come after the test, unless another process has.

        before : what is shown outside of the test so far, as stored
        spent : whether the test is over because no position is left
        """
        chosen: tuple[str, str] = yield Step(self._default, writes=False, computes=True)
        while (outside := Outside.read(before)) is None or outside.default is None:
            now: int = yield Step(self._test.now, writes=False)
            after = replace(
                outside or Outside(), default=chosen[0], reason=chosen[1], since=now, spent=spent
            )
            detail = {"variant": chosen[0], "reason": chosen[1]}
            given = self._test.key, before, after.to_dict(), DEFAULT_CHOSEN, now
            storing = partial(self._test.storage.show_outside, *given, by=ITSELF, detail=detail)
            if (yield Step(storing, writes=True)):
                return after
            known: Known = yield Step(partial(self._known, []), writes=False)
            before = known.outside
        return outside

    def _following(
        self, reached: Mapping[int, RollOut], units: Sequence[str | SteadyArmError]
    ) -> Steps[dict[int, LiveAssignment | SteadyArmError | Soon]]:
        """What units see that are followed after a roll-out, which its follow-up assigns.

        reached : the roll-out of units, by their place among `units`
        """
        answers: dict[int, LiveAssignment | SteadyArmError | Soon] = {}
        wanted = {one.follow_up: one for one in reached.values() if one.follow_up is not None}
        for name, rolled in wanted.items():
            follow: Experiment | None = yield Step(partial(self._loaded, name), writes=False)
            if follow is None:
                continue
            places = [i for i, one in reached.items() if one.follow_up == name]
            asked = [str(units[i]) or None for i in places]  # a request without a unit has none
            found = yield from follow.asking(asked, last=True)
            if any(isinstance(one, BudgetSpentError) for one in found):
                yield Step(partial(self._ended, follow, rolled.variant), writes=True)
            for i, one in zip(places, found, strict=True):
                if not isinstance(one, OVER):  # else nobody new is followed any more
                    answers[i] = self._as_outside(one) if isinstance(one, LiveAssignment) else one
        return answers

    def _as_outside(self, one: LiveAssignment) -> LiveAssignment:
        """An assignment of a follow-up as what this experiment shows; it keeps its id."""
        arm = self._test.arms.index(one.name)
        shown: dict[str, Any] = {"arm": arm, "value": self._test.settings.variant_values[arm]}
        return replace(one, probability=math.nan, new=False, in_test=False, **shown)

    def seen(self, units: Sequence[str], known: Known) -> dict[str | None, LiveAssignment | None]:
        """What units see outside of the test already; None for those to be assigned first.

        known : the assignments of these units, and how the experiment stands. Units that keep
            theirs are left out
        """
        outside, settings = Outside.read(known.outside), self._test.settings
        found: dict[str | None, LiveAssignment | None] = {}
        if outside is None:
            return found
        now, have = self._test.now(), {row.unit for row in known.assigned if row is not None}
        for unit in units:
            rolled = outside.rolled(settings.seed, unit)
            follow = None if rolled is None else self._loaded(rolled.follow_up)
            if follow is not None:
                (one,) = follow.known([unit])
                found[unit] = None if one is None else self._as_outside(one)
            elif rolled is not None:
                found[unit] = self._shown_outside(unit, rolled.variant, now)
            elif unit not in have and settings.after == "show" and outside.default is not None:
                found[unit] = self._shown_outside(unit, outside.default, now)
        return found

    def _loaded(self, name: str | None) -> Experiment | None:
        """A follow-up of this experiment; None if there is none, or none any more."""
        if name is None:
            return None
        if name not in self._follow_ups:
            test = self._test
            try:
                record = test.storage.find(name)
            except UnknownExperimentError:  # it was pruned
                return None
            self._follow_ups[name] = type(test)(test.storage, record, clock=test.simulated_clock)
        return self._follow_ups[name]

    def _ended(self, follow: Experiment, variant: str) -> None:
        """End a follow-up: whoever comes later sees what is rolled out, and no freed position."""
        reason = "All units that it follows are assigned; others see what is rolled out."
        now = follow.now()
        outside = Outside(variant, reason, now, spent=True).to_dict()
        given = follow.key, None, outside, DEFAULT_CHOSEN, now
        detail = {"variant": variant, "reason": reason}
        follow.storage.show_outside(*given, by=ITSELF, detail=detail)

    @property
    def follow_up(self) -> Experiment | None:
        """The experiment that follows the newest roll-out, if some are held back."""
        outside = Outside.read(self._known([]).outside)
        rolled = None if outside is None else outside.roll_out
        return None if rolled is None else self._loaded(rolled.follow_up)

    def _default(self) -> tuple[str, str]:
        """The variant to show after the test, on what is known now, and why."""
        try:
            found: Verdict | SteadyArmError = self._test.recommend()
        except SteadyArmError as error:
            found = error
        return default_of(self._test.settings, found)

    def _shown_outside(self, unit: str, name: str, now: int) -> LiveAssignment:
        arm = self._test.arms.index(name)
        value = self._test.settings.variant_values[arm]
        created = to_datetime(now)
        return LiveAssignment("", unit, arm, name, math.nan, created, False, value, in_test=False)

    def _why_stopped(self) -> WrongStateError:
        """Why a stopped test assigns nothing: who stopped it, and when."""
        entries = [each for each in self._test.history() if each.action == "experiment.stopped"]
        if not entries:
            return WrongStateError(
                f"{self._test.name!r} is stopped; only a running experiment assigns variants."
            )
        last = entries[-1]
        on = f"{to_datetime(last.created):%Y-%m-%d}"
        reason = str(last.detail.get("reason", "")).rstrip(".")
        if last.author == ITSELF and reason:
            return WrongStateError(
                f"the test stopped itself on {on} because of this: {reason}. Read the "
                'recommendation; tests with after="show" go on showing a variant.'
            )
        by = f" by {last.author}" if last.author else ""
        return WrongStateError(
            f"the experiment {self._test.name!r} was stopped on {on}{by}; only a running one "
            "assigns variants."
        )

    def tell_follow_ups(
        self, given: Sequence[Reported], answers: list[Told | SteadyArmError]
    ) -> None:
        """Report rewards to follow-ups, too: by their own ids, and by units that they follow.

        answers : of the test itself, to which those of follow-ups are added
        """
        for name in self._follow_names():
            follow = self._loaded(name)
            if follow is None:
                continue
            places, entries = list[int](), list[Reported]()
            for i, (target, *rest) in enumerate(given):
                shown = target.id if isinstance(target, LiveAssignment) else target
                if self._concerns(follow, shown):
                    places.append(i)
                    entries.append((shown, *rest))
            try:
                outcomes = follow.tell_many(entries) if entries else []
            except (WrongStateError, UnknownExperimentError):  # archived, or pruned since
                continue
            for i, outcome in zip(places, outcomes, strict=True):
                if outcome in ("stored", "repeated") and answers[i] not in ("stored", "repeated"):
                    answers[i] = outcome

    def _concerns(self, follow: Experiment, target: Any) -> bool:
        """Whether a reward of a target may be one of a follow-up."""
        if not isinstance(target, str) or not target:
            return False
        if parse_assignment_id(target, follow.tag) is not None:
            return True
        unit = not isinstance(target, AssignmentId) and self._test.settings.sticky == "unit"
        return unit and parse_assignment_id(target, self._test.tag) is None

    def _follow_names(self) -> tuple[str, ...]:
        """Names of the follow-ups; read once a second."""
        if time.monotonic() >= self._next_follow:
            self._next_follow = time.monotonic() + EVERY
            outside = Outside.read(self._known([]).outside)
            self._followed = () if outside is None else outside.follow_ups
        return self._followed

    def roll_out(
        self,
        variant: str | None,
        share: float,
        holdback: float | None,
        stop: bool,
        change: bool,
        by: str,
        reason: str,
    ) -> RollOut:
        """Roll out a variant; see `Experiment.roll_out`."""
        checked_share(share)
        checked_reason(reason)
        if variant is not None and variant not in self._test.arms.names:
            known = strung(self._test.arms.names, 8)
            raise InvalidInputError(
                f"variant is {variant!r}, which is no variant; they are {known}.", field="variant"
            )
        while True:
            # All that may be refused comes first: then the test still runs as it did.
            head = self._known([])
            before = Outside.read(head.outside)
            self._check_over(head.state, before, stop)
            outside = before or Outside()
            chosen, current = variant or self._to_roll_out(outside), outside.roll_out
            if current is not None and current.variant != chosen:
                current = None
            held = holdback
            if held is None:
                held = 0.0 if current is None else current.holdback
            self._check_holdback(held, chosen)
            new = RollOut(chosen, float(share), self._test.now(), float(held))
            check_change(outside, new, change)
            if (
                current is not None
                and current.holdback == held
                and (not holdback or self._follows_on(current.follow_up, change))
            ):
                if current.share == new.share:
                    return current
                new = replace(new, follow_up=current.follow_up)
            elif held:
                new = replace(new, follow_up=self._create_follow_up(new, by))
            if stop and head.state in ("running", "paused"):
                self._test.stop(by)
            now = self._test.now()
            if outside.default is None:
                default, why = self._default()
                outside = replace(outside, default=default, reason=why, since=now)
            detail: dict[str, Any] = {"variant": chosen, "share": new.share, "reason": reason}
            if new.follow_up is not None:
                detail |= {"holdback": new.holdback, "follow_up": new.follow_up}
            if outside.roll_out is not None:
                last = outside.roll_out
                detail["before"] = {"variant": last.variant, "share": last.share}
            given = self._test.key, head.outside, outside.after(new).to_dict(), ROLLED_OUT, now
            if self._test.storage.show_outside(*given, by=by, detail=detail):
                self._next_follow = 0.0
                return new

    def _check_holdback(self, holdback: float, variant: str) -> None:
        """Refuse a holdback from a variant that nobody can be held back from."""
        if not 0 <= finite_number(holdback, "holdback") < 1:
            raise InvalidInputError.of("holdback", holdback, "a number from 0 to below 1")
        control = self._test.settings.control
        if holdback and control is None:
            raise InvalidInputError(
                "holdback is given, but the test has no control that units could keep; leave it "
                "out.",
                field="holdback",
            )
        if holdback and variant == control:
            raise InvalidInputError(
                f"{variant!r} is the control itself, so that nobody can be held back from it; "
                "leave holdback out.",
                field="holdback",
            )

    def _follows_on(self, name: str | None, change: bool) -> bool:
        """Whether a follow-up still holds units back; to put another in its place is a change."""
        follow = self._loaded(name)
        head = None if follow is None else follow.storage.known(follow.key, [])
        if head is not None and head.state == "running" and head.outside is None:
            return True
        if change:
            return False
        raise InvalidInputError(
            f"{name!r}, which held units back, has ended; to hold others back in their place, say "
            "so: change=True, on the command line --change.",
            field="holdback",
        )

    def _create_follow_up(self, rolled: RollOut, by: str) -> str:
        """An experiment that gives the control to those held back, and follows all; its name."""
        settings, control = self._test.settings, self._test.settings.control
        assert control is not None
        values, storage = settings.values, self._test.storage
        options: dict[str, Any] = {
            "sticky": settings.sticky,
            "control": {control: rolled.holdback},
            "metrics": settings.metrics,
            "values": None if values is None else [values[control], values[rolled.variant]],
            "after": "refuse",
        }
        if unnamed(settings.metrics):  # else they say it
            options |= {key: getattr(settings, key) for key in OF_PRIMARY}
        arms, budget = ArmSet.one_hot([control, rolled.variant]), FOLLOWED * settings.budget
        clock = storage.find(self._test.name).config.get("clock")
        further = {FOLLOWS: self._test.tag} | ({} if clock is None else {"clock": clock})
        for number in count(1):
            name = f"{self._test.name[:88]}.holdback-{number}"
            seed = (settings.seed + number) % 2**53
            own = Settings(arms, Uniform(), min(budget, POSITIONS), seed, **options)
            record = ExperimentRecord(
                name=name,
                tag=new_tag(),
                state="running",
                config=own.to_dict() | further,
                created=rolled.since,
                policy_state=first_state(own),
            )
            try:
                storage.create(record, by=by)
            except ExperimentExistsError:
                if not self._is_unused(name, record):
                    continue
            return name
        raise AssertionError

    def _is_unused(self, name: str, record: ExperimentRecord) -> bool:
        """Whether a follow-up was made by an attempt that was interrupted, and follows nobody."""
        found = self._test.storage.find(name)
        (summary,) = self._test.storage.summaries(found.key)
        alike = json.dumps(found.config) == json.dumps(record.config)
        return alike and found.state == "running" and not summary.assigned

    def _check_over(self, state: ExperimentState, outside: Outside | None, stop: bool) -> None:
        """Refuse a roll-out of a test that is not over."""
        if state == "draft":
            raise WrongStateError(
                f"the experiment {self._test.name!r} is a draft, and has found nothing that could "
                "be rolled out; start it first."
            )
        if state in ("stopped", "archived") or stop or outside is not None:
            return
        if self._test.status().total_assigned < self._test.settings.budget:
            raise WrongStateError(
                f"the experiment {self._test.name!r} is {state}, and a roll-out ends its test; say "
                "so: stop=True, on the command line --stop."
            )

    def _to_roll_out(self, outside: Outside) -> str:
        """The variant to roll out where none is named."""
        if outside.roll_out is not None:
            return outside.roll_out.variant
        decision = self._test.recommend().decision
        if decision.word in ("ship", "keep") and decision.variant is not None:
            return decision.variant
        raise WrongStateError(
            f"nothing is clear enough to be rolled out by itself ({decision.text.rstrip('.')}); "
            "name the variant."
        )

    def stop_if_unused(self) -> None:
        """Stop a test whose budget was spent if some positions will never be used.

        They were leased, and not reported as used, when the first unit found nothing left; who
        comes after that sees the default and must go on seeing it.
        """
        head, now = self._known([]), self._test.now()
        outside = Outside.read(head.outside)
        parts = self._test.storage.progress(self._test.key)
        unused = sum(part.rounds - part.assigned for part in parts)
        waits = head.state in ("running", "paused") and outside is not None and outside.spent
        if not waits or not unused:
            self.all_used = True
            return
        if any(lease.expires > now for lease in self._test.storage.leases(self._test.key)):
            return
        reason = f"the budget was spent; {unused} of its positions were leased and not used."
        detail = {"reason": reason, "unused": unused}
        self._test.storage.move(self._test.key, "stopped", now, by=ITSELF, detail=detail)
        self.all_used = True


def default_of(settings: Settings, verdict: Verdict | SteadyArmError) -> tuple[str, str]:
    """The variant to show after the test to units that have none, and why.

    verdict : on what is known now, or why there is none
    """
    control = settings.control
    if isinstance(verdict, Verdict):
        decision = verdict.decision
        if decision.word in ("ship", "keep") and decision.variant is not None:
            return decision.variant, decision.text
        if control is None:
            return verdict.name, f"It led, and there is no control. {WAS_OPEN}"
    elif control is None:
        return settings.arms.names[0], f"It is the first, and there is no control. {WAS_OPEN}"
    return control, f"It is the control. {WAS_OPEN}"
