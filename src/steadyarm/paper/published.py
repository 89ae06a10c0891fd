"""The error counts behind the paper's figures: how ours agree, and how others beat P1-RAGE."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from steadyarm.environments import Environment, GaussianNoise, RewardSource
from steadyarm.errors import InvalidInputError
from steadyarm.paper.specification import FIGURES, Figure
from steadyarm.policies import GBAI, VARIANTS
from steadyarm.simulation import Results
from steadyarm.simulation.compare import Value
from steadyarm.theory import rho_star_of_means


@dataclass(frozen=True)
class Published:
    """A published cell."""

    errors: int
    trials: int
    min_gap: float | None

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials


@cache
def published_counts() -> dict[tuple[str, Value, str], Published]:
    """All 324 published cells by (figure, value, policy).

    Examples
    --------
    >>> cell = published_counts()["soare_stationary", 1010, "P1-RAGE"]
    >>> cell.errors, cell.trials
    (1119, 21000)
    """
    text = (resources.files("steadyarm.paper") / "published_results.csv").read_text()
    return {
        (row["figure"], int(row["value"]) if row["value"] else None, row["policy"]): Published(
            int(row["errors"]),
            int(row["trials"]),
            float(row["min_gap"]) if row["min_gap"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    }


# Our counts beside the published ones: which cells agree, and why the others do not.


LEVEL = 0.999
_SIGMAS = 3.29  # the normal distribution's two-sided 99.9 %
_ENOUGH_CELLS = 20  # below this a scatter is no evidence of anything
_ENOUGH = 5.0  # expected errors, and expected successes, for a normal approximation
NOT_COMPARABLE = {"yahoo": "the published instance was not kept, so its cells cannot be run again"}


@dataclass(frozen=True)
class Comparison:
    """One of our cells beside its published counterpart."""

    ours: Results
    theirs: Published
    p_value: float

    @property
    def agrees(self) -> bool:
        """Whether our count lies inside the 99.9 % two-sample interval of the published one."""
        return self.p_value >= 1 - LEVEL

    @property
    def z(self) -> float | None:
        """Ours minus theirs in standard errors; None with too few errors for a normal law."""
        n, m = self.ours.trials, self.theirs.trials
        pooled = (self.ours.errors + self.theirs.errors) / (n + m)
        if min(n, m) * min(pooled, 1 - pooled) < _ENOUGH:
            return None
        spread = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        return (self.ours.error_rate - self.theirs.error_rate) / spread


@dataclass(frozen=True)
class Scatter:
    """How far published counts lie from ours, in standard errors.

    Attributes
    ----------
    cells : how many have enough errors for a normal approximation
    mean, rms : of z over these; about 0 and 1 if both sides ran the same independent trials
    chance : probability of an rms as large as this by chance
    """

    cells: int
    mean: float
    rms: float
    chance: float

    @property
    def too_wide(self) -> bool:
        """Scattered to both sides, by more than chance allows, over enough cells to tell."""
        wide = self.chance < 1 - LEVEL and abs(self.mean) < self.rms / 2
        return wide and self.cells >= _ENOUGH_CELLS


@dataclass(frozen=True)
class Summary:
    """All comparisons of a run, the scatter per figure, and reasons for what disagrees."""

    comparisons: tuple[Comparison, ...]
    scatter: Mapping[str, Scatter]
    reasons: Mapping[str, tuple[Comparison, ...]] = field(default_factory=dict)

    @property
    def agreeing(self) -> int:
        """How many cells agree."""
        return sum(c.agrees for c in self.comparisons)

    @property
    def disagreeing(self) -> tuple[Comparison, ...]:
        """The cells that do not."""
        return tuple(c for c in self.comparisons if not c.agrees)

    @property
    def unexplained(self) -> tuple[Comparison, ...]:
        """The cells that do not agree, for no known reason."""
        explained = [c for cells in self.reasons.values() for c in cells]
        return tuple(c for c in self.disagreeing if c not in explained)


def compare(results: Iterable[Results]) -> list[Comparison]:
    """Fisher's exact test, two-sided, of every cell that has a published counterpart.

    Examples
    --------
    >>> cell = Results("P1-RAGE", {0: 19881, 1: 1119}, None, best_arm=0, world="soare_stationary",
    ...     parameter="budget", value=1010)
    >>> compare([cell])[0].p_value
    1.0
    """
    found = []
    for ours in results:
        theirs = published_counts().get((ours.world, ours.value, ours.policy))
        if theirs is not None and ours.world not in NOT_COMPARABLE:
            found.append(Comparison(ours, theirs, _fisher(ours, theirs)))
    return found


def _fisher(*cells: Results | Published) -> float:
    """The two-sided p-value of Fisher's exact test that two cells err equally often."""
    table = np.array([[cell.errors, cell.trials - cell.errors] for cell in cells])
    return float(scipy.stats.fisher_exact(table).pvalue)


def scatter_of(comparisons: Iterable[Comparison]) -> Scatter:
    """Number of cells, mean z and root mean square z, over cells with enough errors."""
    z = [c.z for c in comparisons if c.z is not None]
    if not z:
        return Scatter(0, math.nan, math.nan, 1.0)
    squares = sum(value * value for value in z)
    chance = float(scipy.stats.chi2.sf(squares, len(z)))
    return Scatter(len(z), sum(z) / len(z), math.sqrt(squares / len(z)), chance)


def summarise(results: Iterable[Results]) -> Summary:
    """Compare everything, measure the scatter and look for reasons."""
    comparisons = compare(results)
    figures = dict.fromkeys(c.ours.world for c in comparisons)
    scatter = {f: scatter_of(c for c in comparisons if c.ours.world == f) for f in figures}
    found: dict[str, list[Comparison]] = {}
    for c in comparisons:
        if not c.agrees:
            for reason in _reasons(c, comparisons, scatter[c.ours.world]):
                found.setdefault(reason, []).append(c)
    return Summary(tuple(comparisons), scatter, {r: tuple(cells) for r, cells in found.items()})


def od_linbai_error(budget: int, gap: float, d: int = 10) -> float:
    """Probability that OD-LinBAI errs on Soare's still set: Φ(-gap / √(2/n)).

    The last two arms, e₁ and the tilted one, get n = ⌈m/2⌉ plays each, where m is the length of
    a round; that an earlier round drops e₁ has negligible probability. Noise has variance 1.

    Examples
    --------
    >>> [round(od_linbai_error(T, 0.00999167), 3) for T in range(1010, 5011, 1000)]
    [0.469, 0.456, 0.446, 0.437, 0.43]
    """
    rounds = math.ceil(math.log2(d))
    spent = min(d + 1, d * (d + 1) // 2) + sum(math.ceil(d / 2**r) for r in range(1, rounds))
    m = (budget - spent) / rounds
    return d / (d + 1) if m <= 0 else float(ndtr(-gap * math.sqrt(math.ceil(m / 2) / 2)))


# Reasons as data. The fields in braces are measured in the run that is reported, and `_reasons`
# gives a reason only where they bear it out.
_TOO_WIDE: dict[str, str] = {
    "soare_stationary": "The published counts of `{figure}` scatter around ours {rms:.1f} times as"
    " much as chance allows (root mean square z {rms:.2f} over {cells} cells{others}), and to both"
    " sides (mean {mean:+.2f}). That fits trials that were not independent of each"
    " other better than a difference between the algorithms, which would move a policy's error one"
    " way at every budget.",
}
_CLOSED_FORM: dict[tuple[str, str], str] = {
    ("soare_stationary", "OD-LinBAI"): "OD-LinBAI's error has a closed form here, Φ(-gap / √(2/n))"
    " with n plays of each of the last two arms. It lies {ours:.1f} standard errors from our"
    " counts (root mean square over {cells} budgets) and {theirs:.1f} from the published ones:"
    " {values}.",
}
_NOTED: dict[tuple[str, Value, str], str] = {
    ("soare_stationary", 5010, "G-BAI"): "Known before: two other, independent implementations"
    " also lie about 4 standard errors from the published {theirs}.",
}


def _reasons(c: Comparison, every: Sequence[Comparison], scatter: Scatter) -> list[str]:
    name, policy, reasons = c.ours.world, c.ours.policy, []
    if (noted := _NOTED.get((name, c.ours.value, policy))) is not None:
        reasons.append(noted.format(theirs=f"{c.theirs.errors:,} of {c.theirs.trials:,}"))
    if (name, policy) in _CLOSED_FORM and abs(_off(c, c.ours)) <= _SIGMAS < abs(_off(c, c.theirs)):
        same = [o for o in every if (o.ours.world, o.ours.policy) == (name, policy)]
        reasons.append(_CLOSED_FORM[name, policy].format(**_closed_form_facts(same)))
    # the cell itself is left out: an outlier must not be the proof that outliers are usual
    without = scatter_of(o for o in every if o.ours.world == name and o is not c)
    inside = c.z is not None and abs(c.z) <= _SIGMAS * without.rms
    if name in _TOO_WIDE and without.too_wide and inside:
        rest = scatter_of(other for other in every if other.ours.world != name)
        others = f"; it is {rest.rms:.2f} over the {rest.cells} other cells" if rest.cells else ""
        facts = {"rms": scatter.rms, "mean": scatter.mean, "cells": scatter.cells}
        reasons.append(_TOO_WIDE[name].format(figure=name, others=others, **facts))
    return reasons


def _closed_form_facts(cells: Sequence[Comparison]) -> dict[str, object]:
    values = [
        f"{_exact(c):.3f} at T = {c.ours.value:g} (ours {c.ours.error_rate:.3f}, published"
        f" {c.theirs.error_rate:.3f})"
        for c in cells
    ]
    off = np.array([(_off(c, c.ours), _off(c, c.theirs)) for c in cells])
    ours, theirs = np.sqrt((off**2).mean(axis=0)).tolist()
    return {"cells": len(cells), "ours": ours, "theirs": theirs, "values": ", ".join(values)}


def _exact(c: Comparison) -> float:
    return od_linbai_error(int(c.ours.value or 0), c.ours.gap or 0.0)


def _off(c: Comparison, seen: Results | Published) -> float:
    """Distance of a count from the closed form, in standard errors."""
    exact = _exact(c)
    return (seen.error_rate - exact) / math.sqrt(exact * (1 - exact) / seen.trials)


# Every published setting, policies relative to P1-RAGE: `beyond_paper`.


BASELINE = "P1-RAGE"
_OTHERS = (*VARIANTS, "Steady")  # if none are asked for
EASY = 0.002  # where the baseline errs no more often than this, ratios tell little
_SIGNIFICANT = 0.001
_FAR = 1e12  # ratios beyond this, and below its inverse, are not searched for


@dataclass(frozen=True)
class Ratio:
    """A policy's error over the baseline's in one setting, and its 95 % score interval.

    Without errors the ratio is that of half an error; the interval then begins at 0, or has no
    end if it is the baseline that never erred. `p_value` is Fisher's, two-sided.
    """

    cell: Results
    ratio: float
    low: float
    high: float
    p_value: float

    @property
    def significant(self) -> int:
        """1 if significantly worse than the baseline, -1 if better, else 0."""
        return 0 if self.p_value >= _SIGNIFICANT else 1 if self.ratio > 1 else -1


@dataclass(frozen=True)
class Row:
    """One setting: the baseline's cell, the oracle's probability of error, ratios by policy."""

    base: Results
    floor: float
    ratios: dict[str, Ratio]

    @property
    def counts(self) -> bool:
        """Whether the baseline errs often enough for the geometric mean."""
        return self.base.error_rate > EASY

    @property
    def floor_ratio(self) -> float:
        """The floor relative to the baseline's error."""
        return self.floor / _rate(self.base)


@dataclass(frozen=True)
class Beyond:
    """All that picture and table show; rows in the catalogue's order."""

    policies: tuple[str, ...]
    rows: tuple[Row, ...]

    def ratios(self, policy: str, counted: bool = False) -> list[Ratio]:
        """A policy's ratios in all settings, or in those that count."""
        rows = [row for row in self.rows if row.counts or not counted]
        return [row.ratios[policy] for row in rows if policy in row.ratios]

    def geometric_mean(self, policy: str) -> float:
        """Of the policy's ratios where the baseline errs often enough; nan if it never does."""
        logs = [math.log(ratio.ratio) for ratio in self.ratios(policy, counted=True)]
        return math.exp(sum(logs) / len(logs)) if logs else math.nan

    def verdict(self, policy: str) -> str:
        """The policy's numbers in one line."""
        tested, counted = self.ratios(policy), self.ratios(policy, counted=True)
        worse, better = (sum(r.significant == sign for r in tested) for sign in (1, -1))
        mean = f"geometric mean {self.geometric_mean(policy):.3g} over {len(counted)} settings"
        return (
            f"{policy}: {mean if counted else 'no setting counts for a mean'}; significantly "
            f"worse in {worse} and better in {better} of {len(tested)} tested"
        )

    def lines(self) -> list[str]:
        """The verdict on each policy, and what of Steady's gain its variants reach."""
        return [*map(self.verdict, self.policies), *self._shares()]

    def _shares(self) -> Iterator[str]:
        """How much of Steady's gain over the baseline each variant reaches, in logarithms."""
        gain = self.geometric_mean("Steady") if "Steady" in self.policies else math.nan
        if not gain < 1:
            return
        for name, policy in VARIANTS.items():
            if name in self.policies:
                share = math.log(self.geometric_mean(name)) / math.log(gain)
                fixed = isinstance(policy, GBAI) or getattr(policy, "robustness", 0) == 1
                balanced = "is balanced" if policy.order == "blocks" else "is not balanced"
                what = f"{balanced} and {'does not adapt' if fixed else 'adapts'}"
                yield (
                    f"{name}, which {what}, reaches {share:.0%} of Steady's gain "
                    f"over {BASELINE} (logarithm of the geometric mean)"
                )


def beyond_policies(asked: Iterable[str] | None = None) -> tuple[str, ...]:
    """The baseline and the policies asked for, or else those that the picture is about."""
    others = [name for name in asked or _OTHERS if name != BASELINE]
    if not others:
        raise InvalidInputError(f"policies are compared with {BASELINE}; name at least one other.")
    return BASELINE, *dict.fromkeys(others)


def beyond_points(policies: Sequence[str]) -> Iterator[tuple[Figure, Value, str]]:
    """Figure, value and policy of every published setting but Yahoo's."""
    for figure in FIGURES.values():
        if figure.by_default:
            yield from ((figure, value, policy) for value, policy in figure.points(policies))


def beyond_of(results: Iterable[Results], policies: Sequence[str]) -> Beyond:
    """Compare the policies with the baseline wherever there are results of both.

    Examples
    --------
    >>> cells = [Results(policy, {0: 1000 - errors, 1: errors}, None, 0, world="malicious")
    ...          for policy, errors in (("P1-RAGE", 400), ("Steady", 300))]
    >>> print(beyond_of(cells, ["Steady"]).verdict("Steady"))
    Steady: geometric mean 0.75 over 1 settings; significantly worse in 0 and better in 1 of 1
    tested
    """
    cells = {(cell.world, cell.value, cell.policy): cell for cell in results}
    names = [policy for policy in policies if policy != BASELINE]
    rows = []
    for figure, value, _ in beyond_points([BASELINE]):
        base = cells.get((figure.name, value, BASELINE))
        if base is not None:
            found = {name: cells.get((figure.name, value, name)) for name in names}
            ratios = {name: _ratio(cell, base) for name, cell in found.items() if cell is not None}
            rows.append(Row(base, oracle_floor(figure.world(value)), ratios))
    if not rows:
        raise InvalidInputError(f"there are no results of {BASELINE} to compare with.")
    return Beyond(tuple(names), tuple(rows))


def oracle_floor(world: RewardSource) -> float:
    """Φ(-√(T / (σ²ρ*))): how often the best fixed design takes its likeliest wrong arm for best.

    The design is made for the time-averaged means, which no policy knows, and noise is the only
    randomness; `theory.rho_star` says what ρ* is.

    Examples
    --------
    >>> print(f"{oracle_floor(FIGURES['soare_stationary'].world(1010)):.4f}")
    0.0013
    """
    if not isinstance(world, Environment) or not isinstance(world.noise, GaussianNoise):
        raise InvalidInputError("the floor needs a world of means with Gaussian noise.")
    wanted = world.average if world.direction == "maximize" else -world.average
    rho = rho_star_of_means(world.arms, wanted)
    return float(ndtr(-math.sqrt(world.budget / rho) / world.noise.sd))


def ratio_interval(
    errors: int, trials: int, base_errors: int, base_trials: int, level: float = 0.95
) -> tuple[float, float]:
    """Koopman's score interval (1984) for a ratio of two probabilities.

    It begins at 0 without errors, and ends at infinity without errors of the base.

    Examples
    --------
    >>> low, high = ratio_interval(36, 40, 16, 80)  # Koopman's own example
    >>> round(low, 2), round(high, 2)
    (2.94, 7.15)
    """
    x, n, y, m = errors, trials, base_errors, base_trials
    limit = float(ndtri((1 + level) / 2))

    def score(logarithm: float) -> float:
        """How far x/n lies above the ratio times y/m, in standard errors under that ratio."""
        ratio = math.exp(logarithm)
        a, b, c = ratio * (n + m), ratio * (n + y) + x + m, x + y
        p = 2 * c / (b + math.sqrt(max(b * b - 4 * a * c, 0.0)))  # the base's, most likely
        q = min(ratio * p, 1.0)
        spread = math.sqrt(q * (1 - q) / n + ratio * ratio * p * (1 - p) / m)
        return (x / n - ratio * y / m) / spread if spread > 0 else 0.0

    def where(wanted: float, start: float, stop: float) -> float:
        return math.exp(scipy.optimize.brentq(lambda v: score(v) - wanted, start, stop))

    middle, end = math.log(_half(x) / n / (_half(y) / m)), math.log(_FAR)
    return where(limit, -end, middle) if x else 0.0, where(-limit, middle, end) if y else math.inf


def _ratio(cell: Results, base: Results) -> Ratio:
    ends = ratio_interval(cell.errors, cell.trials, base.errors, base.trials)
    return Ratio(cell, _rate(cell) / _rate(base), *ends, _fisher(cell, base))


def _rate(cell: Results) -> float:
    return _half(cell.errors) / cell.trials


def _half(errors: int) -> float:
    """Errors, of which none counts as half of one."""
    return errors or 0.5
