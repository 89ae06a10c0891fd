"""Figures of matplotlib, to print: the functions of `steadyarm.plot` under the same names.

Matplotlib itself is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.files import write_atomically
from steadyarm.planning import Plan
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart
from steadyarm.plot.sources import Test, chart_for, chart_of_plan
from steadyarm.simulation import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "allocation",
    "check_installed",
    "daily",
    "draw",
    "drift",
    "effects",
    "estimates",
    "interactions",
    "leaderboard",
    "plan",
    "plausible",
    "png",
    "results",
    "save",
    "svg",
    "waiting",
]


def draw(chart: Chart) -> Figure:
    """The chart as a `matplotlib.figure.Figure`, on no screen and in no global state."""
    found: Figure = _pictures().draw(chart)
    return found


def png(chart: Chart, dpi: int = 160) -> bytes:
    """The chart as a PNG file, byte for byte the same at every call."""
    content: bytes = _pictures().png(chart, dpi)
    return content


def svg(chart: Chart) -> bytes:
    """The chart as an SVG file, byte for byte the same at every call."""
    content: bytes = _pictures().svg(chart)
    return content


def save(chart: Chart, path: Path) -> Path:
    """Write the chart as a file; the ending of its name says as what (.png, .svg or .pdf)."""
    pictures = _pictures()
    writers = {".png": pictures.png, ".svg": pictures.svg, ".pdf": pictures.pdf}
    if path.suffix.lower() not in writers:
        raise InvalidInputError(f"the picture is {path}; expected a name in .png, .pdf or .svg.")
    return write_atomically(path, writers[path.suffix.lower()](chart))


def estimates(test: Test) -> Figure:
    """How the estimate of each variant settled, with the intervals of the leading ones."""
    return draw(chart_for("estimates", test))


def daily(test: Test) -> Figure:
    """Estimates of each day, or part of the test, by itself."""
    return draw(chart_for("daily", test))


def allocation(test: Test) -> Figure:
    """Which share of the visits each variant got, and where the policy changed its mind."""
    return draw(chart_for("allocation", test))


def plausible(test: Test) -> Figure:
    """How many variants can still win, and how long the others could."""
    return draw(chart_for("plausible", test))


def leaderboard(test: Test) -> Figure:
    """Estimates and intervals of the variants, from best to worst."""
    return draw(chart_for("leaderboard", test))


def drift(test: Test) -> Figure:
    """The lead over the nearest rivals and the level common to all, by day or part of the test."""
    return draw(chart_for("drift", test))


def effects(test: Test) -> Figure:
    """What each level of each factor adds, or what each item of bundles brings."""
    return draw(chart_for("effects", test))


def interactions(test: Test) -> Figure:
    """Whether the effect of one factor depends on another, for factorial tests."""
    return draw(chart_for("interactions", test))


def waiting(test: Test) -> Figure:
    """How many rewards have come, and how long they took, for live experiments."""
    return draw(chart_for("waiting", test))


def plan(plan: Plan) -> Figure:
    """How often each policy would be wrong, against the number of visits."""
    return draw(chart_of_plan(plan))


def results(found: Sequence[Results], title: str = "") -> Figure:
    """How often each policy was wrong, with exact intervals, from what `sa.simulate` returned."""
    return draw(charts.results(found, title))


def check_installed() -> None:
    """Raise an error that names the extra if matplotlib is missing."""
    _pictures()


def _pictures() -> Any:
    try:
        import matplotlib  # noqa: F401  # asked for by name, so that the message can say it

        from steadyarm.plot import pictures
    except ImportError as error:
        raise MissingExtraError(
            f"pictures need {error.name}; install it with: pip install 'steadyarm[plots]'."
        ) from None
    return pictures
