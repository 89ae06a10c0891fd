"""The paper's experiments as specifications, their data and their drawing."""

from steadyarm.figures.catalogue import FIGURES, figure_named
from steadyarm.figures.journal import CellResult, Journal
from steadyarm.figures.published import published_counts
from steadyarm.figures.run import run_cells
from steadyarm.figures.specification import PAPER_POLICIES, Cell, Figure

__all__ = [
    "FIGURES",
    "PAPER_POLICIES",
    "Cell",
    "CellResult",
    "Figure",
    "Journal",
    "figure_named",
    "published_counts",
    "run_cells",
]
