"""Logs of tests that ran elsewhere: where they are, what is wrong with them, what they say."""

from steadyarm.analysis.analyze import analyze
from steadyarm.analysis.events import Events
from steadyarm.analysis.result import Analysis, Missing
from steadyarm.analysis.source import Columns

__all__ = ["Analysis", "Columns", "Events", "Missing", "analyze"]
