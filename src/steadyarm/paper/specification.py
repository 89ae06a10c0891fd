"""The paper's figures as specifications, the published error counts, and how ours compare."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from typing import Any

import numpy as np
import scipy

from steadyarm.environments import (
    Environment,
    RewardSource,
    malicious_switch,
    published_multivariate,
    soare_oscillating,
    soare_stationary,
)
from steadyarm.environments.environment import World
from steadyarm.errors import InvalidInputError
from steadyarm.paper.datasets import flights_world, load_yahoo_instance, yahoo_world
from steadyarm.policies import GBAI, VARIANTS, policy_from
from steadyarm.simulation import Results
from steadyarm.simulation.compare import Task, Value, fisher_p_value

PAPER_POLICIES = ("G-BAI", "P1-RAGE", "P1-Peace", "Mixed-Peace", "Peace", "OD-LinBAI")


@dataclass(frozen=True)
class Figure:
    """Which worlds, which policies, how many trials; the drawing is elsewhere.

    Attributes
    ----------
    name : how it is called on the command line and in results
    title : one line for people
    world : makes the world of a value
    parameter : what varies, "" if there is a single setting
    label : the parameter's axis label
    values : the values of the parameter; (None,) if there is a single setting
    trials : for a quick run; the published numbers are in `published.py`
    gap_panel : whether the smallest gap is drawn below, as where it varies with the parameter
    log_values : whether the values stand on a logarithmic axis
    by_default : whether it is run when no figure is named; not so where data or extras are needed
    """

    name: str
    title: str
    world: Callable[[Any], World]
    parameter: str
    label: str
    values: tuple[Value, ...]
    trials: int = 1000
    gap_panel: bool = False
    log_values: bool = False
    by_default: bool = True

    def points(self, policies: Iterable[str]) -> Iterator[tuple[Value, str]]:
        """Every value with every policy."""
        yield from product(self.values, policies)


# The paper's experiments and one on real flights, each as a specification.


BEYOND_PAPER = "beyond_paper"  # not an experiment: all settings of the others, see `beyond.py`
YAHOO_FILE = "STEADYARM_YAHOO"  # environment variable: the file that `YahooInstance.save` wrote


def _yahoo(repeat: int) -> Environment:
    path = os.environ.get(YAHOO_FILE)
    if not path:
        raise InvalidInputError(
            "the figure yahoo needs an instance of the Yahoo! R6A data, which cannot be shipped. "
            f"Make one as docs/research/reproduce.md shows, and set {YAHOO_FILE} to its file."
        )
    return yahoo_world(load_yahoo_instance(path), repeat=repeat)


# What several figures have in common.
_SCALES: dict[str, Any] = {
    "parameter": "scale", "label": "oscillation scale s", "values": tuple(range(10)),
    "gap_panel": True,
}  # fmt: skip  # a table reads better so
_PERIODS: dict[str, Any] = {
    "parameter": "period", "label": "oscillation period L", "values": tuple(range(300, 3001, 300)),
    "gap_panel": True,
}  # fmt: skip  # a table reads better so
_SINGLE: dict[str, Any] = {"parameter": "", "label": "", "values": (None,)}
_LARGE: dict[str, Any] = {"log_values": True, "by_default": False}

_ALL = (
    Figure(
        "soare_stationary",
        "Soare's arms, nothing moves",
        soare_stationary,
        parameter="budget",
        label="budget T",
        values=(10, 1010, 2010, 3010, 4010, 5010),
    ),
    Figure(
        "multivariate_scale",
        "Sixteen layouts, oscillating weights",
        lambda scale: published_multivariate("scale", scale),
        **_SCALES,
    ),
    Figure(
        "multivariate_period",
        "Sixteen layouts, oscillating weights",
        lambda period: published_multivariate("period", period),
        **_PERIODS,
    ),
    Figure(
        "soare_scale",
        "Soare's arms, an oscillating last parameter",
        lambda scale: soare_oscillating(scale=scale, period=200),
        **_SCALES,
    ),
    Figure(
        "soare_period",
        "Soare's arms, an oscillating last parameter",
        # the published runs have scale 2.5 where the paper's text says 1
        lambda period: soare_oscillating(scale=2.5, period=period),
        **_PERIODS,
    ),
    Figure(
        "malicious",
        "A malicious switch after a third of the test",
        lambda _: malicious_switch(published=True),
        **_SINGLE,
    ),
    Figure(
        "multivariate_stationary",
        "Sixteen layouts, nothing moves",
        lambda _: published_multivariate("scale", 0),
        **_SINGLE,
    ),
    Figure(
        "flights",
        "Which carrier at which airport is most often on time? New York 2013",
        flights_world,
        parameter="budget",
        label="budget T",
        values=(5_000, 10_000, 20_000, 50_000, 100_000, 200_000),
        **_LARGE,
    ),
    Figure(
        "yahoo",
        "News articles, parameters that change from day to day",
        _yahoo,
        parameter="repeat",
        label="visits per day L",
        values=(100, 200, 500, 1000, 1500, 3000),
        **_LARGE,
    ),
)
FIGURES = {figure.name: figure for figure in _ALL}


def figure_named(name: str) -> Figure:
    """The figure of that name."""
    try:
        return FIGURES[name.replace("-", "_")]
    except KeyError:
        raise InvalidInputError(
            f"there is no figure {name!r}; the figures are {', '.join([*FIGURES, BEYOND_PAPER])}."
        ) from None


Point = tuple[Figure, Value, str, int]  # a policy at a value of a figure's parameter, and trials


def tasks_of(points: Iterable[Point], seed: int = 0) -> list[Task]:
    """Tasks for these points, with policies as in the paper's published runs.

    A policy is given by its proper name, or as "module:Class".

    Examples
    --------
    >>> from steadyarm.paper import FIGURES
    >>> (task,) = tasks_of([(FIGURES["soare_scale"], 3, "Peace", 100)])
    >>> task.policy_name, task.environment.budget, task.rounds
    ('Peace', 10000, 1000000)
    """
    worlds: dict[tuple[str, Value], RewardSource] = {}
    tasks = []
    for figure, value, name, trials in dict.fromkeys(points):
        if (figure.name, value) not in worlds:
            worlds[figure.name, value] = figure.world(value)
        policy, world = policy_from(name, published=True), worlds[figure.name, value]
        label = policy.name if ":" in name else name
        tasks.append(Task(figure.name, figure.parameter, value, label, policy, world, trials, seed))
    return tasks


# The published counts


@cache
def published_counts() -> dict[tuple[str, Value, str], Results]:
    """All 324 published cells by (figure, value, policy).

    Examples
    --------
    >>> cell = published_counts()["soare_stationary", 1010, "P1-RAGE"]
    >>> cell.errors, cell.trials
    (1119, 21000)
    """
    text = (resources.files("steadyarm.paper") / "published_results.csv").read_text()
    cells: dict[tuple[str, Value, str], Results] = {}
    for row in csv.DictReader(text.splitlines()):
        value = int(row["value"]) if row["value"] else None
        errors, trials = int(row["errors"]), int(row["trials"])
        cells[row["figure"], value, row["policy"]] = Results(
            row["policy"],
            {0: trials - errors, 1: errors},
            None,
            best_arm=0,
            world=row["figure"],
            gap=float(row["min_gap"]) if row["min_gap"] else None,
        )
    return cells


# Our counts beside the published ones


AGREES = 0.001  # p-value from which on two counts agree
NOT_COMPARABLE = {"yahoo": "the published instance was not kept, so its cells cannot be run again"}


@dataclass(frozen=True)
class Comparison:
    """One of our cells beside its published counterpart."""

    ours: Results
    theirs: Results
    p_value: float

    @property
    def agrees(self) -> bool:
        """Whether our count lies inside the 99.9 % two-sample interval of the published one."""
        return self.p_value >= AGREES


def compare(results: Iterable[Results]) -> list[Comparison]:
    """Fisher's exact test, two-sided, of every cell that has a published counterpart.

    Examples
    --------
    >>> cell = Results("P1-RAGE", {0: 19881, 1: 1119}, None, best_arm=0, world="soare_stationary",
    ...     parameter="budget", value=1010)
    >>> compare([cell])[0].p_value
    1.0
    """
    pairs = ((ours, published_cell(ours)) for ours in results)
    return [
        Comparison(ours, theirs, fisher_p_value(ours, theirs))
        for ours, theirs in pairs
        if theirs is not None
    ]


def published_cell(cell: Results) -> Results | None:
    """The published counterpart of a cell; None if there is none that can be compared."""
    if cell.world in NOT_COMPARABLE:
        return None
    return published_counts().get((cell.world, cell.value, cell.policy))


# Every published setting, policies relative to P1-RAGE: `beyond_paper`.


BASELINE = "P1-RAGE"
_OTHERS = (*VARIANTS, "Steady")  # if none are asked for
EASY = 0.002  # where the baseline errs no more often than this, ratios tell little


@dataclass(frozen=True)
class Ratio:
    """A policy's error over the baseline's in one setting, and its 95 % interval (Katz).

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
        return 0 if self.p_value >= AGREES else 1 if self.ratio > 1 else -1


@dataclass(frozen=True)
class Row:
    """One setting: the baseline's cell, and ratios by policy."""

    base: Results
    ratios: dict[str, Ratio]

    @property
    def counts(self) -> bool:
        """Whether the baseline errs often enough for the geometric mean."""
        return self.base.error_rate > EASY


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
        """The share of Steady's gain over the baseline that each variant reaches, in logarithms."""
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
            ours = {name: cells.get((figure.name, value, name)) for name in names}
            ratios = {name: _ratio(cell, base) for name, cell in ours.items() if cell is not None}
            rows.append(Row(base, ratios))
    if not rows:
        raise InvalidInputError(f"there are no results of {BASELINE} to compare with.")
    return Beyond(tuple(names), tuple(rows))


def _ratio(cell: Results, base: Results) -> Ratio:
    risk = scipy.stats.contingency.relative_risk(cell.errors, cell.trials, base.errors, base.trials)
    low, high = risk.confidence_interval(0.95)
    ends = float(np.nan_to_num(low)), float(np.nan_to_num(high, nan=math.inf, posinf=math.inf))
    return Ratio(cell, _rate(cell) / _rate(base), *ends, fisher_p_value(cell, base))


def _rate(cell: Results) -> float:
    return _half(cell.errors) / cell.trials


def _half(errors: int) -> float:
    """Errors, of which none counts as half of one."""
    return errors or 0.5
