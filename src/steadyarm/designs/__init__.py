"""Designs: how often to play each arm, with a proof of how good that is."""

from steadyarm.designs.adjacency import adjacent_optimal, adjacent_pairs
from steadyarm.designs.design import Design, Status
from steadyarm.designs.frank_wolfe import frank_wolfe_g, frank_wolfe_xy
from steadyarm.designs.optimal import (
    SubsetDesigns,
    designs_for,
    forget_designs,
    g_optimal,
    solve_directions,
    xy_optimal,
)
from steadyarm.designs.rounding import round_design, round_designs

__all__ = [
    "Design",
    "Status",
    "SubsetDesigns",
    "adjacent_optimal",
    "adjacent_pairs",
    "designs_for",
    "forget_designs",
    "frank_wolfe_g",
    "frank_wolfe_xy",
    "g_optimal",
    "round_design",
    "round_designs",
    "solve_directions",
    "xy_optimal",
]
