"""The error counts behind the paper's figures, and how our own counts agree with them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import numpy as np
import scipy
from scipy.special import ndtr

from steadyarm.paper.run import CellResult
from steadyarm.paper.specification import Value


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

    ours: CellResult
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


def compare(results: Iterable[CellResult]) -> list[Comparison]:
    """Fisher's exact test, two-sided, of every cell that has a published counterpart.

    Examples
    --------
    >>> cell = CellResult("soare_stationary", "budget", 1010, "P1-RAGE", 21000, 1119, 0.01, 1.0)
    >>> compare([cell])[0].p_value
    1.0
    """
    found = []
    for ours in results:
        theirs = published_counts().get((ours.figure, ours.value, ours.policy))
        if theirs is not None and ours.figure not in NOT_COMPARABLE:
            table = np.array([[c.errors, c.trials - c.errors] for c in (ours, theirs)])
            found.append(Comparison(ours, theirs, float(scipy.stats.fisher_exact(table).pvalue)))
    return found


def scatter_of(comparisons: Iterable[Comparison]) -> Scatter:
    """Number of cells, mean z and root mean square z, over cells with enough errors."""
    z = [c.z for c in comparisons if c.z is not None]
    if not z:
        return Scatter(0, math.nan, math.nan, 1.0)
    squares = sum(value * value for value in z)
    chance = float(scipy.stats.chi2.sf(squares, len(z)))
    return Scatter(len(z), sum(z) / len(z), math.sqrt(squares / len(z)), chance)


def summarise(results: Iterable[CellResult]) -> Summary:
    """Compare everything, measure the scatter and look for reasons."""
    comparisons = compare(results)
    figures = dict.fromkeys(c.ours.figure for c in comparisons)
    scatter = {f: scatter_of(c for c in comparisons if c.ours.figure == f) for f in figures}
    found: dict[str, list[Comparison]] = {}
    for c in comparisons:
        if not c.agrees:
            for reason in _reasons(c, comparisons, scatter[c.ours.figure]):
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
    name, policy, reasons = c.ours.figure, c.ours.policy, []
    if (noted := _NOTED.get((name, c.ours.value, policy))) is not None:
        reasons.append(noted.format(theirs=f"{c.theirs.errors:,} of {c.theirs.trials:,}"))
    if (name, policy) in _CLOSED_FORM and abs(_off(c, c.ours)) <= _SIGMAS < abs(_off(c, c.theirs)):
        same = [o for o in every if (o.ours.figure, o.ours.policy) == (name, policy)]
        reasons.append(_CLOSED_FORM[name, policy].format(**_closed_form_facts(same)))
    # the cell itself is left out: an outlier must not be the proof that outliers are usual
    without = scatter_of(o for o in every if o.ours.figure == name and o is not c)
    inside = c.z is not None and abs(c.z) <= _SIGMAS * without.rms
    if name in _TOO_WIDE and without.too_wide and inside:
        rest = scatter_of(other for other in every if other.ours.figure != name)
        others = f"; it is {rest.rms:.2f} over the {rest.cells} other cells" if rest.cells else ""
        facts = {"rms": scatter.rms, "mean": scatter.mean, "cells": scatter.cells}
        reasons.append(_TOO_WIDE[name].format(figure=name, others=others, **facts))
    return reasons


def _closed_form_facts(cells: Sequence[Comparison]) -> dict[str, object]:
    values = [
        f"{_exact(c):.3f} at T = {c.ours.value:g} (ours {c.ours.error_rate:.3f}, published"
        f" {c.theirs.error_rate:.3f})"
        for c in cells
        if c.ours.value is not None
    ]
    return {
        "cells": len(cells),
        "ours": math.sqrt(sum(_off(c, c.ours) ** 2 for c in cells) / len(cells)),
        "theirs": math.sqrt(sum(_off(c, c.theirs) ** 2 for c in cells) / len(cells)),
        "values": ", ".join(values),
    }


def _exact(c: Comparison) -> float:
    return od_linbai_error(int(c.ours.value or 0), c.ours.min_gap)


def _off(c: Comparison, seen: CellResult | Published) -> float:
    """Distance of a count from the closed form, in standard errors."""
    exact = _exact(c)
    return (seen.error_rate - exact) / math.sqrt(exact * (1 - exact) / seen.trials)
