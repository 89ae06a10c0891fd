"""Results of further metrics: what variants brought beside the reward, and whether it is safe.

A metric is one more sum over the same assignments, whose probabilities are known, so its estimates
and intervals come from the same `Evidence` as those of the reward. No decision about assignments
rests on them. A metric has a window of its own, and its results rest on visits whose window has
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import ndtri

from steadyarm.errors import InvalidInputError, RewardsPendingError, SteadyArmError
from steadyarm.estimators import is_one_hot
from steadyarm.inference import Evidence, confidence_sequence, fixed_budget
from steadyarm.inference.lift import Lifts, lift_p_values, lift_sequence, lifts
from steadyarm.inference.variance import student_factor
from steadyarm.linalg import gram, inverse_root
from steadyarm.live.decisions import SegmentLedger, stored_state
from steadyarm.live.looks import Stopped
from steadyarm.live.metrics import REWARD, Metric, MetricResult, Safety, Several
from steadyarm.live.results import LiveResults, results_of
from steadyarm.live.settings import Settings
from steadyarm.live.verdict import arms_judged
from steadyarm.policies import State
from steadyarm.storages.records import SegmentRecord, SeriesSums, Snapshot, Tally
from steadyarm.validation import check_choice

Floats = NDArray[np.float64]
Many = Literal["bonferroni", "benjamini-hochberg"]

LEAST_UNITS = 10  # that bring something of what a ratio is divided by, of each variant
RARE = 0.005  # of Student's quantile that stands for all


def metric_results(
    settings: Settings,
    snapshot: Snapshot,
    series: Iterable[SeriesSums],
    now: int,
    level: float = 0.95,
    anytime: bool | None = None,
    many: Many = "bonferroni",
    stopped: Stopped | None = None,
) -> tuple[MetricResult, ...]:
    """What is known of every metric but the primary one, in the order of their declaration.

    All intervals of the secondary metrics hold at once with probability `level` (Bonferroni over
    these metrics). Each guardrail has that level by itself: a variant must pass all of them, so
    one that breaks a guardrail passes only if the analysis of that very guardrail errs.

    many : "benjamini-hochberg" selects differences of secondary metrics from the control, of which
        a share of 1 - level is false on average; only when the test has ended
    stopped : that the test stopped itself; guardrails then rest on the visits that they were judged
        on at the stop, and other metrics on those of the verdict
    """
    check_choice(many, "many", get_args(Many))
    secondary = sum(metric.role == "secondary" for metric in settings.further)
    found, sources = [], dict[str, LiveResults]()
    for metric, own in results_by_metric(settings, snapshot, series, now, stopped):
        if isinstance(own, SteadyArmError):
            why = f"{str(own).partition('. ')[0].rstrip('.')}."  # further sentences are of rewards
            result = MetricResult(metric, settings.arms.names, obstacle=why)
        else:
            alpha = (1 - level) / (secondary if metric.role == "secondary" else 1)
            used, watched = own.spending(1 - alpha, anytime)
            (result,) = judged(settings, metric, own.evidence, used, watched)
            visits = sum(piece.used for piece in own.mature)
            result = replace(result, visits=visits, segment=own.mature[-1].index)
            sources[metric.name] = own
        found.append(replace(result, level=level))
    if many == "bonferroni":
        return tuple(found)
    return _discoveries(settings, found, sources, level, anytime)


def results_by_metric(
    settings: Settings,
    snapshot: Snapshot,
    series: Iterable[SeriesSums],
    now: int,
    stopped: Stopped | None = None,
) -> Iterator[tuple[Metric, LiveResults | SteadyArmError]]:
    """Each metric but the primary one, with the results of a test whose reward it is.

    An error says why there are none that intervals could be computed from.
    """
    sums, state = by_series(series), stored_state(settings, snapshot.experiment.policy_state)
    for metric in settings.further:
        try:
            at_stop = None if stopped is None else stopped.of_metric(metric.name)
            own = _results(settings, metric, snapshot, sums, state, now, at_stop)
            own.evidence  # noqa: B018  # computed here, so that its errors are caught
            yield metric, own
        except SteadyArmError as error:
            yield metric, error


def _discoveries(
    settings: Settings,
    found: Sequence[MetricResult],
    sources: Mapping[str, LiveResults],
    level: float,
    anytime: bool | None,
) -> tuple[MetricResult, ...]:
    """The results, with lifts of secondary metrics selected by Benjamini and Hochberg (1995).

    Of M pairs of a metric and a variant R are selected. Intervals of all pairs have the level
    1 - R alpha / M, so that those of the selected ones miss the truth for a share of alpha on
    average (Benjamini and Yekutieli 2005), and exclude 0 exactly for these.

    sources : what results were judged from; a metric that has none counts, with nothing to select
    """
    secondary = [one for one in found if one.metric.role == "secondary"]
    _check_ended(settings, secondary, sources)
    assert settings.control is not None
    control, others = settings.arms.index(settings.control), settings.arms.size - 1
    known = {
        one.name: _declared(one.metric, sources[one.name].evidence)
        for one in secondary
        if one.name in sources
    }
    if not known or not others:
        return tuple(found)
    alpha = 1 - sources[next(iter(known))].spending(level, anytime)[0]
    p = np.ones((len(secondary), others))
    for row, evidence in enumerate(known.values()):
        p[row] = np.delete(lift_p_values(evidence, control)[0], control)
    adjusted = scipy.stats.false_discovery_control(p, axis=None, method="bh")
    chosen = adjusted.reshape(p.shape) <= alpha
    share = max(int(chosen.sum()), 1) * alpha / p.size
    which = dict(zip(known, np.insert(chosen, control, False, axis=1).tolist(), strict=False))
    return tuple(
        replace(
            _compared(one, lifts(known[one.name], control, 1 - share, simultaneous=False)),
            selected=tuple(which[one.name]),
        )
        if one.name in known
        else one
        for one in found
    )


def _check_ended(
    settings: Settings, secondary: Sequence[MetricResult], sources: Mapping[str, LiveResults]
) -> None:
    """Refuse to select differences where there is no control, or more may come."""
    said = 'many is "benjamini-hochberg", which selects differences from the control'
    if settings.control is None:
        raise InvalidInputError(f"{said}, and the test has none; leave many out.", field="many")
    for result in secondary:
        if result.anytime or (result.name in sources and not sources[result.name].final):
            raise InvalidInputError(
                f"{said} in a single analysis at the end, when all visits were assigned and their "
                f"windows have ended; for {result.name} that is not so. Leave many and anytime out "
                "until then.",
                field="many",
            )


Exact = NDArray[np.object_]  # (3, m) whole numbers of values, then fractions: sums and squares
Sums = Mapping[tuple[str, int], Exact]  # by series and segment


def by_series(series: Iterable[SeriesSums]) -> Sums:
    """Numbers of values, their sums and squares: days are added up."""
    found: dict[tuple[str, int], Exact] = {}
    for part in series:
        more = np.array([part.rewarded, part.sums, part.squares], dtype=object)
        at = part.series, part.segment
        found[at] = found[at] + more if at in found else more
    return found


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
    """Segments with the tally of a metric in place of the reward's, as if nobody had observed them.

    Observing is about the reward: other metrics may have longer windows.
    """
    found = []
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
        found.append((record, tally))
    return found


def _results(
    settings: Settings,
    metric: Metric,
    snapshot: Snapshot,
    sums: Sums,
    state: State,
    now: int,
    stopped: Stopped | None,
) -> LiveResults:
    """The results of a test whose reward is that metric."""
    if settings.arms.large:
        raise InvalidInputError(
            f"further metrics are judged for sets of variants that fit into a table, not for "
            f"{settings.arms.size:,}."
        )

    def of(own: Settings, segments: Iterable[tuple[SegmentRecord, Tally]]) -> LiveResults:
        moment = replace(snapshot, segments=tuple(segments))
        found = results_of(own, moment, (), now, state, stopped)
        return replace(found, pieces=with_references(own, found.pieces))

    if metric.ratio is None:
        own = _of_metric(settings, metric)
        return of(own, _tallies(snapshot, sums, metric.name, settings.primary.name))
    above, below = (settings.measured[_known_as(settings, name)] for name in metric.ratio)
    _check_ratio(settings, above, below)
    own = _of_metric(settings, _ratio_of(metric, above, below))
    parts = [
        list(_tallies(snapshot, sums, part.name, settings.primary.name)) for part in (above, below)
    ]
    over, under = (of(own, part) for part in parts)
    means = [part.evidence.estimates[0] for part in (over, under)]
    if not (means[1] > 0).all():
        raise RewardsPendingError(
            f"{metric.name} is {above.name} per {below.name}, and of {below.name} nothing has come "
            "for some variant yet."
        )
    products = {
        record.index: sums[at][1].tolist()
        for record, _ in snapshot.segments
        if (at := ("*".join(metric.ratio), record.index)) in sums
    }
    few = _widening(metric, below, under)
    return of(own, _linearized(parts[0], parts[1], products, means[0], means[1], few))


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

    Deviations from a ratio are small where few units brought something of what it is divided by,
    because the ratio was chosen to fit them. With the effective number m of these units (Kish)
    their variance is multiplied by m / (m - 1), and the quantile is Student's.

    Parameters
    ----------
    name, below : of the ratio, and of what it is divided by
    sums, squares : (K,) sums over units of what it is divided by, and of its squares
    """
    units = sums**2 / np.maximum(squares, np.finfo(float).tiny)
    if units.min() < LEAST_UNITS:
        raise RewardsPendingError(
            f"{name} needs {LEAST_UNITS} units of every variant that bring something of "
            f"{below}, and so far one has {units.min():.1f} in effect."
        )
    z = -ndtri(RARE)
    return np.asarray(student_factor(z, units - 1) / z * np.sqrt(units / (units - 1)))


def _known_as(settings: Settings, name: str) -> str:
    return settings.primary.name if name == REWARD else name


def _check_ratio(settings: Settings, above: Metric, below: Metric) -> None:
    if not is_one_hot(arms_judged(settings.policy, settings.arms).coordinates):
        raise InvalidInputError(
            "a ratio of two metrics follows no linear model, so it is judged only for variants "
            "that share no features."
        )
    for part in (above, below):
        if part.missing != "zero":
            raise InvalidInputError(
                f"{part.name} is part of a ratio, and a unit without it counts as zero there; "
                f'declare it with missing="zero".'
            )


def _patience(times: tuple[float | None, float | None]) -> float:
    return sum(time or 0.0 for time in times)


def _ratio_of(metric: Metric, above: Metric, below: Metric) -> Metric:
    """The ratio as a metric of its own: it is final when both of its parts are."""
    window = grace = None
    if above.window is not None and below.window is not None:
        window, grace = max((part.times for part in (above, below)), key=_patience)
    several: Several = "first" if window is None else "sum"
    return replace(
        metric, ratio=None, missing="zero", window=window, grace=grace, several=several, range=None
    )


def _linearized(
    above: Iterable[tuple[SegmentRecord, Tally]],
    below: Iterable[tuple[SegmentRecord, Tally]],
    products: Mapping[int, Sequence[float]],
    numerators: Floats,
    denominators: Floats,
    widening: Floats,
) -> Iterator[tuple[SegmentRecord, Tally]]:
    """Tallies of R + (a - R b) / B: a mean of such values is the ratio R = A / B of two means.

    Its error is that of the ratio to first order, the delta method; so everything that is known
    about means holds for ratios, too.

    products : sums of ab by segment and variant
    numerators, denominators : (K,) the means A and B of every variant
    widening : (K,) factor of the deviations from R
    """
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    scales = [w / b for w, b in zip(widening, denominators, strict=True)]
    for (record, a), (_, b) in zip(above, below, strict=True):
        both = products.get(record.index, [0.0] * len(a.assigned))
        counts = [n - e for n, e in zip(a.assigned, a.excluded, strict=True)]
        total, squares = [], []
        for k, (n, R, scale) in enumerate(zip(counts, ratios, scales, strict=True)):
            part = (a.sums[k] - R * b.sums[k]) * scale
            spread = a.squares[k] - 2 * R * both[k] + R * R * b.squares[k]
            total.append(n * R + part)
            squares.append(n * R * R + 2 * R * part + spread * scale * scale)
        new = replace(a, rewarded=tuple(counts), sums=tuple(total), squares=tuple(squares))
        yield record, new


def with_references(
    settings: Settings, pieces: Sequence[SegmentLedger]
) -> tuple[SegmentLedger, ...]:
    """The same segments, with the mean of earlier ones as the reference of each.

    References of the policy are about the reward of all units, not about another metric or about
    some of the units. The mean of earlier segments is known before a
    segment is drawn, or at least does not depend on its draws, so that estimates stay unbiased; it
    takes out what all variants share.
    """
    X = arms_judged(settings.policy, settings.arms).coordinates
    root = inverse_root(gram(X))
    unit = X.sum(axis=0) @ root @ root.T  # every arm's value is nearest to 1
    count, total, found = 0, 0.0, []
    for piece in pieces:
        level = total / count if count else 0.0
        reference = np.asarray(level * unit[None]) if count else None
        found.append(replace(piece, segment=replace(piece.segment, reference=reference)))
        count += piece.recorded
        total += float(piece.stats.sums.sum())
    return tuple(found)


def _declared(metric: Metric, evidence: Evidence) -> Evidence:
    """The evidence, which takes a metric for yes or no even where not one has happened.

    Then sums do not show it, but it is declared.
    """
    if metric.kind != "yes/no":
        return evidence
    known = False if evidence.binary is None else evidence.binary
    none = ~evidence.scores.any(axis=(1, 2))
    return replace(evidence, binary=np.asarray(known | none))


def judged(
    settings: Settings, metric: Metric, evidence: Evidence, level: float, watched: bool
) -> list[MetricResult]:
    """What the evidence of n tests says of a metric, for each of them.

    watched : intervals hold at all times, not only for a single analysis at the end
    """
    evidence = _declared(metric, evidence)
    names, budget = settings.arms.names, settings.budget
    found = (
        confidence_sequence(evidence, budget, level) if watched else fixed_budget(evidence, level)
    )
    intervals = metric.clip(np.stack([found.low, found.high], axis=2))
    results = [
        MetricResult(metric, names, 0, *each, level=level, anytime=watched)
        for each in zip(found.estimates, intervals, strict=True)
    ]
    if settings.control is None:
        return results
    control = settings.arms.index(settings.control)
    against = (
        lift_sequence(evidence, budget, control, level)
        if watched
        else lifts(evidence, control, level)
    )
    results = [
        _compared(replace(result, control=settings.control), against, i)
        for i, result in enumerate(results)
    ]
    if metric.role != "guardrail":
        return results
    return [replace(result, safety=safety_of(result)) for result in results]


def _compared(result: MetricResult, found: Lifts, i: int = 0) -> MetricResult:
    """The result with the differences from the control in test i."""
    return replace(
        result,
        lifts=found.differences[i],
        lift_intervals=np.column_stack([found.low[i], found.high[i]]),
        relative=found.relative[i],
        relative_intervals=np.column_stack([found.relative_low[i], found.relative_high[i]]),
    )


def safety_of(result: MetricResult) -> tuple[Safety, ...]:
    """Whether each variant is worse than the control by less than the margin: non-inferiority.

    The margin is that of `result.metric`, and the interval of the lift must lie on its safe side.
    """
    return tuple(_safety(result, k) for k in range(len(result.names)))


def _safety(result: MetricResult, k: int) -> Safety:
    metric = result.metric
    if result.names[k] == result.control:
        return "control"
    assert result.lift_intervals is not None
    assert result.relative_intervals is not None
    share = metric.margin_share
    ends = result.lift_intervals[k] if share is None else result.relative_intervals[k]
    margin = metric.margin if share is None else share
    assert isinstance(margin, (int, float))
    worst, best = (ends[0], ends[1]) if metric.direction == "maximize" else (-ends[1], -ends[0])
    if worst > -margin:
        return "safe"
    return "broken" if best < -margin else "unclear"
