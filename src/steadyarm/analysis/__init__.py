"""Logs of tests that ran elsewhere: where they are, what is wrong with them, what they say."""

from steadyarm.analysis.analyze_log import analyze
from steadyarm.analysis.result import Analysis, Missing

__all__ = ["Analysis", "Missing", "analyze"]
