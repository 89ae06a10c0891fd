"""The charts of an experiment's page: which there are, what they say, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from steadyarm.looks import Look
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart

__all__ = ["CHARTS", "SECTIONS", "Section", "sections_of"]


@dataclass(frozen=True)
class Section:
    """One chart of the page.

    Attributes
    ----------
    name : the last part of its address
    title : over the chart; the chart's own title says what is to be seen now
    explanation : how to read it
    chart : None where there is nothing to show
    wide : whether it takes the whole width of the page
    """

    name: str
    title: str
    explanation: str
    chart: Callable[[Look], Chart | None]
    wide: bool = False


def _estimates(look: Look) -> Chart | None:
    return None if look.course is None else charts.estimates(look.course)


def _daily(look: Look) -> Chart | None:
    if look.drift is None:
        return None
    return charts.daily(look.drift, _picked(look, look.drift.names))


def _allocation(look: Look) -> Chart | None:
    if look.shares is None:
        return None
    return charts.allocation(look.shares, _picked(look, look.shares.names))


def _picked(look: Look, names: Sequence[str]) -> list[int] | None:
    """Those that the chart of estimates picks."""
    if look.course is None:
        return None
    return charts.matched(charts.likely(look.course), look.course.names, names)


def _plausible(look: Look) -> Chart | None:
    return None if look.course is None else charts.plausible(look.course)


def _effects(look: Look) -> Chart | None:
    return _parts(look, "factors")


def _items(look: Look) -> Chart | None:
    return _parts(look, "items")


def _parts(look: Look, kind: Literal["factors", "items"]) -> Chart | None:
    if look.effects is None or look.effects.kind != kind:
        return None
    return charts.effects(look.effects)


def _interactions(look: Look) -> Chart | None:
    if look.effects is None or not look.effects.pairs:
        return None
    return charts.interactions(look.effects)


def _drift(look: Look) -> Chart | None:
    return None if look.drift is None else charts.drift(look.drift)


def _waiting(look: Look) -> Chart | None:
    return None if look.waiting is None else charts.waiting(look.waiting)


def _leaderboard(look: Look) -> Chart | None:
    if look.verdict is None:
        return None
    return charts.leaderboard(look.verdict, look.names, look.settings.direction)


SECTIONS: dict[str, Section] = {
    section.name: section
    for section in (
        Section(
            "estimates",
            "Estimates so far",
            "What each variant brings per visit, from all visits up to that moment. The band holds "
            "at every moment at once.",
            _estimates,
        ),
        Section(
            "daily",
            "Day by day",
            "The same from each period's visits alone: noisier, but it shows what moved.",
            _daily,
        ),
        Section(
            "allocation",
            "Who gets the traffic",
            "Shares of the visits. A mark stands where the policy changed its mind.",
            _allocation,
        ),
        Section(
            "plausible",
            "Who can still win",
            "Variants that are not ruled out as the best. A test ends well when one is left.",
            _plausible,
        ),
        Section(
            "effects",
            "What each choice does",
            "Difference from the average of its slot, over all other choices alike.",
            _effects,
            wide=True,
        ),
        Section(
            "items",
            "What each item brings",
            "Mean reward of all bundles with the item, minus that of all bundles without it.",
            _items,
            wide=True,
        ),
        Section(
            "interactions",
            "Choices that depend on each other",
            "Lines that are not parallel: the better choice of one slot depends on the other.",
            _interactions,
            wide=True,
        ),
        Section(
            "drift",
            "Drift",
            "By how much the leader was ahead in each period, and the average of all variants.",
            _drift,
            wide=True,
        ),
        Section(
            "waiting",
            "Rewards and how late they come",
            "Visits and rewards by the day of the visit, and the mean time until the reward.",
            _waiting,
            wide=True,
        ),
    )
}
CHARTS = SECTIONS | {
    "leaderboard": Section(
        "leaderboard", "Leaderboard", "Estimates and intervals of all variants.", _leaderboard
    )
}


def sections_of(look: Look) -> list[tuple[Section, Chart]]:
    """What there is to show, in the order of the page."""
    found = ((section, section.chart(look)) for section in SECTIONS.values())
    return [(section, chart) for section, chart in found if chart is not None]
