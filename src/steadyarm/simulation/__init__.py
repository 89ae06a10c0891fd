"""Many independent runs of a policy in an environment, and how often it was wrong."""

from steadyarm.simulation.results import Results
from steadyarm.simulation.simulate import simulate

__all__ = ["Results", "simulate"]
