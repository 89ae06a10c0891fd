"""Results of secondary metrics and guardrails.

A metric is one more sum over the same assignments, whose probabilities are known, so its estimates
and intervals come from the same `Evidence` as those of the reward. Metrics do not change the
allocation. A metric has its own window, and its results rest on visits whose window has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from steadyarm.errors import InvalidInputError, RewardsPendingError, SteadyArmError
from steadyarm.estimators import is_one_hot
from steadyarm.inference import Evidence, confidence_sequence, fixed_budget
from steadyarm.inference.evidence import student_factor
from steadyarm.inference.lift import lift_sequence, lifts
from steadyarm.kernels import gram, inverse_root
from steadyarm.live.decisions import SegmentLedger, load_state
from steadyarm.live.estimates import MetricResult, Safety, differences
from steadyarm.live.metrics import REWARD, Metric, Several
from steadyarm.live.results import LiveResults, compute_results
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import EarlyStop
from steadyarm.live.verdict import arms_judged
from steadyarm.policies import State
from steadyarm.storages.records import SegmentRecord, SeriesSums, Snapshot, Tally

Floats = NDArray[np.float64]

LEAST_UNITS = 10  # that bring something of what a ratio is divided by, of each variant
ONE_SIDED = 0.005  # tail at which Student's quantile widens a ratio, for all levels in use


def metric_results(
    settings: Settings,
    snapshot: Snapshot,
    series: Iterable[SeriesSums],
    now: int,
    level: float = 0.95,
    anytime: bool | None = None,
    stopped: EarlyStop | None = None,
) -> tuple[MetricResult, ...]:
    """Results of every metric but the primary one, in the order of their declaration.

    All intervals of the secondary metrics hold at once with probability `level` (Bonferroni over
    these metrics). Each guardrail has that level by itself: a variant must pass all of them, so
    one that breaks a guardrail passes only if the analysis of that very guardrail errs.

    stopped : that the test stopped itself; guardrails then rest on the visits that they were judged
        on at the stop, and other metrics on those of the verdict
    """
    secondary = sum(metric.role == "secondary" for metric in settings.further)
    sums, state = by_series(series), load_state(settings, snapshot.experiment.policy_state)
    results = []
    for metric in settings.further:
        alpha = (1 - level) / (secondary if metric.role == "secondary" else 1)
        try:
            at_stop = None if stopped is None else stopped.of_metric(metric.name)
            own = compute_results_of_metric(settings, metric, snapshot, sums, state, now, at_stop)
            result = _estimate(settings, metric, own.evidence, *own.spending(1 - alpha, anytime))
            visits, segment = sum(piece.used for piece in own.mature), own.mature[-1].index
            result = replace(result, visits=visits, segment=segment)
        except SteadyArmError as error:
            why = f"{str(error).partition('. ')[0].rstrip('.')}."  # the rest is about rewards
            result = MetricResult(metric=metric, names=settings.arms.names, obstacle=why)
        results.append(replace(result, level=level))
    return tuple(results)


Sums = Mapping[tuple[str, int], Floats]  # (3, m) counts, sums, squares by series and segment


def by_series(series: Iterable[SeriesSums]) -> Sums:
    """Numbers of values, their sums and squares: days are added up."""
    totals: dict[tuple[str, int], Floats] = {}
    for part in series:
        more = np.array([part.rewarded, part.sums, part.squares], dtype=np.float64)
        key = part.series, part.segment
        totals[key] = totals[key] + more if key in totals else more
    return totals


def _of_metric(settings: Settings, metric: Metric) -> Settings:
    """Settings of a test whose reward is that metric: its window, direction and rule."""
    alone = replace(metric, role="primary", margin=None, ratio=None)
    return replace(
        settings,
        metrics=(alone,),
        direction="maximize",
        reward_range=None,
        reward_window=None,
        reward_grace=None,
        missing=None,  # type: ignore[arg-type]  # said by the metric
        covariates=(),  # they adjust the reward alone
    )


def _tallies(
    snapshot: Snapshot, sums: Sums, name: str, primary: str
) -> list[tuple[SegmentRecord, Tally]]:
    """Segments with the tally of a metric in place of the reward's, marked as not observed.

    Segments are observed for the reward. Other metrics may have longer windows.
    """
    segments = []
    for record, tally in snapshot.segments:
        record = replace(record, closed=None, closed_at=None)
        if name not in (primary, REWARD):
            none = np.zeros((3, len(tally.assigned)))
            counts, totals, squares = sums.get((name, record.index), none).tolist()
            tally = replace(
                tally,
                rewarded=tuple(map(int, counts)),
                sums=tuple(totals),
                squares=tuple(squares),
            )
        segments.append((record, tally))
    return segments


def compute_results_of_metric(
    settings: Settings,
    metric: Metric,
    snapshot: Snapshot,
    sums: Sums,
    state: State,
    now: int,
    stopped: EarlyStop | None = None,
) -> LiveResults:
    """The results of a test whose reward is that metric."""
    if settings.arms.large:
        raise InvalidInputError(
            f"further metrics are not computed for {settings.arms.size:,} variants."
        )

    def of(own: Settings, segments: Iterable[tuple[SegmentRecord, Tally]]) -> LiveResults:
        moment = replace(snapshot, segments=tuple(segments))
        results = compute_results(own, moment, (), now, state, stopped)
        return replace(results, pieces=with_references(own, results.pieces))

    if metric.ratio is None:
        own = _of_metric(settings, metric)
        return of(own, _tallies(snapshot, sums, metric.name, settings.primary.name))
    above, below = (
        settings.primary if name == REWARD else settings.measured[name] for name in metric.ratio
    )
    _check_ratio(settings, above, below)
    own = _of_metric(settings, _ratio_of(metric, above, below))
    numerator, denominator = (
        _tallies(snapshot, sums, part.name, settings.primary.name) for part in (above, below)
    )
    under = of(own, denominator)
    values = of(own, numerator).evidence.estimates[0], under.evidence.estimates[0]
    if not (values[1] > 0).all():
        raise RewardsPendingError(
            f"{metric.name} is {above.name} per {below.name}, and some variant has no "
            f"{below.name} yet."
        )
    products = {
        index: values[1] for (name, index), values in sums.items() if name == "*".join(metric.ratio)
    }
    widening = _widening(metric, below, under)
    return of(own, _linearize(numerator, denominator, products, *values, widening))


def _widening(metric: Metric, below: Metric, results: LiveResults) -> Floats:
    """(K,) as `ratio_widening`, from the results of a test whose reward is what is below."""
    sums, squares = np.zeros((2, results.settings.arms.size))
    for piece in results.judged():
        assert piece.stats.squares is not None
        arms = [piece.segment.arm_at(column) for column in range(piece.segment.columns)]
        sums[arms] += piece.stats.sums[0]
        squares[arms] += piece.stats.squares[0]
    return ratio_widening(metric.name, below.name, sums, squares)


def ratio_widening(name: str, below: str, sums: Floats, squares: Floats) -> Floats:
    """(K,) by how much errors of a ratio are larger than its linearization shows.

    Deviations from a ratio are too small where few units have a denominator above 0, because the
    ratio is fitted to them. With the effective number m of these units (Kish) their variance is
    multiplied by m / (m - 1), and the quantile is Student's.

    Parameters
    ----------
    name, below : of the ratio, and of what it is divided by
    sums, squares : (K,) sums over units of what it is divided by, and of its squares
    """
    units = sums**2 / np.maximum(squares, np.finfo(float).tiny)
    if units.min() < LEAST_UNITS:
        raise RewardsPendingError(
            f"{name} needs {LEAST_UNITS} units with {below} in every variant; one variant has "
            f"{units.min():.1f} in effect."
        )
    z = -ndtri(ONE_SIDED)
    return np.asarray(student_factor(z, units - 1) / z * np.sqrt(units / (units - 1)))


def _check_ratio(settings: Settings, above: Metric, below: Metric) -> None:
    if not is_one_hot(arms_judged(settings.policy, settings.arms).coordinates):
        raise InvalidInputError("ratios of metrics need variants that share no features.")
    for part in (above, below):
        if part.missing != "zero":
            raise InvalidInputError(
                f"{part.name} is part of a ratio, where a missing value counts as zero; declare "
                'it with missing="zero".'
            )


def _ratio_of(metric: Metric, above: Metric, below: Metric) -> Metric:
    """The ratio as a metric of its own: it is final when both of its parts are."""
    window = grace = None
    if above.window is not None and below.window is not None:
        longest = max(above.times, below.times, key=lambda times: sum(time or 0 for time in times))
        window, grace = longest
    several: Several = "first" if window is None else "sum"
    return replace(
        metric, ratio=None, missing="zero", window=window, grace=grace, several=several, range=None
    )


def _linearize(
    above: Iterable[tuple[SegmentRecord, Tally]],
    below: Iterable[tuple[SegmentRecord, Tally]],
    products: Mapping[int, Floats],
    numerators: Floats,
    denominators: Floats,
    widening: Floats,
) -> list[tuple[SegmentRecord, Tally]]:
    """Tallies of R + (a - R b) / B: a mean of such values is the ratio R = A / B of two means.

    Its error is that of the ratio to first order, the delta method; so everything that is known
    about means holds for ratios, too.

    products : sums of ab by segment and variant
    numerators, denominators : (K,) the means A and B of every variant
    widening : (K,) factor of the deviations from R
    """
    ratios, scales = numerators / denominators, widening / denominators
    linearized = []
    for (record, a), (_, b) in zip(above, below, strict=True):
        counts, total = np.subtract(a.assigned, a.excluded), np.subtract(a.sums, ratios * b.sums)
        product = products.get(record.index, np.zeros(len(counts)))
        spread = a.squares - 2 * ratios * product + ratios**2 * b.squares
        sums = counts * ratios + total * scales
        squares = ratios * (2 * sums - counts * ratios) + spread * scales**2
        tally = replace(
            a,
            rewarded=tuple(counts.tolist()),
            sums=tuple(sums.tolist()),
            squares=tuple(squares.tolist()),
        )
        linearized.append((record, tally))
    return linearized


def with_references(
    settings: Settings, pieces: Sequence[SegmentLedger]
) -> tuple[SegmentLedger, ...]:
    """The same segments, with the mean of earlier ones as the reference of each.

    References of the policy are about the reward of all units, not about another metric or some
    of the units. The mean of earlier segments does not depend on the draws of a segment, so that
    estimates stay unbiased; it takes out what all variants share.
    """
    X = arms_judged(settings.policy, settings.arms).coordinates
    root = inverse_root(gram(X))
    unit = X.sum(axis=0) @ root @ root.T  # every arm's value is nearest to 1
    count, total, referenced = 0, 0.0, []
    for piece in pieces:
        level = total / count if count else 0.0
        reference = np.asarray(level * unit[None]) if count else None
        referenced.append(replace(piece, segment=replace(piece.segment, reference=reference)))
        count += piece.recorded
        total += float(piece.stats.sums.sum())
    return tuple(referenced)


def _apply_declaration(metric: Metric, evidence: Evidence) -> Evidence:
    """The evidence with what is declared of the metric, which sums do not show.

    A metric is yes or no even where not one has happened.
    """
    if metric.ratio is None:
        evidence = replace(evidence, bounds=metric.bounds)
    if metric.kind != "yes/no":
        return evidence
    known = False if evidence.binary is None else evidence.binary
    none = ~evidence.scores.any(axis=(1, 2))
    return replace(evidence, binary=np.asarray(known | none))


def _estimate(
    settings: Settings, metric: Metric, evidence: Evidence, level: float, watched: bool
) -> MetricResult:
    """Estimate a metric from its evidence.

    watched : intervals hold at all times, not only for a single analysis at the end
    """
    evidence = _apply_declaration(metric, evidence)
    names, budget, against = settings.arms.names, settings.budget, None
    control = None if settings.control is None else settings.arms.index(settings.control)
    if watched:
        intervals = confidence_sequence(evidence, budget, level)
        if control is not None:
            against = lift_sequence(evidence, budget, control, level)
    else:
        intervals = fixed_budget(evidence, level)
        if control is not None:
            against = lifts(evidence, control, level)
    result = MetricResult(
        metric=metric,
        names=names,
        estimates=intervals.estimates[0],
        intervals=metric.clip(np.column_stack([intervals.low[0], intervals.high[0]])),
        anytime=watched,
        **differences(names, against),
    )
    if metric.role != "guardrail":
        return result
    return replace(result, safety=tuple(_safety(result, k) for k in range(len(names))))


def _safety(result: MetricResult, k: int) -> Safety:
    """Whether a variant is worse than the control by less than the margin: non-inferiority.

    The interval of its lift must lie on the safe side of the margin.
    """
    metric, share = result.metric, result.metric.margin_share
    if result.names[k] == result.control:
        return "control"
    low, high = (result.lift_intervals if share is None else result.relative_intervals)[k]
    margin = metric.margin if share is None else share
    assert isinstance(margin, (int, float))
    worst, best = (low, high) if metric.direction == "maximize" else (-high, -low)
    if worst > -margin:
        return "safe"
    return "broken" if best < -margin else "unclear"
