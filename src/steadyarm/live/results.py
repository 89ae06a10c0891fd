"""LiveResults: all results of a live test, in a session or in a storage.

They are a function of the policy's state and of the ledgers of the segments. `compute_results`
computes them from a snapshot of a storage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError, RewardsPendingError, VisitsPendingError
from steadyarm.inference import (
    DriftReport,
    Evidence,
    Finding,
    HealthReport,
    LackOfFit,
    LoggedSegment,
    drift_report,
    health_report,
    lack_of_fit,
    late_finding,
)
from steadyarm.inference.health import outlier_finding
from steadyarm.inference.intervals import variance_kept
from steadyarm.live.after_test import AfterTest, RollOut
from steadyarm.live.decisions import (
    SegmentLedger,
    adjust_ledgers,
    build_ledger,
    fill_in_missing,
    first_slopes,
    first_state,
    is_over,
    load_state,
    progress_of,
    state_after,
)
from steadyarm.live.estimates import MetricResult
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import LEVEL, EarlyStop, InterimAnalysis, list_looks, verdict_at_look
from steadyarm.live.verdict import (
    Decision,
    Verdict,
    arms_judged,
    build_evidence,
    compute_verdict,
    explain_doubt,
    make_decision,
)
from steadyarm.policies import Policy, State
from steadyarm.segments import Segment
from steadyarm.storages.records import (
    DaySums,
    ExperimentState,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Tally,
    to_datetime,
)
from steadyarm.validation import check_fraction, validate_range
from steadyarm.wording import counted, listed

SILENT = 300  # visits without a reward: the rate is below 1 % then, with 95 % probability
SILENCE = "rewards"  # the check that fails then
ON_THE_WAY = 0.2  # of the error probability is spent before the end, the rest at the end

EARLY = (
    "These intervals hold for a single analysis at the end; before the end they hold only if this "
    "is the only one."
)
OTHER_WAY = (
    "Rewards or visits were corrected after {policy} had left variants out; on what is known now "
    "it would have kept others, of which nothing more was seen. The verdict rests on what was "
    "known then."
)

REOPENED = (
    "The test was reopened: intervals hold as if it had not been stopped. Units that came while it "
    "was stopped may have seen the default before they were assigned."
)


@dataclass(frozen=True, eq=False)
class LiveResults:
    """A live test at one moment.

    All statements rest on *mature* visits only: on the first segments, up to the first one of
    which a visit or a reward may still come. Pending rewards are not like those that are in (a slow
    variant's purchases come last), so segments are judged whole or not at all, and nothing pending
    counts as zero. The judged segments are a prefix of the test, as confidence sequences need:
    their intervals hold after every segment at once, so it does not matter why an analysis stops
    at one of them.

    Attributes
    ----------
    settings : the settings of the test; sums, `least` and `largest` are what the policy maximizes
    state : the policy's, after the pieces that it has observed
    pieces : ledgers of all segments with an assignment, in the order of their index
    ended : neither visits nor rewards will come any more, so that all pieces are judged
    spent : the whole budget was assigned, so that the end did not depend on what was seen
    least, largest : of the rewards; None if not known, or before the first
    caution : what to mind about the state; empty if nothing
    excluded : visits that were excluded, which the pieces leave out
    in_time : visits by segment and day, with those whose reward was not refused as too late
    stopped : that the test stopped itself; verdicts then rest on the look that it stopped at
    unmatched : names of events that were received and that no experiment measures
    reopened : whether the test was stopped and went on
    """

    settings: Settings
    state: State
    pieces: tuple[SegmentLedger, ...]
    ended: bool
    spent: bool = True
    least: float | None = None
    largest: float | None = None
    caution: str = ""
    excluded: int = 0
    in_time: tuple[LoggedSegment, ...] = ()
    stopped: EarlyStop | None = None
    unmatched: tuple[str, ...] = ()
    reopened: bool = False

    @cached_property
    def mature(self) -> tuple[SegmentLedger, ...]:
        """The pieces that are judged; of a test that stopped itself those of the last look.

        Policies that leave variants out have no confidence sequences; for these all pieces count
        that wait for no reward.
        """
        pieces = self.pieces
        if self.stopped is not None:
            pieces = tuple(piece for piece in pieces if piece.index <= self.stopped.segment)
        if self.ended:
            return pieces
        if not self.settings.policy.unbiased:
            return tuple(piece for piece in pieces if not piece.waiting)
        complete = [piece.observed or piece.complete for piece in pieces]
        return pieces[: complete.index(False) if False in complete else None]

    def judged(self) -> list[SegmentLedger]:
        """The mature pieces that have recorded rewards."""
        return [piece for piece in self.mature if piece.recorded]

    @property
    def tells(self) -> bool:
        """Whether some judged reward is not 0; else no variant leads."""
        return any(p.stats.sums.any() or np.any(p.stats.squares) for p in self.judged())

    @property
    def final(self) -> bool:
        """Whether this is the analysis at the end that was planned."""
        policy = self.settings.policy
        done = policy.waits and policy.next_segment(self.state) is None
        return self.stopped is None and ((self.ended and self.spent) or done)

    @property
    def assigned(self) -> int:
        """Visits assigned so far."""
        return sum(piece.used for piece in self.pieces)

    @property
    def sign(self) -> float:
        """The factor between the policy's rewards and recorded ones."""
        return 1.0 if self.settings.direction == "maximize" else -1.0

    def check_complete(self) -> LiveResults:
        """The results themselves; refused after the end if no reward may be missing, but some are.

        That is what missing="fail" asks for.
        """
        missing = sum(int(piece.missing.sum()) for piece in self.pieces)
        if self.settings.missing == "fail" and self.ended and missing:
            raise RewardsPendingError(
                f"{missing} rewards are missing, and the experiment was created with "
                'missing="fail"; report them. steadyarm experiment export lists which.'
            )
        return self

    def recommend(
        self,
        level: float = 0.95,
        anytime: bool | None = None,
        reward_range: tuple[float, float] | None = None,
        metrics: tuple[MetricResult, ...] = (),
    ) -> Verdict:
        """The best variant on mature visits; `Session.recommend` describes the parameters.

        A test that may stop early is judged at its last look, unless another analysis is asked for.

        metrics : results of secondary metrics, whose guardrails have a say in the decision
        """
        check_fraction(level, "level")
        usual = level == LEVEL and anytime is None and reward_range is None
        if self.settings.stop is not None and usual:
            return verdict_at_look(self, metrics)
        if self.stopped is not None:  # another analysis than the one that stopped the test
            every = replace(self, stopped=None)
            return every.recommend(level, anytime, reward_range, metrics)
        policy = self.settings.policy
        used, watched = self.spending(level, anytime)
        if reward_range is not None and anytime is False:
            raise InvalidInputError(
                "reward_range is for intervals that hold at all times; leave it out, or leave "
                "anytime out."
            )
        if reward_range is not None:
            self._check_range(reward_range)
        if not self.tells:
            self.explain_emptiness()
        bounds = reward_range if watched else None
        evidence = self.evidence if policy.unbiased else None
        adjusted = bool(self.settings.covariates) and bounds is None
        if evidence is not None and not adjusted:
            evidence = self.raw_evidence  # the range of adjusted rewards is not known
        verdict = compute_verdict(
            self.settings,
            self.state_so_far(),
            evidence,
            used,
            watched,
            bounds,
            as_policy=self.as_policy(self.mature) and (adjusted or not self.settings.covariates),
        )
        if adjusted and evidence is not None:
            verdict = replace(verdict, **self.beside(verdict))
        verdict = self.with_visits(verdict, self.mature, level, watched)
        decision = self.decide(verdict, metrics)
        return replace(verdict, decision=decision, metrics=metrics)

    def as_policy(self, judged: Sequence[SegmentLedger]) -> bool:
        """Whether a verdict on these pieces rests on all that the policy observed, and no less."""
        indices = {piece.index for piece in judged}
        missing = any(piece.zeros or piece.missing.any() for piece in judged)
        return not missing and all(p.index in indices for p in self.pieces if p.observed)

    def with_visits(
        self, verdict: Verdict, judged: Sequence[SegmentLedger], level: float, watched: bool
    ) -> Verdict:
        """The verdict with what it rests on, and with what is wrong about it."""
        indices, unbiased = {piece.index for piece in judged}, self.settings.policy.unbiased
        visits, zeros = sum(piece.used for piece in judged), sum(piece.zeros for piece in judged)
        missing = sum(int(piece.missing.sum()) for piece in judged) + zeros
        last = max((piece.last for piece in judged if piece.last is not None), default=None)
        early = "" if watched or self.final else EARLY
        doubt = explain_doubt(verdict, self.settings.direction, lambda: self._fit(judged))
        assumed = (verdict.assumption, REOPENED if self.reopened else "")
        return replace(
            verdict,
            assumption=" ".join(filter(None, assumed)),
            intervals=self.settings.primary.clip(verdict.intervals),
            level=level,
            rewards=visits - missing if unbiased else verdict.rewards - zeros,
            missing=missing,
            judged=visits,
            waiting=self.assigned - visits,
            pending=sum(piece.waiting for piece in self.pieces if piece.index not in indices),
            until=None if last is None else to_datetime(last),
            unhealthy=self.health.unhealthy if self.pieces else "",
            caution=" ".join(filter(None, (early, self.caution, doubt))),
        )

    def decide(
        self, verdict: Verdict, metrics: Sequence[MetricResult] = (), least: int = 0
    ) -> Decision:
        """Decide from a verdict, with respect to guardrails.

        least : visits before the next decision is possible
        """
        return make_decision(
            verdict,
            self.settings.direction,
            self.settings.budget,
            self.ended or self.final,
            self.spent,
            [metric for metric in metrics if metric.metric.role == "guardrail"],
            least,
            self.settings.primary.difference_unit,
        )

    def beside(self, verdict: Verdict) -> dict[str, Any]:
        """Raw estimates of the variants of a verdict that rests on adjusted ones, and the gain."""
        pair = self.evidence, self.raw_evidence
        if verdict.shown is not None:
            pair = pair[0].view(verdict.shown), pair[1].view(verdict.shown)
        return {"raw": pair[1].estimates[0], "variance_kept": variance_kept(*pair)}

    @cached_property
    def looks(self) -> list[InterimAnalysis]:
        """The looks that were taken at a test which may stop early, up to the one it stopped at."""
        return list_looks(self.settings, self.mature, self.final)

    @property
    def last_look(self) -> tuple[tuple[int, int, float], ...]:
        """The segments, rewards and sums of the last look; corrections change it."""
        pieces = self.mature[: self.looks[-1].pieces] if self.looks else ()
        return tuple((p.index, p.recorded, float(p.stats.sums.sum())) for p in pieces)

    def spending(self, level: float, anytime: bool | None) -> tuple[float, bool]:
        """The level of this analysis, and whether its intervals hold at all times.

        By default all analyses before the end spend a fifth of the error probability together, and
        the last one spends the rest.
        """
        policy = self.settings.policy
        if anytime and not policy.unbiased:
            raise InvalidInputError(
                f"{policy.name} leaves variants out, so no intervals hold at all times; use "
                "anytime=False, or a policy such as Steady."
            )
        watched = policy.unbiased and not self.final if anytime is None else anytime
        if anytime is not None or not policy.unbiased:
            return level, watched
        return level_on_the_way(level) if watched else 1 - (1 - ON_THE_WAY) * (1 - level), watched

    def _check_range(self, reward_range: tuple[float, float]) -> None:
        """Refuse a range that recorded rewards lie outside of."""
        low, high = validate_range(reward_range)
        if self.least is None or self.largest is None:
            return
        seen = sorted((self.sign * self.least, self.sign * self.largest))
        if seen[0] < low or seen[1] > high:
            raise InvalidInputError(
                f"reward_range is ({low:g}, {high:g}), but rewards from {seen[0]:g} to {seen[1]:g} "
                "were recorded; give the range of what can occur."
            )

    def explain_emptiness(self) -> None:
        """Raise an error that says why nothing can be judged.

        A policy that ends without a single round recommends all the same.
        """
        if not self.pieces and self.settings.policy.next_segment(self.state) is None:
            return
        if not self.pieces and self.excluded:
            raise RewardsPendingError(f"all {self.excluded:,} visits so far were excluded.")
        if self.judged():  # all of them are 0
            raise RewardsPendingError(self.silence(self.mature))
        if self.ended:
            raise RewardsPendingError("the test has ended without a single reward.")
        if not any(piece.recorded for piece in self.pieces):
            raise RewardsPendingError("no reward has been reported yet.")
        first = next(piece for piece in self.pieces if not (piece.observed or piece.complete))
        if not first.waiting and not (first.unsettled and first.exhausted):
            raise VisitsPendingError(
                f"a verdict needs the first {first.rounds:,} visits; "
                f"{first.used:,} {'has' if first.used == 1 else 'have'} been assigned."
            )
        if not first.waiting:
            raise RewardsPendingError(
                f"no visit can be judged yet: further events of the first {first.used:,} may still "
                "come, until their window and its grace end."
            )
        which, before = f"the first {first.used:,}", self.pieces[: self.pieces.index(first)]
        if begun := sum(piece.used for piece in before):  # whose rewards were given up
            which = f"{first.used:,} from visit {begun + 1:,} on"
        raise RewardsPendingError(
            f"no visit can be judged yet: {first.waiting:,} of {which} still wait for their "
            "rewards. Report them. If they will never come, forget them, finish the session, "
            "stop the experiment or give it a reward_window."
        )

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence for intervals and drift reports: scores piece by piece."""
        policy, pieces = self.settings.policy, self.judged()
        if not policy.unbiased:
            raise InvalidInputError(
                f"{policy.name} leaves variants out, so its data give no unbiased estimates of "
                "them; use a policy such as Steady."
            )
        if not pieces:
            self.explain_emptiness()
            raise RewardsPendingError("no visit can be judged yet.")
        if any(piece.level for piece in self.adjusted):
            seen = fill_in_missing(policy, self.settings.arms, self.adjusted)
            levels = [np.array([piece.level]) for piece in self.adjusted]
            return build_evidence(self.settings, seen, binary=False, levels=levels)
        return self.raw_evidence

    @cached_property
    def adjusted(self) -> list[SegmentLedger]:
        """The pieces of `judged`, adjusted for covariates with slopes from the pieces before."""
        return adjust_ledgers(self.judged(), first_slopes(self.settings))[0]

    @cached_property
    def raw_evidence(self) -> Evidence:
        """The evidence of rewards as they were recorded, not adjusted for covariates."""
        policy, pieces = self.settings.policy, self.judged()
        seen = fill_in_missing(policy, self.settings.arms, pieces)
        return build_evidence(self.settings, seen, binary=self.clicks)

    @property
    def clicks(self) -> bool:
        """Whether all judged rewards are 0 or 1, as recorded; filled-in ones are means."""
        return all(
            p.stats.squares is not None
            and np.array_equal(self.sign * p.stats.sums, p.stats.squares)
            for p in self.judged()
        )

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise."""
        return drift_report(self.evidence, periods, level, self.settings.budget, self.ended)

    @cached_property
    def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing or late.

        Rewards that may still come are not missing yet: those of mature visits are counted.
        """
        if not self.pieces and self.excluded:
            raise RewardsPendingError(f"all {self.excluded:,} visits so far were excluded.")
        if not self.pieces:
            raise RewardsPendingError(
                "nothing has been assigned yet, so there is nothing to check."
            )
        report = health_report(
            self.settings.arms.names,
            [_log_segment(piece) for piece in self.pieces],
            mature=[_log_segment(piece) for piece in self.mature],
        )
        fit = self._fit(self.mature)
        findings = [*report.findings, *([] if fit is None else [fit.finding])]
        if self.excluded:  # they are not lost
            findings = [finding for finding in findings if finding.name != "lost rows"]
            findings.insert(1, _describe_excluded(self.excluded, self.assigned + self.excluded))
        if zeros := sum(piece.zeros for piece in self.mature):
            # Where only successes are reported, differences in what is missing are the effect.
            missing = Finding(
                "missing rewards",
                "ok",
                None,
                f"{zeros:,} of {sum(piece.used for piece in self.mature):,} rewards did not come "
                "and count as zero, as declared. Lost rewards look the same.",
            )
            findings = [missing if f.name == missing.name else f for f in findings]
        if (silent := self._check_silence()) is not None:
            findings.insert(0, silent)
        if self.in_time:
            findings.append(late_finding(self.settings.arms.names, self.in_time))
        return replace(report, findings=tuple(findings))

    def silence(self, pieces: Sequence[SegmentLedger]) -> str:
        """Why pieces without a reward other than 0 have no leader."""
        recorded = sum(piece.recorded - piece.zeros for piece in pieces)
        visits = counted(sum(piece.used for piece in pieces), "visit")
        why = (
            f"all {recorded:,} rewards so far are 0"
            if recorded
            else f"no reward has arrived for {visits}"
        )
        return f"{why}, so no variant leads."

    def _check_silence(self) -> Finding | None:
        """A failing check if no visit has a reward although one should have come by now."""
        settings = self.settings
        if any(p.stats.sums.any() or np.any(p.stats.squares) for p in self.pieces):
            return None
        event, metric = settings.primary.event, settings.primary.name
        near = get_close_matches(event or metric, self.unmatched, 1, cutoff=0.5)
        misnamed = near and not any(piece.recorded for piece in self.pieces)
        over = self.pieces if settings.window is None or misnamed else self.mature
        visits = sum(piece.used for piece in over)
        if not (self.ended or misnamed or visits >= SILENT):
            return None
        fine = settings.direction == "minimize" and any(p.recorded for p in over)
        advice = "Check that the program that reports rewards runs, and which names it sends."
        why = self.silence(over).removesuffix(", so no variant leads.").capitalize() + "."
        if self.unmatched:
            names = listed([f"'{name}'" for name in near or self.unmatched], 3)
            counts = f"is called '{metric}'" if event is None else f"counts events named '{event}'"
            why += f" Events named {names} were received; the metric {counts}."
        return Finding(SILENCE, "warn" if fine else "fail", None, why, advice)

    def _fit(self, judged: Iterable[SegmentLedger]) -> LackOfFit | None:
        """Whether rewards follow the model that arms which share features are judged by."""
        minimize = self.settings.direction == "minimize"
        pieces = [
            (piece.segment, piece.stats.negate() if minimize else piece.stats)
            for piece in judged
            if piece.recorded
        ]
        arms = arms_judged(self.settings.policy, self.settings.arms)
        return lack_of_fit(arms, pieces) if pieces else None

    def state_so_far(self) -> State:
        """The state updated with further mature pieces; policies that wait use whole segments."""
        policy = self.settings.policy
        early = policy.waits and self.state.played[0] > 0
        fresh = [
            piece for piece in self.adjusted if not piece.observed and (piece.complete or not early)
        ]
        return state_after(policy, self.state, fresh)


class LiveTest(ABC):
    """A live test, wherever it is kept: what can be read of it follows from its `results`.

    Attributes
    ----------
    settings : everything that it was created with
    """

    settings: Settings

    @property
    def arms(self) -> ArmSet:
        """The variants."""
        return self.settings.arms

    @property
    def policy(self) -> Policy[Any]:
        """The policy."""
        return self.settings.policy

    @property
    def budget(self) -> int:
        """The number of assignments in total."""
        return self.settings.budget

    @abstractmethod
    def results(self) -> LiveResults:
        """All that the test says of itself as it is now, unaffected by what comes later."""

    def evidence(self) -> Evidence:
        """The evidence for intervals and drift reports: scores piece by piece."""
        return self.results().evidence

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise.

        Parameters
        ----------
        periods : how many shares
        level : confidence level
        """
        return self.results().drift(periods, level)

    def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing or late.

        Rewards that may still come are not missing yet.
        """
        results = self.results()
        ends = [results.sign * end for end in (results.least, results.largest) if end is not None]
        furthest = max(ends, key=abs, default=None)
        unit = None if furthest is None else (f"with a reward of {furthest:g}", furthest)
        return with_outlier(results, unit)


def with_outlier(results: LiveResults, extreme: tuple[str, float] | None) -> HealthReport:
    """The report, with a check whether one unit carries a large part of the variance.

    extreme : the unit with the reward furthest from 0, and this reward
    """
    report, units, total, squares = results.health, 0, 0.0, 0.0
    for piece in results.pieces:
        units += int(piece.stats.counts.sum())
        total += float(piece.stats.sums.sum())
        squares += 0.0 if piece.stats.squares is None else float(piece.stats.squares.sum())
    if extreme is None or results.clicks or squares * units <= total**2:
        return report
    unit, reward = extreme[0], results.sign * extreme[1]
    share = (reward - total / units) ** 2 / (squares - total**2 / units)
    metric = results.settings.primary.name
    finding = outlier_finding(unit, min(share, 1.0), units, total, squares, reward, metric)
    return replace(report, findings=(*report.findings, finding))


def level_on_the_way(level: float) -> float:
    """The level of intervals before the end, so that these and the last hold together."""
    return 1 - ON_THE_WAY * (1 - level)


def _log_segment(piece: SegmentLedger) -> LoggedSegment:
    """Excluded visits are like lost rows: harmless if excluding does not depend on the arm."""
    drawn = (piece.assigned + piece.excluded)[None]
    return LoggedSegment(piece.segment, piece.assigned[None], piece.stats.counts, drawn)


def _describe_excluded(excluded: int, assigned: int) -> Finding:
    return Finding(
        "excluded visits",
        "ok",
        None,
        f"{excluded:,} of {assigned:,} visits were excluded by hand and count nowhere.",
        "The corrections say why; excluding is fair only if it does not depend on the variant.",
    )


# Results of an experiment, from what is stored of it


def compute_results(
    settings: Settings,
    snapshot: Snapshot,
    days: Iterable[DaySums],
    now: int,
    state: State | None = None,
    stopped: EarlyStop | None = None,
) -> LiveResults:
    """The test as it stands; storages know of rewards that came too late by day.

    state : the policy's, if the sums are of a metric that it does not observe
    stopped : that the test stopped itself
    """
    ended, given_up = _standing(settings, snapshot, now)
    series = snapshot.series_by_segment()
    pieces = [
        _judged_ledger(
            settings, record, tally, given_up[record.index], series.get(record.index, ())
        )
        for record, tally in snapshot.segments
        if tally.total_assigned > tally.total_excluded
    ]
    caution = ""
    if state is None:
        state, caution = _corrected_state(settings, snapshot)
    return LiveResults(
        settings,
        state,
        tuple(pieces),
        ended,
        _is_spent(settings, snapshot),
        caution=caution,
        excluded=sum(tally.total_excluded for _, tally in snapshot.segments),
        in_time=tuple(_in_time(snapshot, days)),
        stopped=stopped,
        unmatched=snapshot.unmatched,
        reopened=snapshot.experiment.reopened is not None,
    )


def _in_time(snapshot: Snapshot, days: Iterable[DaySums]) -> Iterator[LoggedSegment]:
    records = {record.index: record for record, _ in snapshot.segments}
    for part in days:
        tally = part.tally.without_excluded()
        if part.segment in records and (visits := tally.total_assigned):
            assigned = np.array([tally.assigned])
            segment = records[part.segment].segment.lasting(visits)
            kept = assigned - np.minimum(part.late, assigned)
            yield LoggedSegment(segment, assigned, kept)


def _judged_ledger(
    settings: Settings,
    record: SegmentRecord,
    tally: Tally,
    given_up: bool,
    series: Iterable[SeriesSums],
) -> SegmentLedger:
    """A segment as it is judged: as if excluded visits had never been assigned."""
    if not tally.total_excluded:
        return build_ledger(settings, record, tally, given_up, series)
    kept = record.segment.lasting(record.rounds - tally.total_excluded)
    piece = build_ledger(
        settings, replace(record, segment=kept), tally.without_excluded(), given_up, series
    )
    return replace(piece, excluded=np.array(tally.excluded, dtype=np.int64))


def results_by_day(
    whole: LiveResults, snapshot: Snapshot, days: Iterable[DaySums]
) -> tuple[LiveResults, list[int]]:
    """Results of the mature segments, with a piece for each segment and day.

    Also gives the day of each piece, by the piece's index.
    """
    mature = {piece.index for piece in whole.mature}
    records = {record.index: record for record, _ in snapshot.segments if record.index in mature}
    parts = sorted(
        (
            part
            for part in days
            if part.segment in records and part.tally.without_excluded().total_assigned
        ),
        key=lambda part: (part.day, part.segment),
    )
    pieces, series = [], snapshot.series_by_segment()
    for index, part in enumerate(parts):
        record, assigned = records[part.segment], part.tally.total_assigned
        cut = replace(record, index=index, segment=record.segment.lasting(assigned))
        mine = [sums for sums in series.get(part.segment, ()) if sums.day == part.day]
        pieces.append(_judged_ledger(whole.settings, cut, part.tally, given_up=True, series=mine))
    daily = replace(whole, pieces=tuple(pieces), ended=True, stopped=None)
    return daily, [part.day for part in parts]


def rewards_until(settings: Settings, snapshot: Snapshot, now: int) -> int | None:
    """Until when a missing reward may still arrive: window and grace; None if there is no limit.

    There is no limit without a reward window, or if missing rewards are an error.
    """
    patience = settings.patience
    if patience is None or settings.missing == "fail":
        return None
    ends = (
        tally.last + patience
        for record, tally in snapshot.segments
        if record.closed is None and tally.last is not None and (tally.waiting or settings.keyed)
    )
    return max((end for end in ends if end >= now), default=None)


@dataclass(frozen=True)
class Status:
    """The status of an experiment in numbers.

    Attributes
    ----------
    name, state, created, budget : of the experiment
    assigned, rewarded : by variant
    segments, observed : opened, and of these observed by the policy
    arms : of which variants `assigned` and `rewarded` are, by index; None for all of them. Of very
        many variants (`ArmSet.large`) only those that were assigned are counted
    excluded : assignments that were excluded; they are among the assigned and count nowhere else
    outside : what is shown outside the test; None until it is first needed

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 1000, "memory", seed=1, missing="drop"
    ... )
    >>> test.tell(test.ask("visitor 1"), 1.0)
    >>> status = test.status()
    >>> status.state, status.budget, sum(status.assigned), sum(status.rewarded)
    ('running', 1000, 1, 1)
    """

    name: str
    state: ExperimentState
    created: datetime
    budget: int
    assigned: tuple[int, ...]
    rewarded: tuple[int, ...]
    segments: int
    observed: int
    arms: tuple[int, ...] | None = None
    excluded: int = 0
    outside: AfterTest | None = None

    @property
    def roll_out(self) -> RollOut | None:
        """The last roll-out; None if there was none."""
        return None if self.outside is None else self.outside.roll_out

    @property
    def total_assigned(self) -> int:
        """Assignments of all variants."""
        return sum(self.assigned)

    @property
    def total_rewarded(self) -> int:
        """Rewards of all variants."""
        return sum(self.rewarded)


def compute_status(settings: Settings, snapshot: Snapshot) -> Status:
    """The status of the test in numbers; of a large set for the variants that were assigned."""
    assigned, rewarded = Counter[int](), Counter[int]()
    for record, tally in snapshot.segments:
        for column, count in enumerate(tally.assigned):
            if count:
                arm = record.segment.arm_at(column)
                assigned[arm] += count
                rewarded[arm] += tally.rewarded[column]
    large = settings.arms.large
    arms = tuple(sorted(assigned)) if large else tuple(range(settings.arms.size))
    return Status(
        name=snapshot.experiment.name,
        state=snapshot.experiment.state,
        created=to_datetime(snapshot.experiment.created),
        budget=settings.budget,
        assigned=tuple(assigned[arm] for arm in arms),
        rewarded=tuple(rewarded[arm] for arm in arms),
        segments=len(snapshot.segments),
        observed=snapshot.experiment.observed,
        arms=arms if large else None,
        excluded=sum(tally.total_excluded for _, tally in snapshot.segments),
        outside=AfterTest.read(snapshot.experiment.outside),
    )


def _standing(settings: Settings, snapshot: Snapshot, now: int) -> tuple[bool, dict[int, bool]]:
    """Whether neither visits nor rewards are to come, and of which segments rewards are given up.

    Missing rewards of a segment count as the rule says once the segment is over, or the test has
    ended. Without a reward window, missing rewards are expected until the test is stopped.
    """
    stopped = snapshot.experiment.state in ("stopped", "archived")
    waiting = any(tally.waiting for _, tally in snapshot.segments)
    ended = stopped or _is_spent(settings, snapshot)
    if waiting and settings.window is None and settings.missing != "fail":
        ended = stopped
    ended = ended and rewards_until(settings, snapshot, now) is None
    return ended, {
        record.index: ended
        or record.closed is not None
        or is_over(settings, progress_of(record, tally), now)
        for record, tally in snapshot.segments
    }


def _is_spent(settings: Settings, snapshot: Snapshot) -> bool:
    """Whether the whole budget was assigned."""
    return sum(tally.total_assigned for _, tally in snapshot.segments) >= settings.budget


def _corrected_state(settings: Settings, snapshot: Snapshot) -> tuple[State, str]:
    """The policy's state as the segments that it observed stand now; and what to mind about it.

    Decisions of the test rest on what was known then, and its own state stays. Verdicts rest on
    what is known now. A policy that leaves variants out for good is the exception where it would
    have gone another way: nothing is known of the variants that it would have kept.
    """
    policy = settings.policy
    known = load_state(settings, snapshot.experiment.policy_state)
    changed = {record.index for record, tally in snapshot.segments if tally.total_excluded}
    changed |= set(snapshot.corrected)
    closed = sorted(
        (pair for pair in snapshot.segments if pair[0].closed is not None),
        key=lambda pair: pair[0].closed or 0,
    )
    if not any(record.index in changed for record, _ in closed):
        return known, ""
    states = [load_state(settings, first_state(settings))]
    slopes, series = first_slopes(settings), snapshot.series_by_segment()
    for record, tally in closed:
        piece = (
            [_judged_ledger(settings, record, tally, True, series.get(record.index, ()))]
            if tally.without_excluded().total_rewarded
            else []
        )
        seen, slopes = adjust_ledgers(piece, slopes)
        states.append(state_after(policy, states[-1], seen))
    if policy.waits and not all(
        _would_play(settings, states[record.policy_version], record.segment)
        for record, _ in snapshot.segments
        if record.policy_version < len(states)
    ):
        return known, OTHER_WAY.format(policy=policy.name)
    return states[-1], ""


def _would_play(settings: Settings, state: State, played: Segment) -> bool:
    """Whether the policy would play the same variants from that state."""
    planned = settings.policy.next_segment(state)
    if planned is None:
        return False
    size = settings.arms.size
    planned = settings.mix_shares(planned.check(size)).dense(size)
    return np.array_equal(planned.weights > 0, played.dense(size).weights > 0)
