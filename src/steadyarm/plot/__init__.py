"""Charts of a test, a plan or simulations, as `altair.Chart`.

`test` is an experiment, its scorecard, a session or an analysis. A notebook shows what a function
returns; ``chart.save("name.png")`` (or svg, pdf, html) writes a file. Altair is imported when a
function is called. `steadyarm.plot.spec` has the specifications in Vega-Lite that services embed.

Examples
--------
>>> import steadyarm as sa
>>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=500, seed=3)
>>> for _ in range(500):
...     a = session.ask()
...     session.tell(a, 0.9 if a.name == "B" else 0.4)
>>> chart = sa.plot.leaderboard(session)
>>> print(chart.description)
B leads with an estimate of 0.9; not ruled out: 2 of 2 variants.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.plot.spec import Spec, config, missing

if TYPE_CHECKING:
    from altair import Chart

    from steadyarm.arms import ArmSet
    from steadyarm.designs import Design
    from steadyarm.planning import Plan
    from steadyarm.plot.sources import Test
    from steadyarm.simulation import Comparison, Results

__all__ = [
    "allocation", "design", "drift", "effects", "error_against_budget", "estimates",
    "interactions", "leaderboard", "lifts", "plan", "results", "save", "waiting",
]  # fmt: skip  # a table reads better so

ENDINGS = (".png", ".svg", ".pdf", ".html", ".json")


def estimates(test: Test) -> Chart:
    """How the estimates of the leading variants settled, with their intervals."""
    return _of_test("estimates", test)


def allocation(test: Test) -> Chart:
    """Which share of the visits each variant got, and where the allocation was updated."""
    return _of_test("allocation", test)


def leaderboard(test: Test) -> Chart:
    """Estimates and intervals of the variants, from best to worst."""
    return _of_test("leaderboard", test)


def lifts(test: Test) -> Chart:
    """Difference of each variant from the control, for tests that have one."""
    return _of_test("lifts", test)


def drift(test: Test) -> Chart:
    """The lead of the best variant over its nearest rivals in each period."""
    return _of_test("drift", test)


def effects(test: Test) -> Chart:
    """What each level of each factor adds, or what each item of bundles brings."""
    return _of_test("effects", test)


def interactions(test: Test) -> Chart:
    """Whether the effect of one factor depends on another, for factorial tests."""
    return _of_test("interactions", test)


def waiting(test: Test) -> Chart:
    """How many rewards have come by day, for live experiments."""
    return _of_test("waiting", test)


def plan(plan: Plan, clear: bool = False) -> Chart:
    """How often each policy would be wrong, against the number of visits.

    clear : whether to draw how often the answer would be clear instead
    """
    from steadyarm.plot import sweeps

    return altair_chart(sweeps.plan(plan, clear))


def design(design: Design, arms: ArmSet, title: str = "") -> Chart:
    """The weights of a design, the largest on top."""
    from steadyarm.plot import standings

    return altair_chart(standings.design(design, arms.names, title))


def results(found: Sequence[Results], title: str = "") -> Chart:
    """How often each policy was wrong, with exact intervals; found by `sa.simulate`."""
    from steadyarm.plot import standings

    return altair_chart(standings.results(found, title))


def error_against_budget(found: Comparison, title: str = "") -> Chart:
    """Probability of error against the budget in each world; found by `sa.compare`."""
    from steadyarm.plot import sweeps

    return altair_chart(sweeps.error_against_budget(found, title))


def _of_test(name: str, test: Test) -> Chart:
    from steadyarm.plot.sources import chart_for

    return altair_chart(chart_for(name, test))


def altair_chart(spec: Spec) -> Chart:
    """The specification as a chart of Altair."""
    try:
        import altair
    except ImportError as error:
        raise MissingExtraError(missing(error)) from None
    return altair.Chart.from_dict({k: v for k, v in spec.items() if k != "$schema"})


def save(spec: Spec, path: Path) -> Path:
    """Write the picture of a specification; the ending says how: png, svg, pdf, html or json.

    Examples
    --------
    >>> import tempfile
    >>> from steadyarm.plot.spec import chart
    >>> dots = chart("dots", "Dots", [{"x": 1}], summary="One dot.", mark="point")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(save(dots, Path(folder) / "dots.svg").read_text()[:4])
    <svg
    """
    check_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        altair_chart({**spec, "config": config()}).save(str(path), ppi=144)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error}") from None
    return path


def check_path(path: Path) -> None:
    """Refuse a file that cannot become a picture before any work is done."""
    if path.suffix.lower() not in ENDINGS or path.is_dir():
        raise InvalidInputError(f"the picture is {path}; expected a name in {', '.join(ENDINGS)}.")
    altair_chart({"mark": "point", "data": {"values": []}})  # says which extra is missing
