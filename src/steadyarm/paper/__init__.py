"""The paper's experiments: figures as specifications, their data, and the published numbers."""

from steadyarm.paper.flights import Flights, flights_world, load_flights
from steadyarm.paper.published import published_counts
from steadyarm.paper.run import tasks_of
from steadyarm.paper.specification import FIGURES, PAPER_POLICIES, Figure, figure_named
from steadyarm.paper.yahoo import (
    YahooInstance,
    YahooTruth,
    load_yahoo_instance,
    write_yahoo_log,
    yahoo_instance,
    yahoo_world,
)
from steadyarm.paper.yahoo_log import YahooDay, read_yahoo

__all__ = [
    "FIGURES",
    "PAPER_POLICIES",
    "Figure",
    "Flights",
    "YahooDay",
    "YahooInstance",
    "YahooTruth",
    "figure_named",
    "flights_world",
    "load_flights",
    "load_yahoo_instance",
    "published_counts",
    "read_yahoo",
    "tasks_of",
    "write_yahoo_log",
    "yahoo_instance",
    "yahoo_world",
]
