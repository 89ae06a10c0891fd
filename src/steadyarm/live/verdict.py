"""Verdict: the conclusion of a live test so far, its certainty, assumption, and decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from html import escape
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference import (
    Evidence,
    Intervals,
    LackOfFit,
    Lifts,
    confidence_sequence,
    fixed_budget,
    lift_sequence,
    lifts,
)
from steadyarm.inference.boundaries import Looks
from steadyarm.inference.evidence import SHORT, shortlist
from steadyarm.inference.intervals import recommended_arms
from steadyarm.inference.lift import lifts_between
from steadyarm.inference.sequences import NO_ARM, decide_for
from steadyarm.live.estimates import Estimates, MetricResult, differences, lift_text, with_ends
from steadyarm.live.settings import Settings
from steadyarm.policies import Policy, State
from steadyarm.policies.base import Recommendations
from steadyarm.policies.ips import IPSPolicy
from steadyarm.policies.thompson import ThompsonPolicy
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.wording import (
    by_how_much,
    counted,
    frame_of,
    listed,
    number,
    percent,
    reach,
    strung,
)

if TYPE_CHECKING:
    from steadyarm.live.stopping import StopReport

Floats = NDArray[np.float64]
Word = Literal["ship", "keep", "unclear", "unhealthy", "running"]

MOST_NAMED = 5  # variants not ruled out that are named
COUNTED_FROM = 100  # variants not ruled out from which on they are counted, not named
MOST_ROWS = 30  # variants that a notebook shows
MOST_BUDGETS = 100  # budgets; a decision that needs more visits than that gives no number
STILL = "No drift; normal in large samples."
EPOCHS = f"{STILL} Variants that were dropped are not measured."
NO_ERRORS = "none, since the policy gives no standard errors"
FOLLOWING = f"{STILL} The bias of adaptive shares is ignored."


@dataclass(frozen=True)
class Decision:
    """A decision, in a word and in a sentence.

    Attributes
    ----------
    word : "ship" a variant; "keep" the control; "unclear" if the test ended without a clear
        winner, or can find none any more; "unhealthy" if nothing must be decided; "running" if it
        is not decided yet
    text : the same as a person says it
    variant : the variant to ship or to keep; None if there is none
    more : about how many more visits are needed for a decision; None if unknown
    """

    word: Word
    text: str
    variant: str | None = None
    more: int | None = None


UNDECIDED = Decision("running", "Nothing is decided yet.")


@dataclass(frozen=True)
class VariantEstimate:
    """The estimates of one variant in a verdict; nan for unknown values.

    Attributes
    ----------
    arm, name : the variant
    estimate, standard_error : of its time-averaged reward
    low, high : ends of its interval; those of all variants hold at once
    gap, gap_low, gap_high : by how much the recommended variant is better, with its interval
    plausible : whether it cannot be ruled out as the best
    lift, lift_low, lift_high : value of the variant minus that of the control, with its interval
    relative, relative_low, relative_high : the lift as a share of the control's value
    raw : the estimate without covariates
    """

    arm: int
    name: str
    estimate: float
    standard_error: float
    low: float
    high: float
    gap: float
    gap_low: float
    gap_high: float
    plausible: bool
    lift: float
    lift_low: float
    lift_high: float
    relative: float
    relative_low: float
    relative_high: float
    raw: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdict(Estimates):
    """The conclusion of a test so far: `Estimates`, and what follows from them.

    Of a large set the numbers of a short list are there: the best, and who led on the way. They
    hold over the whole set all the same.

    Attributes
    ----------
    arm, name : the recommended variant
    estimates : (K,) estimated time-averaged reward of every variant; nan for those that a policy
        of epochs (Peace, OD-LinBAI, Sequential-Halving) dropped and did not measure again
    standard_errors : (K,) of the estimates; infinite or nan where too little is known
    gaps : (K,) by how much the recommended variant is better than each
    gap_intervals : (K, 2) that hold for all gaps at once with probability `level`
    plausible : names of the variants that cannot be ruled out as the best at that level
    level : that probability
    anytime : whether intervals hold at all times at once, or for a single analysis at the end
    method, assumption : how intervals were found, and what must be true for them, in one line
    rewards : number of rewards that the verdict rests on. Policies of epochs use an epoch's rewards
        when all of them are in, and estimate from the last epoch alone.
    variants : number of variants of the whole set
    missing : judged visits whose reward never came; they count as declared
    judged : visits that the verdict rests on: the first ones, up to the first whose rewards may
        still come
    waiting : newer visits that are not included yet
    pending : rewards of these visits that may still come
    until : when the last judged visit was assigned; None for a test that has no clock
    unhealthy : why nothing must be decided from this test yet, in one or two sentences; empty if
        no health check fails
    caution : a caution about the intervals; empty if there is nothing
    shown : (K,) the variants on the short list, in rising order; None if arrays are of all
    others : variants that are not on it and cannot be ruled out either
    metrics : results of secondary metrics and guardrails
    decision : the decision, in a word and in a sentence
    raw : (K,) estimates from rewards that are not adjusted for covariates; None without covariates
    variance_kept : share of the variance of comparisons that is left after adjusting for
        covariates, such as 0.51; the median over variants. None without covariates
    stopping : the interim analyses of a test that may stop early; None for others. The verdict is
        then that of the last one, and its intervals hold at all of them at once

    Examples
    --------
    >>> import steadyarm as sa
    >>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=200, seed=1)
    >>> for _ in range(200):
    ...     shown = session.ask()
    ...     session.tell(shown, (0.6 if shown.name == "A" else 0.2) + 0.1 * (shown.number % 7))
    >>> verdict = session.recommend()
    >>> print(verdict)
    A: 0.892 (0.8425 to 0.9441) after 200 rewards. All others are ruled out at 95%.
    >>> round(verdict.of("B").estimate, 3), round(verdict.of("B").gap, 3)
    (0.502, 0.39)
    """

    arm: int
    name: str
    standard_errors: Floats
    gaps: Floats
    gap_intervals: Floats
    plausible: tuple[str, ...]
    level: float
    anytime: bool
    method: str
    assumption: str
    rewards: int
    variants: int
    missing: int = 0
    judged: int = 0
    waiting: int = 0
    pending: int = 0
    until: datetime | None = None
    unhealthy: str = ""
    caution: str = ""
    shown: NDArray[np.int64] | None = None
    others: int = 0
    decision: Decision = UNDECIDED
    raw: Floats | None = None
    variance_kept: float | None = None
    stopping: StopReport | None = None
    metrics: tuple[MetricResult, ...] = ()

    @classmethod
    def from_intervals(
        cls,
        intervals: Intervals,
        variants: int,
        anytime: bool,
        lifts: Lifts | None = None,
        **attributes: Any,
    ) -> Verdict:
        """The verdict on one test whose intervals are known.

        Parameters
        ----------
        intervals : the intervals of the variants, or of a short list of them
        variants : how many there are
        anytime : whether intervals hold at any time, or at one planned in advance
        lifts : differences from the control, of the same variants
        attributes : further ones
        """
        names, shown = intervals.arms.names, intervals.shown
        chosen = int(intervals.recommended[0])
        return cls(
            arm=chosen if shown is None else int(shown[chosen]),
            name=names[chosen],
            names=names,
            variants=variants,
            estimates=intervals.estimates[0],
            standard_errors=intervals.standard_errors[0],
            intervals=np.column_stack([intervals.low[0], intervals.high[0]]),
            gaps=intervals.gaps[0],
            gap_intervals=np.column_stack([intervals.gap_low[0], intervals.gap_high[0]]),
            plausible=intervals.plausible_names(),
            level=intervals.level,
            anytime=anytime,
            method=intervals.method,
            assumption=intervals.assumption,
            shown=shown,
            others=intervals.others,
            **differences(names, lifts),
            **{"rewards": int(intervals.rounds[0])} | attributes,
        )

    @property
    def sure(self) -> bool:
        """Whether the recommended variant is the declared winner: healthy, and no caution.

        In at most one minus `level` of all tests a variant is declared the winner that is not
        the best of all, equal ones included: docs/research/technical_note.md proves it.
        """
        alone = self.plausible == (self.name,) and not self.others
        return alone and not self.unhealthy and not self.caution

    @property
    def no_interval(self) -> str:
        """Why the interval of a variant is not known, where it is not."""
        if self.method == NO_ERRORS:
            return "the policy gives no standard errors"
        if self.stopping is not None and not self.stopping.looks:
            return "before the first interim analysis"
        if self.stopping is not None and self.stopping.looks[-1].boundary is None:
            return "too early at the last interim analysis"
        if np.isfinite(self.intervals).any():  # others are known
            return "too few rewards; declare a range or a cap to get one"
        return "too few rewards"

    @property
    def row(self) -> int:
        """The row of the recommended variant in the arrays."""
        return self.arm if self.shown is None else int(np.searchsorted(self.shown, self.arm))

    @property
    def possible(self) -> int:
        """The number of variants that may be the best, the recommended one included."""
        return len(self.plausible) + self.others

    def columns(self) -> dict[str, list[Any]]:
        """All numbers as columns, with a row for each variant."""
        K, plausible = len(self.names), set(self.plausible)
        return super().columns() | {
            "arm": list(range(K)) if self.shown is None else self.shown.tolist(),
            "recommended": [name == self.name for name in self.names],
            "plausible": [name in plausible for name in self.names],
            "standard_error": self.standard_errors.tolist(),
            "gap": self.gaps.tolist(),
            **with_ends("gap_", self.gap_intervals),
            "raw": [np.nan] * K if self.raw is None else self.raw.tolist(),
        }

    def of(self, variant: str | int | np.integer[Any]) -> VariantEstimate:
        """The estimates of one variant, by its name or by its index among all variants.

        Of a large set those on the short list can be asked for.
        """
        return self.rows[self._row_of(variant)]

    @cached_property
    def rows(self) -> tuple[VariantEstimate, ...]:
        """The estimates of each variant, in the order of the arrays."""
        columns = self.columns()
        columns = {field.name: columns[field.name] for field in fields(VariantEstimate)}
        return tuple(map(VariantEstimate, *columns.values()))

    def _row_of(self, variant: str | int | np.integer[Any]) -> int:
        """The row of a variant in the arrays."""
        if isinstance(variant, str):
            if variant in self.names:
                return self.names.index(variant)
        elif not isinstance(variant, bool) and isinstance(variant, (int, np.integer)):
            shown = range(len(self.estimates)) if self.shown is None else self.shown.tolist()
            if int(variant) in shown:
                return shown.index(int(variant))
        among = (
            f"{len(self.estimates)} variants: {listed(self.names)}"
            if self.shown is None
            else f"the {len(self.estimates)} on the shortlist, such as {self.name!r}; `shown` has "
            "their indices"
        )
        raise InvalidInputError(
            f"the variant is {variant!r}; expected the name or the index of one of {among}."
        )

    def __str__(self) -> str:
        k, (low, high) = self.row, self.intervals[self.row]
        known = np.isfinite(high - low)
        reach = f"{low:.4g} to {high:.4g}" if known else f"no interval: {self.no_interval}"
        value = f"{self.estimates[k]:.4g} ({reach})"
        count = f"{self.rewards} reward{'s' * (self.rewards != 1)}"
        if self.missing:
            count += f", {self.missing} missing"
        others = [name for name in self.plausible if name != self.name]
        rest = (
            f"All others are ruled out at {self.level:.0%}."
            if not others
            else f"Not ruled out at {self.level:.0%}: {strung(others, MOST_NAMED)}."
        )
        if self.others or len(others) > COUNTED_FROM:
            rest = (
                f"{self.possible:,} of {self.variants:,} variants cannot be ruled out at "
                f"{self.level:.0%}."
            )
        return " ".join(
            filter(
                None,
                (
                    self.unhealthy,
                    f"{self.name}: {value} after {count}.",
                    self._against_control(),
                    rest,
                    "" if self.stopping is None else self.stopping.text,
                    self.reach,
                    self.caution,
                ),
            )
        )

    def _against_control(self) -> str:
        if self.control is None or self.name == self.control:
            return ""
        return f"Against {self.control}: {lift_text(self, self.row)}."

    def to_pandas(self) -> Any:
        """A pandas data frame with a row of raw numbers for each variant; needs the extra frames.

        Columns are those of `of`, and recommended.
        """
        return frame_of(self.columns(), "pandas")

    def to_polars(self) -> Any:
        """The same as a Polars data frame."""
        return frame_of(self.columns(), "polars")

    def _repr_html_(self) -> str:
        """The decision and a small table, for notebooks; names are escaped."""
        columns = ["variant", "estimate", f"{percent(self.level)} interval"]
        columns += [] if self.raw is None else ["unadjusted"]
        columns += [] if self.control is None else [f"against {self.control}"]
        distance = np.where(np.arange(len(self.gaps)) == self.row, -np.inf, self.gaps)
        rows = []
        for k in np.argsort(distance, kind="stable")[:MOST_ROWS].tolist():  # unknown ones last
            low, high = self.intervals[k].tolist()
            cells = [self.names[k], number(float(self.estimates[k]))]
            cells.append(reach(low, high, unknown=self.no_interval))
            cells += [] if self.raw is None else [number(float(self.raw[k]))]
            cells += [] if self.control is None else [lift_text(self, k)]
            standing = "may be the best" if self.names[k] in self.plausible else "ruled out"
            cells.append("recommended" if k == self.row else standing)
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        head = "".join(f'<th scope="col">{escape(column)}</th>' for column in (*columns, ""))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = len(self.names) - len(rows)
        cut = f"<p>{more:,} more are in to_pandas().</p>" if more > 0 else ""
        return (
            f"<div><p><strong>{escape(self.decision.text)}</strong></p>"
            f"<p>{escape(str(self))}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{cut}</div>"
        )

    @property
    def reach(self) -> str:
        """Up to which visit the verdict reaches, if newer ones still wait for rewards."""
        if not self.waiting:
            return ""
        upto = "" if self.until is None else f", up to {self.until:%A %d %b, %H:%M} UTC"
        if self.stopping is not None and self.stopping.stopped:
            later = counted(self.waiting, "visit")
            return f"Based on the first {self.judged:,} visits{upto}; {later} arrived after it."
        newer = counted(self.waiting, "newer one is", "newer ones are")
        wait = f"; {self.pending:,} of them still wait for rewards" if self.pending else ""
        return f"Based on the first {self.judged:,} visits{upto}; {newer} not included yet{wait}."


def adjusted_text(verdict: Verdict, covariates: Sequence[str]) -> str:
    """Describe how much noise covariates have removed; empty without adjustment.

    covariates : their names
    """
    if verdict.raw is None or verdict.variance_kept is None:
        return ""
    names, saved = listed(covariates), 1 - verdict.variance_kept
    if saved < 0.005:
        return f"Adjusted for {names}, which did not reduce the variance."
    return f"Adjusted for {names}; variance reduced by {percent(round(saved, 2))}."


def build_evidence(
    settings: Settings,
    segments: Iterable[tuple[Segment, SegmentStats]],
    binary: bool | None = None,
    levels: Iterable[Floats] | None = None,
) -> Evidence:
    """The evidence of segments as the policy saw them, in units of the rewards.

    binary : whether all rewards are 0 or 1; by default the sums decide
    levels : the levels of rewards that are adjusted for covariates, see `Evidence.from_segments`
    """
    if settings.direction == "minimize":
        segments = [
            (s if s.reference is None else replace(s, reference=-s.reference), stats.negate())
            for s, stats in segments
        ]
    arms, direction = arms_judged(settings.policy, settings.arms), settings.direction
    bounds = settings.primary.bounds if levels is None else None  # adjusted rewards have none
    return Evidence.from_segments(arms, segments, direction, binary, levels, bounds)


def arms_judged(policy: Policy[Any], arms: ArmSet) -> ArmSet:
    """The arms with the features that estimates use; of a policy that ignores features none."""
    among = np.arange(2) if arms.large else None
    if isinstance(policy, IPSPolicy) and not np.array_equal(
        policy.features(arms, among), arms.coordinates_of(among)
    ):
        return ArmSet.one_hot(arms.names)
    return arms


def compute_verdict(
    settings: Settings,
    state: State,
    evidence: Evidence | None,
    level: float,
    anytime: bool = False,
    reward_range: tuple[float, float] | None = None,
    *,
    as_policy: bool = True,
    looks: Looks | None = None,
) -> Verdict:
    """Compute the recommendation of the policy, with intervals from the evidence.

    Without evidence (policies whose allocations leave arms out) intervals are the policy's own,
    and assume that nothing drifts; they are infinite if the policy gives no standard errors.

    as_policy : whether evidence and state rest on the same rewards, so that the policy chooses
        among equal estimates; else the evidence's best estimate is recommended
    looks : at which intervals hold, in place of all times
    """
    recommended = settings.policy.recommend(state)
    if evidence is None:
        return _by_policy(settings, state, recommended, level)
    best = recommended_arms(evidence, recommended.arm[:1] if as_policy else None)
    control = None if settings.control is None else settings.arms.index(settings.control)
    if evidence.arms.large:
        evidence, best = shortlist(evidence, best, also=[] if control is None else [control])
        if control is not None:
            assert evidence.shown is not None
            control = int(np.searchsorted(evidence.shown, control))
    against = None
    if anytime:
        budget = settings.budget
        intervals = confidence_sequence(evidence, budget, level, reward_range, best, looks)
        if control is not None:
            against = lift_sequence(
                evidence, budget, control, level, reward_range, looks, intervals
            )
    else:
        intervals = fixed_budget(evidence, level, best)
        if control is not None:
            against = lifts(evidence, control, level, intervals=intervals)
    return Verdict.from_intervals(intervals, settings.arms.size, anytime, against)


def _own_lifts(estimates: Floats, errors: Floats, control: int, z: float) -> Lifts:
    """Differences from the control by a policy's own standard errors, which add up at worst."""

    def limits(ratio: Floats) -> tuple[Floats, Floats]:
        reach = z * (errors + np.abs(ratio) * errors[control])
        centre = np.nan_to_num(estimates - ratio * estimates[control])
        return centre - reach, centre + reach

    reach = z * errors
    centre = np.nan_to_num(estimates)
    return lifts_between(
        estimates[None],
        control,
        limits,
        ((centre - reach)[None], (centre + reach)[None]),
        standard_errors=(errors + errors[control])[None],
        level=0.0,
        method="",
        assumption="",
    )


def _by_policy(
    settings: Settings, state: State, recommended: Recommendations, level: float
) -> Verdict:
    """The policy's own estimates and standard errors, with Bonferroni over the arms."""
    arms, policy = settings.arms, settings.policy
    sign = 1.0 if settings.direction == "maximize" else -1.0
    arm, estimates = int(recommended.arm[0]), sign * recommended.estimates[0]
    if recommended.standard_errors is None:
        errors = np.full_like(estimates, np.nan)
        method, assumption = NO_ERRORS, f"{policy.name} gives no standard errors, so no variant "
        assumption += "can be ruled out."
    else:
        errors = recommended.standard_errors[0]
        following = isinstance(policy, ThompsonPolicy)
        assumption = FOLLOWING if following else EPOCHS if policy.waits else STILL
        method = policy.estimator
    known = np.nan_to_num(errors, nan=np.inf)  # an unknown error leaves the whole line
    reach = -ndtri((1 - level) / (2 * arms.size)) * known
    centre = np.nan_to_num(estimates)
    gaps = sign * (estimates[arm] - estimates)  # nan for those that were not measured
    middle = np.nan_to_num(gaps)
    # Errors of two arms of one fit may be correlated either way: they add up at worst.
    z = -ndtri((1 - level) / (2 * max(arms.size - 1, 1)))
    gap_reach = z * (known[arm] + known)
    gap_reach[arm] = 0.0
    plausible = middle - gap_reach <= 0
    rows = np.arange(arms.size)
    if arms.large:
        losses = np.nan_to_num(-sign * estimates, nan=np.inf)
        top = np.argpartition(losses, SHORT - 1)[:SHORT]
        also = [arm] if settings.control is None else [arm, arms.index(settings.control)]
        rows = np.union1d(top, also).astype(np.int64)
    names = tuple(arms.names[k] for k in rows.tolist())
    against = None
    if settings.control is not None:
        control = names.index(settings.control)
        against = _own_lifts(estimates[rows], known[rows], control, z)
    return Verdict(
        arm=arm,
        name=arms.names[arm],
        estimates=estimates[rows],
        standard_errors=errors[rows],
        intervals=np.column_stack([centre - reach, centre + reach])[rows],
        gaps=gaps[rows],
        gap_intervals=np.column_stack([middle - gap_reach, middle + gap_reach])[rows],
        plausible=tuple(arms.names[k] for k in rows[plausible[rows]].tolist()),
        level=level,
        anytime=False,
        method=method,
        assumption=assumption,
        rewards=int(state.played[0]),
        shown=rows if arms.large else None,
        others=int(plausible.sum() - plausible[rows].sum()),
        variants=arms.size,
        names=names,
        **differences(names, against),
    )


# What follows from a verdict


@dataclass(frozen=True, eq=False)
class Comparison:
    """The variants of a verdict against its control: who is shown to be better or worse.

    Attributes
    ----------
    control : row of the control
    chosen : row of the variant that is decided on, the control's to keep it; -1 for none
    better, worse : (K,) variants whose lift is shown to be good, or bad; the recommended variant
        is better than the control, too, if it is the declared winner
    lifts : (K,) by how much each is better, negative if it is worse: relative if that is defined
    intervals : (K, 2) of these
    share : whether these are shares of the control's value
    unit : the unit of lifts that are not
    """

    control: int
    chosen: int
    better: NDArray[np.bool_]
    worse: NDArray[np.bool_]
    lifts: Floats
    intervals: Floats
    share: bool
    unit: str = ""

    def amount(self, row: int) -> str:
        """By how much a variant is better, with its interval."""
        low, high = self.intervals[row].tolist()
        return by_how_much(float(self.lifts[row]), low, high, self.share, self.unit)

    @property
    def unclear(self) -> NDArray[np.bool_]:
        """(K,) variants that do not differ clearly from the control."""
        apart = self.better | self.worse
        apart[self.control] = True
        return ~apart


def compare_with_control(
    verdict: Verdict, direction: Direction, unit: str = ""
) -> Comparison | None:
    """Compare the variants with the control; None if there is no control.

    unit : the unit of differences
    """
    if verdict.control is None:
        return None
    row = verdict.names.index(verdict.control)
    sign = 1.0 if direction == "maximize" else -1.0
    ends = verdict.lift_intervals
    low, high = ends.T if sign > 0 else -ends[:, ::-1].T
    recommended, sure = np.array([verdict.row]), np.array([verdict.sure])
    chosen = int(decide_for(recommended, sure, low[None], high[None], row)[0])
    if chosen == row and verdict.others and not verdict.sure:
        chosen = NO_ARM  # variants that are not on the short list may be better
    better, worse = low > 0, high < 0
    others = np.arange(len(low)) != row
    if verdict.sure and verdict.row != row:
        better[verdict.row] = True
    if verdict.sure and verdict.row == row:
        worse[others] = True
    share = not np.isnan(verdict.relative[others & ~np.isnan(verdict.lifts)]).any()
    if share:
        turn = sign * (1.0 if verdict.estimates[row] >= 0 else -1.0)
        between = verdict.relative_intervals
        lifts, intervals = turn * verdict.relative, between if turn > 0 else -between[:, ::-1]
    else:
        lifts, intervals = sign * verdict.lifts, np.column_stack([low, high])
    return Comparison(row, chosen, better & others, worse & others, lifts, intervals, share, unit)


def make_decision(
    verdict: Verdict,
    direction: Direction,
    budget: int,
    over: bool,
    spent: bool,
    guardrails: Sequence[MetricResult] = (),
    least: int = 0,
    unit: str = "",
) -> Decision:
    """Decide as far as the verdict allows.

    A variant is shipped if it is recommended, shown to be better than the control (without a
    control: declared the winner), and breaks no guardrail. The control is kept if every other
    variant is shown not to be better. Intervals that hold at all times may decide before the end.

    Parameters
    ----------
    direction, budget : of the test
    over : whether neither visits nor rewards are to come
    spent : whether all visits were assigned
    guardrails : metrics that must not get worse, as judged for each variant
    least : visits before the next decision is possible
    unit : the unit of differences, see `by_how_much`
    """
    if verdict.unhealthy:
        return Decision("unhealthy", "Not healthy: do not decide.")
    if not np.nan_to_num(verdict.estimates).any():
        return Decision("unclear" if over else "running", "No best variant: all rewards are 0.")
    against, name = compare_with_control(verdict, direction, unit), verdict.name
    if not verdict.caution:
        if against is None and verdict.sure:
            lone = verdict.variants == 1
            why = "it is the only variant" if lone else "it is the best, all others are ruled out"
            return _apply_guardrails(
                Decision("ship", f"Ship {name}: {why}.", name), "", None, guardrails
            )
        if against is not None and against.chosen == verdict.row != against.control:
            better = f"it beats {verdict.control} by {against.amount(verdict.row)}"
            ship = Decision("ship", f"Ship {name}: {better}.", name)
            return _apply_guardrails(ship, better, verdict.control, guardrails)
        if against is not None and against.chosen == against.control:
            others = [other for other in verdict.names if other != verdict.control]
            no = f"{others[0]} is not better" if len(others) == 1 else "no other variant beats it"
            return Decision("keep", f"Keep {verdict.control}: {no}.", verdict.control)
    more = _more_visits(verdict, against, budget, least)
    tell = "" if more is None else f"; about {more:,} more visits are needed"
    if more is not None and not over and verdict.waiting >= more:
        more, tell = None, "; recent visits are not included yet"
    if over:
        return Decision("unclear", f"No clear winner{tell}.", None, more)
    if spent:
        return Decision("running", "Not decided yet: rewards of the last visits may still come.")
    return Decision("running", f"Too early to decide{tell}.", None, more)


def _apply_guardrails(
    ship: Decision, better: str, control: str | None, guardrails: Sequence[MetricResult]
) -> Decision:
    """The decision to ship a variant, unless a guardrail forbids it.

    better : what speaks for the variant
    """
    name = ship.variant
    broken = [metric.name for metric in guardrails if name in metric.broken]
    unsure = [metric.name for metric in guardrails if name in metric.unsure]
    reason = f"{better}, but " if better else ""
    if broken:
        why = f"{reason}{listed(broken)} got worse by more than the margin"
        if control is None:
            return Decision("unclear", f"Do not ship {name}: {why}.")
        return Decision("keep", f"Keep {control}, not {name}: {why}.", control)
    if unsure:
        why = f"{reason}{listed(unsure)} may have got worse by more than the margin"
        return Decision("unclear", f"Do not ship {name} yet: {why}.")
    return ship


def _more_visits(
    verdict: Verdict, against: Comparison | None, budget: int, least: int
) -> int | None:
    """About how many more visits would tell the best challenger from what it is compared with.

    If the estimates are true, an interval that is w wide on the side of 0 excludes 0 after
    (w / |lift|)² times as many visits. Rounded to two digits; None if that is far too many.
    """
    k = verdict.row
    if against is not None and k != against.control:
        lift, (low, high) = against.lifts[k], against.intervals[k]
    else:  # the recommended variant against the best of the others
        gaps = np.where(np.arange(len(verdict.gaps)) == k, np.nan, verdict.gaps)
        if np.isnan(gaps).all():
            return None
        rival = int(np.nanargmin(gaps))
        lift, (low, high) = verdict.gaps[rival], verdict.gap_intervals[rival]
    width = lift - low if lift > 0 else high - lift
    if not isfinite(high - low) or lift == 0 or width <= abs(lift):
        return None
    more = verdict.judged * ((width / abs(lift)) ** 2 - 1)
    if not 0 < more <= MOST_BUDGETS * budget:
        return None
    more = max(more, least)
    unit = 10 ** max(floor(log10(more)) - 1, 0)
    return int(max(round(more / unit), 1) * unit)


def explain_doubt(
    verdict: Verdict, direction: Direction, fit: Callable[[], LackOfFit | None]
) -> str:
    """Why a lead that would decide rests on a model that may not fit; empty if it does not.

    fit : tests the model on the rewards that the verdict rests on
    """
    against, rows = compare_with_control(verdict, direction), np.arange(len(verdict.gaps))
    decides = verdict.sure or (against is not None and against.chosen != NO_ARM)
    if not decides or verdict.shown is not None or (lack := fit()) is None:
        return ""
    rivals = rows != verdict.row
    if against is not None and not verdict.sure and verdict.row != against.control:
        rivals = rows == against.control
    sign = 1.0 if direction == "maximize" else -1.0
    return lack.doubt(verdict.names, verdict.row, rivals, verdict.gaps, verdict.level, sign)
