"""Breakdown: results of a live test in each level of an attribute of units, such as a device.

The units of a level are part of the test, with the same known probabilities, so that estimates
and intervals come from `Evidence` like all others. Breakdowns are exploratory: among many parts
some differ by chance. Intervals therefore hold for all levels and variants simultaneously, and
one test says whether the differences between levels are more than chance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.inference import Evidence, confidence_sequence, fixed_budget
from steadyarm.inference.evidence import score_scatter
from steadyarm.inference.intervals import SingleAnalysis
from steadyarm.inference.lift import lift_sequence, lifts
from steadyarm.live.decisions import build_ledger
from steadyarm.live.estimates import FEW, Estimates, differences, lift_text
from steadyarm.live.measured import Sums, by_series, with_references
from steadyarm.live.metrics import REWARD
from steadyarm.live.results import LiveResults
from steadyarm.live.units import OTHER, check_attribute, levels_of, series_of
from steadyarm.storages.records import SegmentRecord, SeriesSums, Snapshot, Tally
from steadyarm.validation import check_fraction
from steadyarm.wording import listed, number, p_value, percent

Floats = NDArray[np.float64]

LEAST = 30  # visits of every variant within a level, for the test of interaction
LEAST_REWARDS = 10  # rewards, likewise; of clicks as many visits with and without one
BASE = "baseline"  # in the place of a difference of the variant that others are compared with
UNLIKELY = 0.05  # p-values below which a sentence says that levels differ


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelResult(Estimates):
    """Results for the units of one level.

    Attributes
    ----------
    name : the name of the level
    visits : judged visits of the level
    obstacle : why there is no result, in one sentence; empty if there is one
    """

    name: str
    visits: int
    obstacle: str = ""


@dataclass(frozen=True, eq=False)
class Breakdown:
    """Results for each level of an attribute; exploratory, never a reason by itself.

    With probability `level` the intervals of the values hold for all levels and variants at once;
    so do those of the differences, and those of the relative ones. Each attribute has that level
    by itself.

    Attributes
    ----------
    attribute : its name
    against : the variant that differences are from: the control, or the recommended one if there
        is no control
    variants : names of all variants
    levels : a result for each level, in the order of the declaration, then "other"
    unknown : judged visits of which the level is not known
    interaction : p-value of the hypothesis that all differences are the same in all levels, for a
        single analysis; None if fewer than two levels have enough visits
    left_out : levels with too few visits for that test, if they have any
    level, anytime : as in `Verdict`

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 200, "memory", seed=1, missing="drop",
    ...     attributes={"device": ["mobile", "desktop"]},
    ... )
    >>> for visitor in range(200):
    ...     device = "mobile" if visitor % 2 else "desktop"
    ...     shown = test.ask(f"visitor {visitor}", attributes={"device": device})
    ...     test.tell(shown, 1.0 if shown.name == "B" else 0.0)
    >>> breakdown = test.recommend(by="device")
    >>> [level.name for level in breakdown.levels], breakdown.of("mobile").visits
    (['mobile', 'desktop', 'other'], 100)
    """

    attribute: str
    against: str
    variants: tuple[str, ...]
    levels: tuple[LevelResult, ...]
    unknown: int
    interaction: float | None
    left_out: tuple[str, ...]
    level: float
    anytime: bool

    @property
    def differs(self) -> bool:
        """Whether the differences between variants depend on the level by more than chance."""
        return self.interaction is not None and self.interaction < UNLIKELY

    def of(self, name: str) -> LevelResult:
        """Results for one level.

        Parameters
        ----------
        name : the name of the level, such as "mobile"

        Returns
        -------
        LevelResult : estimates, intervals and differences in this level
        """
        for result in self.levels:
            if result.name == name:
                return result
        known = ", ".join(result.name for result in self.levels)
        raise InvalidInputError(
            f"{name!r} is not a level of {self.attribute!r}; expected one of: {known}."
        )

    def rows(
        self, shown: Callable[[float], str] = number, unit: str = ""
    ) -> list[tuple[str, str, str, str, str]]:
        """Level, visits, variant, value and difference in words, for tables.

        Of many variants those are there that clearly differ in some level, as far as there is room.

        shown : a mean reward as people read it, such as `Settings.format_value`
        unit : the unit of differences that are not relative
        """
        rows: list[tuple[str, str, str, str, str]] = []
        for result in self.levels:
            level = result.name, f"{result.visits:,}"
            if result.name == OTHER and not result.visits:
                continue
            if result.obstacle:
                rows.append((*level, "", "", result.obstacle))
                continue
            for k in self._shown_rows():
                name, value, difference = result.names[k], "too few visits", ""
                if np.isfinite(result.intervals[k]).any():
                    value = shown(float(result.estimates[k]))
                    difference = lift_text(result, k, unit)
                if name == self.against:
                    difference = BASE
                rows.append((*level, name, value, difference))
                level = "", ""
        return rows

    def _shown_rows(self) -> list[int]:
        """Rows of the variants that tables show, the one that others are compared with first."""
        base, clear = self.variants.index(self.against), set[int]()
        for result in self.levels:
            low, high = result.lift_intervals.T
            clear |= set(np.flatnonzero((low > 0) | (high < 0)).tolist())
        others = [k for k in range(len(self.variants)) if k != base]
        others.sort(key=lambda k: k not in clear)
        return [base, *sorted(others[:FEW])]

    @property
    def summary(self) -> str:
        """Whether levels differ, and what to make of that, in two or three sentences."""
        if self.interaction is None:
            text = f"There are too few visits to compare the levels of {self.attribute}."
        else:
            p = p_value(self.interaction)
            text = (
                "How much variants differ depends on"
                if self.differs
                else "Nothing shows that how much variants differ depends on"
            )
            text += f" {self.attribute} (p {p if p.startswith('<') else f'= {p}'})."
            if self.left_out:
                text += f" The test leaves out {listed(self.left_out)}, with too few visits."
        return (
            f"{text} Intervals hold for all levels and variants at once with probability "
            f"{percent(self.level)}. This is exploratory: let another test confirm it."
        )

    def __str__(self) -> str:
        lines = []
        for level, visits, variant, value, difference in self.rows():
            if level:
                lines.append(f"{level} ({visits} visits): {'' if variant else difference}".rstrip())
            if variant:
                lines.append(f"  {variant}: {value}, {difference}")
        return "\n".join([self.summary, *lines])


def compute_breakdown(
    results: LiveResults,
    snapshot: Snapshot,
    series: Iterable[SeriesSums],
    attribute: str,
    against: str,
    level: float = 0.95,
    anytime: bool | None = None,
    reward_range: tuple[float, float] | None = None,
) -> Breakdown:
    """Compute results for each level of an attribute, from mature visits.

    Errors are shared out evenly over the levels (Bonferroni). Without a control differences are
    from a variant that the same rewards made the recommended one; so they are shared out over all
    variants that it might have been, too.

    results : the results of the whole test; snapshot, series : from which they were made
    against : the variant that differences are from, the control if there is one
    level, anytime, reward_range : as in `LiveResults.recommend`
    """
    check_fraction(level, "level")
    settings = results.settings
    names = levels_of(settings.attributes, check_attribute(settings.attributes, attribute))
    if settings.arms.large:
        raise InvalidInputError(
            f"results by attribute are computed for sets of variants that fit into a table, not "
            f"for {settings.arms.size:,}."
        )
    used, anytime = results.spending(level, anytime)
    share, row, sums = (1 - used) / len(names), settings.arms.index(against), by_series(series)
    levels, tested = [], {}
    for name in names:
        parts = _visits_of(series_of(attribute, name), results, snapshot, sums)
        visits = sum(tally.total_assigned for _, tally in parts)
        result = LevelResult(name=name, names=settings.arms.names, visits=visits)
        try:
            evidence = _alone(results, parts).evidence
        except RewardsPendingError:
            obstacle = "no reward of a judged visit" if visits else "no judged visit"
            levels.append(replace(result, obstacle=obstacle))
            continue
        tallies = [(tally.assigned, tally.rewarded, tally.sums) for _, tally in parts]
        assigned, rewards, totals = np.sum(tallies, axis=0)
        counted = assigned if settings.missing == "zero" else rewards
        if is_enough(assigned, counted, totals, evidence, rewards):
            tested[name] = evidence
        budget = max(settings.budget // len(names), 1) if anytime else None
        chosen = settings.control is None
        levels.append(estimate_level(result, evidence, row, share, chosen, budget, reward_range))
    visits = sum(piece.used for piece in results.mature)
    return Breakdown(
        attribute,
        against,
        tuple(settings.arms.names),
        tuple(levels),
        unknown=visits - sum(result.visits for result in levels),
        interaction=interaction(tested.values(), row),
        left_out=tuple(r.name for r in levels if r.visits and r.name not in tested),
        level=level,
        anytime=anytime,
    )


Part = tuple[SegmentRecord, Tally]  # the sums of some of a segment's visits


def _visits_of(series: str, results: LiveResults, snapshot: Snapshot, sums: Sums) -> list[Part]:
    """The judged visits of one level, by segment.

    Some visits of a balanced block are not balanced: they count as drawn independently.
    """
    mature, parts = {piece.index for piece in results.mature}, []
    for record, whole in snapshot.segments:
        none = np.zeros((3, len(whole.assigned)))
        visits, *_ = sums.get((series, record.index), none).tolist()
        counts, totals, squares = sums.get((f"{series}*{REWARD}", record.index), none).tolist()
        if record.index in mature and any(visits):
            own = Tally(
                assigned=tuple(map(int, visits)),
                rewarded=tuple(map(int, counts)),
                sums=tuple(totals),
                squares=tuple(squares),
                last=whole.last,
            )
            drawn = replace(record.segment.lasting(own.total_assigned), order="iid", block=1)
            parts.append((replace(record, segment=drawn), own))
    return parts


def _alone(results: LiveResults, parts: Iterable[Part]) -> LiveResults:
    """The results of a test that consisted of these visits."""
    settings = replace(results.settings, covariates=())  # their sums are not kept by level
    pieces = [build_ledger(settings, record, tally, given_up=True) for record, tally in parts]
    return replace(results, settings=settings, pieces=with_references(settings, pieces), ended=True)


def is_enough(
    visits: Any, counted: Any, totals: Any, evidence: Evidence, rewards: Any = None
) -> bool:
    """Whether every variant has enough rewards for normal approximations.

    A variant whose few non-zero rewards give its value no limit has too few.

    Parameters
    ----------
    visits : (K,) of each variant
    counted : (K,) rewards that count, those that are filled in for missing ones among them
    totals : (K,) sums of the rewards
    rewards : (K,) rewards that were recorded, if not all that count were
    """
    fewest = min(counted if rewards is None else rewards)
    if evidence.binary is not None and evidence.binary[0]:
        fewest = min(*totals, *(counted - totals))
    events = SingleAnalysis(evidence).events
    rare = events is not None and bool((events.too_few | events.silent).any())
    return bool(min(visits) >= LEAST and fewest >= LEAST_REWARDS) and not rare


def estimate_level(
    result: LevelResult,
    evidence: Evidence,
    row: int,
    share: float,
    chosen: bool,
    budget: int | None,
    reward_range: tuple[float, float] | None,
) -> LevelResult:
    """A result with its numbers.

    row : the row of the variant that differences are from; chosen : by what was seen
    share : probability of an error that the level may have
    budget : visits that are expected of the level, if intervals hold at all times; else None
    """
    among = evidence.arms.size if chosen else 1
    of_values, of_lifts = 1 - share, 1 - share / among
    if budget is None:
        values, against = fixed_budget(evidence, of_values), lifts(evidence, row, of_lifts)
    else:
        values = confidence_sequence(evidence, budget, of_values, reward_range)
        against = lift_sequence(evidence, budget, row, of_lifts, reward_range)
    return replace(
        result,
        estimates=values.estimates[0],
        intervals=np.column_stack([values.low[0], values.high[0]]),
        **differences(result.names, against),
    )


def interaction(evidences: Collection[Evidence], row: int) -> float | None:
    """The p-value of Wald's test that differences from one variant are the same in all levels.

    Units of different levels are different units, so that estimates of levels are independent:
    their distances from the mean with the least variance, each in units of its covariance, add up
    to a chi-square variable.
    """
    if len(evidences) < 2:
        return None
    X = next(iter(evidences)).arms.coordinates
    _, sizes, directions = np.linalg.svd(X - X[row])
    B = directions[: int((sizes > 1e-9 * sizes.max(initial=0.0)).sum())]  # an orthonormal basis
    weights, distances = [], []
    for evidence in evidences:
        rounds = float(evidence.played[0])
        covariance = B @ score_scatter(evidence).total[0] @ B.T / rounds**2
        try:
            np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:  # rewards that do not vary say nothing of their error
            return None
        weights.append(np.linalg.inv(covariance))
        distances.append(B @ evidence.theta[0])
    mean = np.linalg.solve(
        sum(weights), sum(w @ d for w, d in zip(weights, distances, strict=True))
    )
    total = sum(float((d - mean) @ w @ (d - mean)) for w, d in zip(weights, distances, strict=True))
    return float(chdtrc((len(weights) - 1) * len(B), max(total, 0.0)))
