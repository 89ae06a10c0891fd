"""The paper's experiments and one on real flights, each as a specification."""

from __future__ import annotations

import os

from steadyarm.data import flights_world, load_yahoo_instance, yahoo_world
from steadyarm.environments import (
    Environment,
    malicious_switch,
    published_multivariate,
    soare_oscillating,
    soare_stationary,
)
from steadyarm.errors import InvalidInputError
from steadyarm.figures.specification import Figure

__all__ = ["BEYOND_PAPER", "FIGURES", "YAHOO_FILE", "figure_named"]

BEYOND_PAPER = "beyond_paper"  # not an experiment: all settings of the others, see `beyond.py`
YAHOO_FILE = "STEADYARM_YAHOO"  # environment variable: the file that `steadyarm data yahoo` wrote


def _yahoo(repeat: int) -> Environment:
    path = os.environ.get(YAHOO_FILE)
    if not path:
        raise InvalidInputError(
            "the figure yahoo needs the Yahoo! R6A data, which cannot be shipped: make an "
            f"instance with 'steadyarm data yahoo DIR --out FILE.npz' and set {YAHOO_FILE} to it."
        )
    return yahoo_world(load_yahoo_instance(path), repeat=repeat)


def _yahoo_source() -> object:
    path = os.environ.get(YAHOO_FILE)
    return (path, os.stat(path).st_mtime_ns) if path and os.path.exists(path) else path


_PERIODS = tuple(range(300, 3001, 300))
_SCALES = tuple(range(10))

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "soare_stationary",
            "Soare's arms, nothing moves",
            "budget",
            "budget T",
            (10, 1010, 2010, 3010, 4010, 5010),
            soare_stationary,
        ),
        Figure(
            "multivariate_scale",
            "Sixteen layouts, oscillating weights",
            "scale",
            "oscillation scale s",
            _SCALES,
            lambda scale: published_multivariate("scale", scale),
            gap_panel=True,
        ),
        Figure(
            "multivariate_period",
            "Sixteen layouts, oscillating weights",
            "period",
            "oscillation period L",
            _PERIODS,
            lambda period: published_multivariate("period", period),
            gap_panel=True,
        ),
        Figure(
            "soare_scale",
            "Soare's arms, an oscillating last parameter",
            "scale",
            "oscillation scale s",
            _SCALES,
            lambda scale: soare_oscillating(scale=scale, period=200),
            gap_panel=True,
        ),
        Figure(
            "soare_period",
            "Soare's arms, an oscillating last parameter",
            "period",
            "oscillation period L",
            _PERIODS,
            # the published runs have scale 2.5 where the paper's text says 1
            lambda period: soare_oscillating(scale=2.5, period=period),
            gap_panel=True,
        ),
        Figure(
            "malicious",
            "A malicious switch after a third of the test",
            "",
            "",
            (None,),
            lambda _: malicious_switch(published=True),
        ),
        Figure(
            "multivariate_stationary",
            "Sixteen layouts, nothing moves",
            "",
            "",
            (None,),
            lambda _: published_multivariate("scale", 0),
        ),
        Figure(
            "flights",
            "Which carrier at which airport is most often on time? New York 2013",
            "budget",
            "budget T",
            (5_000, 10_000, 20_000, 50_000, 100_000, 200_000),
            flights_world,
            log_values=True,
            by_default=False,
        ),
        Figure(
            "yahoo",
            "News articles, parameters that change from day to day",
            "repeat",
            "visits per day L",
            (100, 200, 500, 1000, 1500, 3000),
            _yahoo,
            log_values=True,
            by_default=False,
            source=_yahoo_source,
        ),
    )
}


def figure_named(name: str) -> Figure:
    """The figure of that name."""
    try:
        return FIGURES[name.replace("-", "_")]
    except KeyError:
        raise InvalidInputError(
            f"there is no figure {name!r}; the figures are {', '.join([*FIGURES, BEYOND_PAPER])}."
        ) from None
