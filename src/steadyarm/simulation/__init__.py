"""Simulation: policies in environments, many independent trials, and how often they are wrong."""

from steadyarm.simulation.compare import Comparison, compare
from steadyarm.simulation.simulate import Results, clopper_pearson, simulate

__all__ = ["Comparison", "Results", "clopper_pearson", "compare", "simulate"]
