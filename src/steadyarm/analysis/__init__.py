"""Logs of tests that ran elsewhere: where they are, what is wrong with them, what they say."""

from steadyarm.analysis.analyze_log import Missing, analyze
from steadyarm.analysis.result import Analysis

__all__ = ["Analysis", "Missing", "analyze"]
