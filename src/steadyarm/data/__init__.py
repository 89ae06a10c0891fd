"""Logged data sets read into worlds: the Yahoo! R6A click log and New York's flights of 2013."""

from steadyarm.data.flights import Flights, flights_world, load_flights
from steadyarm.data.yahoo_generator import YahooTruth, write_yahoo_log
from steadyarm.data.yahoo_instance import (
    YahooInstance,
    load_yahoo_instance,
    yahoo_instance,
    yahoo_world,
)
from steadyarm.data.yahoo_log import YahooDay, read_yahoo

__all__ = [
    "Flights",
    "YahooDay",
    "YahooInstance",
    "YahooTruth",
    "flights_world",
    "load_flights",
    "load_yahoo_instance",
    "read_yahoo",
    "write_yahoo_log",
    "yahoo_instance",
    "yahoo_world",
]
