"""Figure: an experiment as a specification."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

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
from steadyarm.paper.flights import flights_world
from steadyarm.paper.yahoo import load_yahoo_instance, yahoo_world
from steadyarm.policies import policy_from
from steadyarm.simulation.compare import Task, Value

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
    values : of the parameter; (None,) if there is a single setting
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
