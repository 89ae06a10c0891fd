"""Verdict: what a live test concludes so far, how surely, and on which assumption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference import (
    Evidence,
    Intervals,
    Lifts,
    confidence_sequence,
    fixed_budget,
    lift_sequence,
    lifts,
)
from steadyarm.inference.boundaries import Looks
from steadyarm.inference.intervals import recommended_arms
from steadyarm.inference.lift import lifts_between
from steadyarm.inference.limits import SHORT, shortlisted
from steadyarm.live.conclusion import UNDECIDED, Decision
from steadyarm.live.looks import StopReport
from steadyarm.live.metrics import MetricResult
from steadyarm.live.settings import Settings
from steadyarm.live.tables import columns_of, html_of, lift_text
from steadyarm.policies import Policy, State
from steadyarm.policies.base import Recommendations
from steadyarm.policies.ips import IPSPolicy
from steadyarm.policies.thompson import ThompsonPolicy
from steadyarm.segments import Segment, SegmentStats
from steadyarm.wording import counted, frame_of, listed, strung

Floats = NDArray[np.float64]

NAMED = 5  # variants not ruled out that are named
MANY = 100  # variants not ruled out from which on they are counted, not named
STILL = "Nothing drifts; normal in large samples."
EPOCHS = f"{STILL} Variants that were dropped are not measured."
NO_ERRORS = "none, since the policy gives no standard errors"
FOLLOWING = f"{STILL} Shares that follow rewards bias estimates, which is ignored."


@dataclass(frozen=True)
class OfVariant:
    """What a verdict says of one variant.

    Attributes
    ----------
    arm, name : the variant
    estimate, standard_error : of its time-averaged reward
    interval : (low, high); those of all variants hold at once
    gap : by how much the recommended variant is better
    gap_interval : (low, high); those of all gaps hold at once
    plausible : whether it cannot be ruled out as the best
    lift : value of the variant minus that of the control, in units of the reward; None without a
        control
    lift_interval : (low, high); those of all lifts hold at once
    relative : the lift as a share of the control's value; None where that is not defined
    relative_interval : (low, high); those of all relative lifts hold at once
    """

    arm: int
    name: str
    estimate: float
    standard_error: float
    interval: tuple[float, float]
    gap: float
    gap_interval: tuple[float, float]
    plausible: bool
    lift: float | None = None
    lift_interval: tuple[float, float] | None = None
    relative: float | None = None
    relative_interval: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a test concludes so far.

    Of a large set the numbers of a short list are there: the best, and who led on the way. They
    hold over the whole set all the same.

    Attributes
    ----------
    arm, name : the recommended variant
    estimates : (K,) estimated time-averaged reward of every variant; nan for those that a policy
        of epochs (Peace, OD-LinBAI, Sequential-Halving) dropped and did not measure again
    standard_errors : (K,) of the estimates; infinite or nan where too little is known
    intervals : (K, 2) that hold for all variants at once with probability `level`
    gaps : (K,) by how much the recommended variant is better than each
    gap_intervals : (K, 2) that hold for all gaps at once with probability `level`
    plausible : names of the variants that cannot be ruled out as the best at that level
    level : that probability
    anytime : whether intervals hold at all times at once, or for a single analysis at the end
    method, assumption : how intervals were found, and what must be true for them, in one line
    rewards : number of rewards that the verdict rests on. Policies of epochs use an epoch's rewards
        when all of them are in, and estimate from the last epoch alone.
    missing : judged visits whose reward never came; they count as declared
    judged : visits that the verdict rests on: the first ones, up to the first whose rewards may
        still come
    waiting : newer visits that are not included yet
    pending : of these, how many rewards may still come
    until : when the last judged visit was assigned; None for a test that has no clock
    unhealthy : why nothing must be decided from this test yet, in one or two sentences; empty if
        no health check fails
    caution : what to keep in mind about the intervals; empty if there is nothing
    shown : (K,) the variants on the short list, in rising order; None if arrays are of all
    others : variants that are not on it and cannot be ruled out either
    size : number of variants of the whole set; 0 if arrays are of all
    metrics : what is known of further metrics, secondary ones and guardrails
    names : (K,) of the variants that arrays are of
    control : the variant that others are compared with; without one there are no lifts
    lifts : (K,) value of each variant minus that of the control, in units of the reward, whether
        large or small rewards are good
    lift_intervals : (K, 2) that hold for all lifts at once with probability `level`
    relative : (K,) lifts as shares of the control's value; nan, not defined, where that cannot be
        told from 0
    relative_intervals : (K, 2) that hold for all relative lifts at once with probability `level`
    decision : what to do, in a word and in a sentence
    raw : (K,) estimates from rewards that are not adjusted for covariates; None without covariates
    variance_kept : share of the variance of comparisons that is left after adjusting for
        covariates, such as 0.51; the median over variants. None without covariates
    stopping : the looks at a test that may stop early; None for others. The verdict is then that
        of the last look, and its intervals hold at all looks at once

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
    estimates: Floats
    standard_errors: Floats
    intervals: Floats
    gaps: Floats
    gap_intervals: Floats
    plausible: tuple[str, ...]
    level: float
    anytime: bool
    method: str
    assumption: str
    rewards: int
    missing: int = 0
    judged: int = 0
    waiting: int = 0
    pending: int = 0
    until: datetime | None = None
    unhealthy: str = ""
    caution: str = ""
    shown: NDArray[np.int64] | None = None
    others: int = 0
    size: int = 0
    control: str | None = None
    lifts: Floats | None = None
    lift_intervals: Floats | None = None
    relative: Floats | None = None
    relative_intervals: Floats | None = None
    decision: Decision = UNDECIDED
    raw: Floats | None = None
    variance_kept: float | None = None
    stopping: StopReport | None = field(default=None, repr=False)
    metrics: tuple[MetricResult, ...] = field(default=(), repr=False)
    names: Sequence[str] = field(repr=False, kw_only=True)

    @classmethod
    def from_intervals(
        cls,
        found: Intervals,
        names: Sequence[str],
        anytime: bool,
        compared: Lifts | None = None,
        **given: Any,
    ) -> Verdict:
        """The verdict on one test whose intervals are known.

        Parameters
        ----------
        found : intervals of the variants
        names : of all variants, of which intervals may have a short list
        anytime : whether they hold at any time, or at one planned in advance
        compared : differences from the control, of the same variants
        given : further attributes
        """
        chosen = int(found.recommended[0])
        if compared is not None:
            given |= _of_lifts(compared, found.arms.names)
        return cls(
            arm=chosen if found.shown is None else int(found.shown[chosen]),
            name=found.arms.names[chosen],
            estimates=found.estimates[0],
            standard_errors=found.standard_errors[0],
            intervals=np.column_stack([found.low[0], found.high[0]]),
            gaps=found.gaps[0],
            gap_intervals=np.column_stack([found.gap_low[0], found.gap_high[0]]),
            plausible=found.plausible_names(),
            level=found.level,
            anytime=anytime,
            method=found.method,
            assumption=found.assumption,
            shown=found.shown,
            others=found.others,
            size=0 if found.shown is None else len(names),
            names=found.arms.names,
            **{"rewards": int(found.rounds[0])} | given,
        )

    @property
    def sure(self) -> bool:
        """Whether the recommended variant is the declared winner: healthy, and no caution.

        In at most one minus `level` of all tests a variant is declared the winner that is not
        the best of all, equal ones included: docs/inference.md proves it.
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
        if self.stopping is not None and np.isinf(self.stopping.looks[-1].boundary):
            return "too early at the last interim analysis"
        if np.isfinite(self.intervals).any():  # others are known
            return "too few rewards; declare a range or a cap to get one"
        return "too few rewards"

    @property
    def row(self) -> int:
        """Where the recommended variant is in the arrays."""
        return self.arm if self.shown is None else int(np.searchsorted(self.shown, self.arm))

    @property
    def variants(self) -> int:
        """How many variants there are."""
        return self.size or len(self.estimates)

    @property
    def possible(self) -> int:
        """How many variants cannot be ruled out as the best, the recommended one among them."""
        return len(self.plausible) + self.others

    def of(self, variant: str | int | np.integer[Any]) -> OfVariant:
        """What is said of one variant, by its name or by its index among all variants.

        Of a large set those on the short list can be asked for.

        Returns
        -------
        `arm` and `name`; `estimate` with its `standard_error` and `interval`; by which `gap` the
        recommended variant is better, with its `gap_interval`; whether it is `plausible` as best
        """
        row = self._row_of(variant)
        (low, high), (gap_low, gap_high) = self.intervals[row], self.gap_intervals[row]
        name = self.names[row]
        return OfVariant(
            arm=row if self.shown is None else int(self.shown[row]),
            name=name,
            estimate=float(self.estimates[row]),
            standard_error=float(self.standard_errors[row]),
            interval=(float(low), float(high)),
            gap=float(self.gaps[row]),
            gap_interval=(float(gap_low), float(gap_high)),
            plausible=name in self.plausible,
            **self._lift_of(row),
        )

    def _lift_of(self, row: int) -> dict[str, Any]:
        """What `of` says of the lift; nothing without a control."""
        if self.lifts is None or self.lift_intervals is None:
            return {}
        low, high = self.lift_intervals[row].tolist()
        found = {"lift": float(self.lifts[row]), "lift_interval": (low, high)}
        if self.relative is None or self.relative_intervals is None:
            return found
        if np.isnan(share := float(self.relative[row])):
            return found
        low, high = self.relative_intervals[row].tolist()
        return found | {"relative": share, "relative_interval": (low, high)}

    def _row_of(self, variant: str | int | np.integer[Any]) -> int:
        """Where a variant is in the arrays."""
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
            else f"the {len(self.estimates)} on the short list of {self.variants:,} variants, such "
            f"as {self.name!r}; `shown` has their indices"
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
            else f"Not ruled out at {self.level:.0%}: {strung(others, NAMED)}."
        )
        if self.others or len(others) > MANY:
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

        Columns are name, arm, recommended, plausible, estimate, standard_error, low, high, gap,
        gap_low, gap_high and, with a control, lift, lift_low, lift_high, relative, relative_low,
        relative_high.
        """
        return frame_of(columns_of(self), "pandas")

    def to_polars(self) -> Any:
        """The same as a Polars data frame."""
        return frame_of(columns_of(self), "polars")

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def reach(self) -> str:
        """Up to which visit the verdict reaches, if newer ones still wait for rewards."""
        if not self.waiting:
            return ""
        upto = "" if self.until is None else f", up to {self.until:%A %d %b, %H:%M} UTC"
        if self.stopping is not None and self.stopping.stopped:
            later = counted(self.waiting, "visit")
            return f"Based on the first {self.judged:,} visits{upto}; {later} came after that look."
        newer = counted(self.waiting, "newer one is", "newer ones are")
        wait = f", and {self.pending:,} of them still wait for rewards" if self.pending else ""
        return f"Based on the first {self.judged:,} visits{upto}; {newer} not included yet{wait}."


def evidence_of(
    settings: Settings,
    segments: Iterable[tuple[Segment, SegmentStats]],
    binary: bool | None = None,
    levels: Iterable[Floats] | None = None,
) -> Evidence:
    """The evidence of segments as the policy saw them, in units of the rewards.

    binary : whether all rewards are 0 or 1; by default the sums decide
    levels : of rewards that are adjusted for covariates, see `Evidence.from_segments`
    """
    if settings.direction == "minimize":
        segments = [
            (s if s.reference is None else replace(s, reference=-s.reference), stats.negated())
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


def verdict_of(
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
    """What the policy recommends, with the intervals that the evidence allows.

    Without evidence (policies whose allocations leave arms out) intervals are the policy's own,
    and assume that nothing drifts; they are infinite if the policy gives no standard errors.

    as_policy : whether evidence and state rest on the same rewards, so that the policy chooses
        among equal estimates; else the evidence's best estimate is recommended
    looks : at which intervals hold, in place of all times
    """
    found = settings.policy.recommend(state)
    if evidence is None:
        return _by_policy(settings, state, found, level)
    best = recommended_arms(evidence, found.arm[:1] if as_policy else None)
    control = None if settings.control is None else settings.arms.index(settings.control)
    if evidence.arms.large:
        evidence, best = shortlisted(evidence, best, also=[] if control is None else [control])
        if control is not None:
            control = int(np.searchsorted(_shown(evidence), control))
    if anytime:
        budget, compared = settings.budget, None
        intervals = confidence_sequence(evidence, budget, level, reward_range, best, looks)
        if control is not None:
            compared = lift_sequence(
                evidence, budget, control, level, reward_range, looks, intervals
            )
    else:
        intervals = fixed_budget(evidence, level, best)
        compared = None
        if control is not None:
            compared = lifts(evidence, control, level, intervals=intervals)
    return Verdict.from_intervals(intervals, settings.arms.names, anytime, compared)


def _shown(evidence: Evidence) -> NDArray[np.int64]:
    """The arms of a large set that a short list has."""
    assert evidence.shown is not None
    return evidence.shown


def _of_lifts(found: Lifts, names: Sequence[str]) -> dict[str, Any]:
    """The attributes of a verdict on one test that say how variants differ from the control."""
    return {
        "control": names[found.control],
        "lifts": found.differences[0],
        "lift_intervals": np.column_stack([found.low[0], found.high[0]]),
        "relative": found.relative[0],
        "relative_intervals": np.column_stack([found.relative_low[0], found.relative_high[0]]),
    }


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


def _by_policy(settings: Settings, state: State, found: Recommendations, level: float) -> Verdict:
    """The policy's own estimates and standard errors, with Bonferroni over the arms."""
    arms, policy = settings.arms, settings.policy
    sign = 1.0 if settings.direction == "maximize" else -1.0
    arm, estimates = int(found.arm[0]), sign * found.estimates[0]
    if found.standard_errors is None:
        errors = np.full_like(estimates, np.nan)
        method, assumption = NO_ERRORS, f"{policy.name} gives no standard errors, so no variant "
        assumption += "can be ruled out."
    else:
        errors = found.standard_errors[0]
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
    compared: dict[str, Any] = {}
    if settings.control is not None:
        control = names.index(settings.control)
        compared = _of_lifts(_own_lifts(estimates[rows], known[rows], control, z), names)
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
        size=arms.size if arms.large else 0,
        names=names,
        **compared,
    )
