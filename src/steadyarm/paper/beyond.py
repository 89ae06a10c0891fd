"""The data step of `beyond_paper`: every published setting, policies relative to P1-RAGE."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from steadyarm.environments import Environment, GaussianNoise
from steadyarm.errors import InvalidInputError
from steadyarm.paper.run import CellResult
from steadyarm.paper.specification import FIGURES, VARIANTS, Figure, FigureWorld, Value
from steadyarm.policies import P1RAGE
from steadyarm.theory import rho_star_of_means

BASELINE = "P1-RAGE"
_OTHERS = ("G-BAI blocks", "P1-RAGE blocks", "Steady fixed", "Steady")  # if none are asked for
EASY = 0.002  # where the baseline errs no more often than this, ratios tell little
_SIGNIFICANT = 0.001
_FAR = 1e12  # ratios beyond this, and below its inverse, are not searched for


@dataclass(frozen=True)
class Ratio:
    """A policy's error over the baseline's in one setting, and its 95 % score interval.

    Without errors the ratio is that of half an error; the interval then begins at 0, or has no
    end if it is the baseline that never erred. `p_value` is Fisher's, two-sided.
    """

    cell: CellResult
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

    base: CellResult
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
        return [*map(self.verdict, self.policies), *self._without_adaptation()]

    def _without_adaptation(self) -> Iterator[str]:
        """How much of Steady's gain over the baseline each variant reaches, in logarithms."""
        gain = self.geometric_mean("Steady") if "Steady" in self.policies else math.nan
        if not gain < 1:
            return
        for name, policy in VARIANTS.items():
            if name in self.policies:
                share = math.log(self.geometric_mean(name)) / math.log(gain)
                what = "adapts" if isinstance(policy, P1RAGE) else "does not adapt"
                yield (
                    f"{name}, which is balanced and {what}, reaches {share:.0%} of Steady's gain "
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


def beyond_of(results: Iterable[CellResult], policies: Sequence[str]) -> Beyond:
    """Compare the policies with the baseline wherever there are results of both.

    Examples
    --------
    >>> cells = [CellResult("malicious", "", None, policy, 1000, errors, 0.01, 1.0)
    ...          for policy, errors in (("P1-RAGE", 400), ("Steady", 300))]
    >>> print(beyond_of(cells, ["Steady"]).verdict("Steady"))
    Steady: geometric mean 0.75 over 1 settings; significantly worse in 0 and better in 1 of 1
    tested
    """
    cells = {(cell.figure, cell.value, cell.policy): cell for cell in results}
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


def oracle_floor(world: FigureWorld) -> float:
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

    middle, end = math.log(_half(x) / n / (_half(y) / m)), math.log(_FAR)
    low = (
        0.0 if x == 0 else math.exp(scipy.optimize.brentq(lambda v: score(v) - limit, -end, middle))
    )
    high = (
        math.inf
        if y == 0
        else math.exp(scipy.optimize.brentq(lambda v: score(v) + limit, middle, end))
    )
    return low, high


def _ratio(cell: CellResult, base: CellResult) -> Ratio:
    table = np.array([[c.errors, c.trials - c.errors] for c in (cell, base)])
    low, high = ratio_interval(cell.errors, cell.trials, base.errors, base.trials)
    return Ratio(
        cell, _rate(cell) / _rate(base), low, high, float(scipy.stats.fisher_exact(table).pvalue)
    )


def _rate(cell: CellResult) -> float:
    return _half(cell.errors) / cell.trials


def _half(errors: int) -> float:
    """Errors, of which none counts as half of one."""
    return errors or 0.5
