"""What pages show of experiments: which charts, the overview's rows, the leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.live.effects import bundles_in
from steadyarm.live.scorecard import Light, Scorecard, Standing, order_of, standing_of
from steadyarm.live.settings import variants_in
from steadyarm.live.tables import lift_text
from steadyarm.plot.sources import chart_for
from steadyarm.plot.spec import Spec
from steadyarm.reports.experiment import rewards_in_words
from steadyarm.storages.records import Summary
from steadyarm.wording import factors_in, listed

MOST_NAMED = 6  # variants, or levels of a factor
MOST_ROWS = 30  # of a leaderboard before the rest is left out


@dataclass(frozen=True)
class Section:
    """One chart of an experiment's page.

    Attributes
    ----------
    name : the last part of its address
    title : over the chart; the chart's own title says what it shows now
    explanation : how to read it
    wide : whether it takes the whole width of the page
    of : tests of factors or of items; None for all tests
    """

    name: str
    title: str
    explanation: str
    wide: bool = False
    of: Literal["factors", "items"] | None = None

    def chart(self, card: Scorecard) -> Spec | None:
        """The chart of a test; None if there is nothing to show."""
        effects = card.effects
        if self.of is not None and (effects is None or effects.kind != self.of):
            return None
        if self.name == "interactions" and (effects is None or not effects.pairs):
            return None
        try:
            return chart_for("effects" if self.name == "items" else self.name, card)
        except InvalidInputError:
            return None


SECTIONS: dict[str, Section] = {
    section.name: section
    for section in (
        Section(
            "lifts",
            "Against the control",
            "By how much each variant is better or worse than what people see today.",
            wide=True,
        ),
        Section(
            "estimates",
            "Estimates so far",
            "What each variant brings per visit, from all visits up to that time.",
        ),
        Section(
            "daily",
            "Day by day",
            "The same from each period's visits alone: noisier, but it shows what moved.",
        ),
        Section(
            "allocation",
            "Who gets the traffic",
            "Shares of the visits. A mark shows where the policy changed the shares.",
        ),
        Section(
            "plausible",
            "Who may be the best",
            "Variants that are not ruled out. A test ends well when one is left.",
        ),
        Section(
            "effects",
            "What each level does",
            "Difference from the average of its factor, averaged over all other factors.",
            wide=True,
            of="factors",
        ),
        Section(
            "items",
            "What each item brings",
            "Mean reward of all bundles with the item, minus that of all bundles without it.",
            wide=True,
            of="items",
        ),
        Section(
            "interactions",
            "Levels that depend on each other",
            "Lines that are not parallel: the better level of one factor depends on the other.",
            wide=True,
        ),
        Section(
            "drift",
            "Drift",
            "By how much the leader was ahead of the others in each period.",
            wide=True,
        ),
        Section(
            "waiting",
            "Rewards that came",
            "Visits by day, and how many of them have a reward.",
            wide=True,
        ),
    )
}
CHARTS = SECTIONS | {
    "leaderboard": Section("leaderboard", "Leaderboard", "Estimates and intervals of all variants.")
}


def sections_of(card: Scorecard) -> list[tuple[Section, Spec]]:
    """The charts that a test has, in the order of the page."""
    found = ((section, section.chart(card)) for section in SECTIONS.values())
    return [(section, chart) for section, chart in found if chart is not None]


@dataclass(frozen=True)
class Row:
    """One experiment of the overview.

    Attributes
    ----------
    card : its scorecard; None if none was made so far
    failed : whether making one failed
    """

    summary: Summary
    card: Scorecard | None
    failed: bool

    @property
    def policy(self) -> str:
        """The name of its policy."""
        config: Any = self.summary.config
        return str(config["policy"]["name"])

    @property
    def arms(self) -> int:
        """How many variants it has."""
        return variants_in(self.summary.config)

    @property
    def budget(self) -> int:
        """How many visits it may have."""
        config: Any = self.summary.config
        return int(config["budget"])

    @property
    def over(self) -> bool:
        """Whether nothing more will be assigned."""
        stopped = self.summary.state in ("stopped", "archived")
        spent = self.summary.assigned >= self.budget
        return stopped or spent or (self.card is not None and self.card.ended)

    @property
    def leader(self) -> str | None:
        """The recommended variant; None if none is known yet."""
        if self.card is None or self.card.verdict is None:
            return None
        return self.card.labels[self.card.verdict.row]

    @property
    def rivals(self) -> int:
        """How many variants beside the leader are not ruled out."""
        verdict = None if self.card is None else self.card.verdict
        if verdict is None:
            return 0
        return len(set(verdict.plausible) - {verdict.name}) + verdict.others

    @property
    def light(self) -> Light:
        """Its health."""
        return "none" if self.card is None else self.card.light


def overview_rows(found: Iterable[tuple[Summary, Scorecard | None, bool]]) -> list[Row]:
    """The rows of the overview: running experiments first, then the newest."""
    order = {"running": 0, "paused": 1, "draft": 2, "stopped": 3, "archived": 4}

    def place(row: Row) -> tuple[bool, int, int]:
        return row.over, order[row.summary.state], -row.summary.created

    return sorted((Row(*one) for one in found), key=place)


def what_is_tested(card: Scorecard) -> str:
    """The variants and their rewards in a few sentences."""
    arms, K = card.settings.arms, card.size
    factors, bundles = factors_in(arms), bundles_in(arms)
    if bundles is not None:
        items = f"{len(bundles.items)} items: {listed(bundles.items, MOST_NAMED)}"
        variants = f"{K:,} bundles of {bundles.size} of {items}."
    elif factors is not None:
        parts = (f"{name} ({listed(levels, MOST_NAMED)})" for name, levels in factors.items())
        variants = f"{K:,} combinations, named in this order: {', '.join(parts)}."
    elif arms.large:
        variants = f"{K:,} variants: {', '.join(arms.names[:MOST_NAMED])} and others."
    else:
        variants = f"{K:,} variants: {listed(card.names, MOST_NAMED)}."
    return " ".join((variants, *rewards_in_words(card.settings)))


@dataclass(frozen=True)
class Rank:
    """One variant of the leaderboard; positions of its bar go from 0 to 100.

    Attributes
    ----------
    lift, lift_interval : difference from the control, such as "+8 %" and "3 to 13 %"; of the
        control itself "control"; empty if there is none
    share : of the visits that are assigned now; of all visits if the test has ended
    left, middle, right : positions of interval and estimate; None if they are unknown
    raw : the estimate without covariates; None if the test has none
    """

    name: str
    label: str
    estimate: float
    low: float
    high: float
    lift: str
    lift_interval: str
    share: float
    assigned: int
    standing: Standing
    left: float | None
    middle: float | None
    right: float | None
    raw: float | None = None


def leaderboard(card: Scorecard, most: int | None = MOST_ROWS) -> list[Rank]:
    """Variants from the best to the worst; before the first reward in their own order."""
    verdict, K = card.verdict, len(card.names)
    estimates = np.full(K, np.nan) if verdict is None else verdict.estimates
    limits = np.full((K, 2), np.nan) if verdict is None else verdict.intervals.copy()
    limits[~(np.isfinite(limits).all(axis=1) & np.isfinite(estimates))] = np.nan
    shares = np.full(K, np.nan) if card.planned is None else card.planned
    if card.ended:
        shares = np.asarray(card.assigned) / max(card.status.total_assigned, 1)
    position = _scale(np.column_stack([estimates, limits]))
    unit = card.settings.primary.difference_unit
    lifts = ["" if verdict is None else lift_text(verdict, k, unit) for k in range(K)]
    return [
        Rank(
            name=card.names[k],
            label=card.labels[k],
            estimate=float(estimates[k]),
            low=float(limits[k, 0]),
            high=float(limits[k, 1]),
            lift=lifts[k].partition(" (")[0],
            lift_interval=lifts[k].partition(" (")[2].removesuffix(")"),
            share=float(shares[k]),
            assigned=card.assigned[k],
            standing=standing_of(card, k),
            left=position(limits[k, 0]),
            middle=position(estimates[k]),
            right=position(limits[k, 1]),
            raw=None if verdict is None or verdict.raw is None else float(verdict.raw[k]),
        )
        for k in order_of(card)[:most]
    ]


def _scale(values: NDArray[np.float64]) -> Callable[[float], float | None]:
    """From rewards to positions, such that all known values fit; None for unknown ones."""
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    room = (high - low) or 1.0

    def position(value: float) -> float | None:
        return round(2 + 96 * float((value - low) / room), 2) if np.isfinite(value) else None

    return position
