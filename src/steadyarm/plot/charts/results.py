"""How often each policy was wrong in the same simulated world."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadyarm.errors import InvalidInputError
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.simulation import Results
from steadyarm.wording import counted, percent

__all__ = ["results"]


def results(found: Sequence[Results], title: str = "") -> Chart:
    """Error probability of each policy with its exact 95 % interval, in the order given.

    Examples
    --------
    >>> import steadyarm as sa
    >>> world = sa.Environment.from_parameters(
    ...     sa.ArmSet.one_hot(["A", "B", "C"]), [0.3, 0.2, 0.0], budget=300
    ... )
    >>> chart = results([sa.simulate(policy, world) for policy in (sa.Steady(), sa.Uniform())])
    >>> chart.table.header[:3]
    ('policy', 'wrong', 'simulated tests')
    """
    if not found or not all(isinstance(one, Results) for one in found):
        raise InvalidInputError(
            f"results is {found!r}; give a list of what sa.simulate() returned, at least one."
        )
    ends = np.array([one.interval() for one in found])
    names = tuple(f"{one.policy}: {percent(one.error_rate)}" for one in found)
    rates = np.array([one.error_rate for one in found])
    most = float(ends.max())
    series = Series("wrong verdicts", names, rates, ends[:, 0], ends[:, 1], kind="points")
    trials = sorted({one.trials for one in found})
    often = f"{trials[0]:,}" if len(trials) == 1 else f"{trials[0]:,} to {trials[-1]:,}"
    return Chart(
        "results",
        title or "How often each policy was wrong",
        _summary(found),
        (
            Panel(
                Axis("", "label"),
                Axis("wrong verdicts", percent=True),
                (series,),
                sideways=True,
                y_range=(-0.02 * most, 1.04 * most),
            ),
        ),
        _table(found, ends),
        f"{often} simulated tests of each policy. Lines: exact 95 % intervals.",
    )


def _summary(found: Sequence[Results]) -> str:
    best, worst = (pick(found, key=lambda one: one.error_rate) for pick in (min, max))
    return (
        f"Of {counted(len(found), 'policy', 'policies')} {best.policy} was wrong least often "
        f"({percent(best.error_rate)} of {best.trials:,} tests), {worst.policy} most often "
        f"({percent(worst.error_rate)} of {worst.trials:,})."
    )


def _table(
    found: Sequence[Results], ends: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> Table:
    rows = tuple(
        (one.policy, one.errors, one.trials, one.error_rate, float(low), float(high))
        for one, (low, high) in zip(found, ends, strict=True)
    )
    return Table(("policy", "wrong", "simulated tests", "share wrong", "low", "high"), rows)
