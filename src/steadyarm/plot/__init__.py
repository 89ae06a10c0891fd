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
]  # fmt: skip

ENDINGS = (".png", ".svg", ".pdf", ".html", ".json")


def estimates(test: Test) -> Chart:
    """Estimates of the leading variants over time, with intervals."""
    return _of_test("estimates", test)


def allocation(test: Test) -> Chart:
    """Share of the visits of each variant, and when the allocation was updated."""
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
    """The effect of each level of each factor, or of each item of bundles."""
    return _of_test("effects", test)


def interactions(test: Test) -> Chart:
    """Interactions between factors, for factorial tests."""
    return _of_test("interactions", test)


def waiting(test: Test) -> Chart:
    """The number of rewards by day, for live experiments."""
    return _of_test("waiting", test)


def plan(plan: Plan, clear: bool = False) -> Chart:
    """The share of wrong picks of each policy against the number of visits.

    clear : whether to draw the share of clear answers instead
    """
    from steadyarm.plot import sweeps

    return altair_chart(sweeps.plan(plan, clear))


def design(design: Design, arms: ArmSet, title: str = "") -> Chart:
    """The weights of a design, the largest on top."""
    from steadyarm.plot import standings

    return altair_chart(standings.design(design, arms.names, title))


def results(found: Sequence[Results], title: str = "") -> Chart:
    """Error rate of each policy with exact intervals, from `sa.simulate`."""
    from steadyarm.plot import standings

    return altair_chart(standings.results(found, title))


def error_against_budget(
    found: Comparison, title: str = "", width: int = 0, height: int = 0
) -> Chart:
    """Probability of error against the budget in each world, from `sa.compare`."""
    from steadyarm.plot import sweeps

    return altair_chart(sweeps.error_against_budget(found, title, width, height))


def _of_test(name: str, test: Test) -> Chart:
    from steadyarm.plot.sources import chart_for

    return altair_chart(chart_for(name, test))


def altair_chart(spec: Spec) -> Chart:
    """Convert a specification to an Altair chart."""
    try:
        import altair
    except ImportError as error:
        raise MissingExtraError(missing(error)) from None
    return altair.Chart.from_dict({k: v for k, v in spec.items() if k != "$schema"})


def save(spec: Spec, path: Path) -> Path:
    """Write a chart to a file; the suffix selects png, svg, pdf, html or json.

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
    """Refuse a path that no chart can be written to, before any work is done."""
    if path.suffix.lower() not in ENDINGS or path.is_dir():
        raise InvalidInputError(
            f"the picture is {path}; use a file name that ends in {', '.join(ENDINGS)}."
        )
    altair_chart(
        {"mark": "point", "data": {"values": []}}
    )  # raises an error if the extra is missing
