"""Simulation: many independent trials of policies in environments, and their error rates."""

from steadyarm.simulation.compare import Comparison, compare
from steadyarm.simulation.simulate import Results, clopper_pearson, simulate

__all__ = ["Comparison", "Results", "clopper_pearson", "compare", "simulate"]
