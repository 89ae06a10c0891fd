"""Results of further metrics: what variants brought beside the reward, and whether it is safe.

A metric is one more sum over the same assignments, whose probabilities are known, so its estimates
and intervals come from the same `Evidence` as those of the reward. No decision about assignments
rests on them. A metric has a window of its own, and its results rest on visits whose window has
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError, RewardsPendingError, SteadyArmError
from steadyarm.estimators import is_one_hot
from steadyarm.inference import confidence_sequence, fixed_budget
from steadyarm.inference.lift import lift_sequence, lifts
from steadyarm.live.decisions import SegmentLedger, stored_state
from steadyarm.live.metrics import REWARD, Metric, Several
from steadyarm.live.results import LiveResults, results_of
from steadyarm.live.settings import Settings
from steadyarm.live.verdict import arms_judged
from steadyarm.policies import State
from steadyarm.storages.records import SegmentRecord, Snapshot, Tally
from steadyarm.storages.series import SeriesSums

Floats = NDArray[np.float64]
Safety = Literal["safe", "unclear", "broken", "control"]


@dataclass(frozen=True, eq=False)
class MetricResult:
    """What is known of one metric.

    Attributes
    ----------
    metric : its declaration
    names : (K,) of the variants
    visits : visits that this rests on: those whose window has ended
    estimates : (K,) mean of the metric by variant; of a ratio the ratio of two means
    intervals : (K, 2) that hold for all variants at once
    control : the variant that lifts are differences from; None if there is none
    lifts, lift_intervals : (K,) and (K, 2) differences from the control; None without one
    relative, relative_intervals : the same divided by the control's value; nan where that cannot
        be told from 0
    safety : of a guardrail, by variant: "safe" if it is not worse than the control by more than
        the margin, "broken" if it is, "unclear" if neither is shown; empty for other metrics
    level : probability with which all intervals of this metric hold at once
    anytime : whether they hold at all times, or for the analysis at the end
    obstacle : why there is no result yet, in one sentence; empty if there is one, and then all
        numbers are there
    """

    metric: Metric
    names: Sequence[str]
    visits: int = 0
    estimates: Floats | None = None
    intervals: Floats | None = None
    control: str | None = None
    lifts: Floats | None = None
    lift_intervals: Floats | None = None
    relative: Floats | None = None
    relative_intervals: Floats | None = None
    safety: tuple[Safety, ...] = ()
    level: float = 0.95
    anytime: bool = False
    obstacle: str = ""

    @property
    def name(self) -> str:
        """Of the metric."""
        return self.metric.name

    @property
    def broken(self) -> tuple[str, ...]:
        """Variants that are shown to be worse than the control by more than the margin."""
        return self._standing("broken")

    @property
    def unsure(self) -> tuple[str, ...]:
        """Variants of which it is not shown whether they keep to the margin."""
        return self._standing("unclear")

    def _standing(self, wanted: Safety) -> tuple[str, ...]:
        known = self.safety or ("unclear",) * len(self.names)  # without a result nothing is shown
        each = zip(self.names, known, strict=True)
        return tuple(name for name, safety in each if safety == wanted)


def metric_results(
    settings: Settings,
    snapshot: Snapshot,
    series: Iterable[SeriesSums],
    now: int,
    level: float = 0.95,
    anytime: bool | None = None,
) -> tuple[MetricResult, ...]:
    """What is known of every metric but the primary one, in the order of their declaration.

    All intervals of the secondary metrics hold at once with probability `level` (Bonferroni over
    these metrics). Each guardrail has that level by itself: a variant must pass all of them, and
    an error in any one of them alone can let a bad variant pass.
    """
    further = settings.further
    secondary = sum(metric.role == "secondary" for metric in further)
    sums, state = _by_series(series), stored_state(settings, snapshot.experiment.policy_state)
    found = []
    for metric in further:
        alpha = (1 - level) / (secondary if metric.role == "secondary" else 1)
        try:
            own = _results(settings, metric, snapshot, sums, state, now)
            result = _judged(settings, metric, own, 1 - alpha, anytime)
        except SteadyArmError as error:
            result = MetricResult(metric, settings.arms.names, obstacle=str(error))
        found.append(replace(result, level=level))
    return tuple(found)


Exact = NDArray[np.object_]  # (3, m) whole numbers of values, then fractions: sums and squares
Sums = Mapping[tuple[str, int], Exact]  # by series and segment


def _by_series(series: Iterable[SeriesSums]) -> Sums:
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
            none = np.full((3, len(tally.assigned)), Fraction(0), dtype=object)
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
    settings: Settings, metric: Metric, snapshot: Snapshot, sums: Sums, state: State, now: int
) -> LiveResults:
    """The results of a test whose reward is that metric."""
    if settings.arms.large:
        raise InvalidInputError(
            f"further metrics are judged for sets of variants that fit into a table, not for "
            f"{settings.arms.size:,}."
        )

    def of(own: Settings, segments: Iterable[tuple[SegmentRecord, Tally]]) -> LiveResults:
        moment = replace(snapshot, segments=tuple(segments))
        found = results_of(own, moment, (), now, state)
        return replace(found, pieces=_with_levels(own, found.pieces))

    if metric.ratio is None:
        own = _of_metric(settings, metric)
        return of(own, _tallies(snapshot, sums, metric.name, settings.primary.name))
    above, below = (settings.measured[_known_as(settings, name)] for name in metric.ratio)
    _check_ratio(settings, above, below)
    own = _of_metric(settings, _ratio_of(metric, above, below))
    parts = [
        list(_tallies(snapshot, sums, part.name, settings.primary.name)) for part in (above, below)
    ]
    means = [of(own, part).evidence.estimates[0] for part in parts]
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
    return of(own, _linearized(parts[0], parts[1], products, means[0], means[1]))


def _known_as(settings: Settings, name: str) -> str:
    return settings.primary.name if name == REWARD else name


def _check_ratio(settings: Settings, above: Metric, below: Metric) -> None:
    if not is_one_hot(arms_judged(settings).coordinates):
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


def _ratio_of(metric: Metric, above: Metric, below: Metric) -> Metric:
    """The ratio as a metric of its own: it is final when both of its parts are."""
    window = grace = None
    if above.window is not None and below.window is not None:
        window, grace = max((part.window or 0.0, part.grace or 0.0) for part in (above, below))
    several: Several = "first" if window is None else "sum"
    return replace(
        metric, ratio=None, missing="zero", window=window, grace=grace, several=several, range=None
    )


def _linearized(
    above: Iterable[tuple[SegmentRecord, Tally]],
    below: Iterable[tuple[SegmentRecord, Tally]],
    products: Mapping[int, Sequence[Fraction]],
    numerators: Floats,
    denominators: Floats,
) -> Iterator[tuple[SegmentRecord, Tally]]:
    """Tallies of R + (a - R b) / B: a mean of such values is the ratio R = A / B of two means.

    Its error is that of the ratio to first order, the delta method; so everything that is known
    about means holds for ratios, too.

    products : sums of ab by segment and variant
    numerators, denominators : (K,) the means A and B of every variant
    """
    ratios = [Fraction(a) / Fraction(b) for a, b in zip(numerators, denominators, strict=True)]
    scales = [1 / Fraction(b) for b in denominators]
    for (record, a), (_, b) in zip(above, below, strict=True):
        both = products.get(record.index, [Fraction(0)] * len(a.assigned))
        counts = [n - e for n, e in zip(a.assigned, a.excluded, strict=True)]
        total, squares = [], []
        for k, (n, R, scale) in enumerate(zip(counts, ratios, scales, strict=True)):
            part = (a.sums[k] - R * b.sums[k]) * scale
            spread = a.squares[k] - 2 * R * both[k] + R * R * b.squares[k]
            total.append(n * R + part)
            squares.append(n * R * R + 2 * R * part + spread * scale * scale)
        new = replace(a, rewarded=tuple(counts), sums=tuple(total), squares=tuple(squares))
        yield record, new


def _with_levels(settings: Settings, pieces: Sequence[SegmentLedger]) -> tuple[SegmentLedger, ...]:
    """The same segments, with the metric's mean so far as the reference of each.

    References of the policy are about the reward. The mean of earlier segments is known before a
    segment is drawn, or at least does not depend on its draws, so that estimates stay unbiased; it
    takes out what all variants share.
    """
    X = arms_judged(settings).coordinates
    unit = np.linalg.lstsq(X, np.ones(len(X)), rcond=None)[0]
    count, total, found = 0, 0.0, []
    for piece in pieces:
        level = total / count if count else 0.0
        reference = np.asarray(level * unit[None]) if count else None
        found.append(replace(piece, segment=replace(piece.segment, reference=reference)))
        count += piece.recorded
        total += float(piece.stats.sums.sum())
    return tuple(found)


def _judged(
    settings: Settings, metric: Metric, results: LiveResults, level: float, anytime: bool | None
) -> MetricResult:
    evidence = results.evidence
    used, watched = results.spending(level, anytime)
    budget = settings.budget
    found = confidence_sequence(evidence, budget, used) if watched else fixed_budget(evidence, used)
    result = MetricResult(
        metric,
        settings.arms.names,
        visits=sum(piece.used for piece in results.mature),
        estimates=found.estimates[0],
        intervals=np.column_stack([found.low[0], found.high[0]]),
        level=level,
        anytime=watched,
    )
    if settings.control is None:
        return result
    control = settings.arms.index(settings.control)
    against = (
        lift_sequence(evidence, budget, control, used)
        if watched
        else lifts(evidence, control, used)
    )
    result = replace(
        result,
        control=settings.control,
        lifts=against.differences[0],
        lift_intervals=np.column_stack([against.low[0], against.high[0]]),
        relative=against.relative[0],
        relative_intervals=np.column_stack([against.relative_low[0], against.relative_high[0]]),
    )
    if metric.role != "guardrail":
        return result
    return replace(result, safety=safety_of(result))


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
