"""The paper's experiments: figures as specifications, their data, and the published numbers."""

from steadyarm.paper.datasets import (
    Flights,
    YahooInstance,
    YahooLog,
    flights_world,
    load_flights,
    load_yahoo_instance,
    read_yahoo,
    yahoo_instance,
    yahoo_world,
)
from steadyarm.paper.specification import (
    FIGURES,
    PAPER_POLICIES,
    Figure,
    figure_named,
    published_counts,
    tasks_of,
)

__all__ = [
    "FIGURES",
    "PAPER_POLICIES",
    "Figure",
    "Flights",
    "YahooInstance",
    "YahooLog",
    "figure_named",
    "flights_world",
    "load_flights",
    "load_yahoo_instance",
    "published_counts",
    "read_yahoo",
    "tasks_of",
    "yahoo_instance",
    "yahoo_world",
]
