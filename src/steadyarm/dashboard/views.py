"""What pages show of experiments: looks and summaries as rows, texts and positions of bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.live.assignments import to_datetime
from steadyarm.live.effects import bundles_in
from steadyarm.live.scorecard import Light, Scorecard, Standing, order_of, standing_of
from steadyarm.live.settings import variants_in
from steadyarm.live.verdict import Verdict
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart
from steadyarm.reports.method import rewards_in_words
from steadyarm.storages.records import Summary
from steadyarm.wording import factors_in, listed

__all__ = [
    "CHARTS",
    "MOST_ROWS",
    "SECTIONS",
    "Card",
    "Rank",
    "Section",
    "cards",
    "leaderboard",
    "rewards_are_shares",
    "sections_of",
    "what_is_tested",
]

# The charts of an experiment's page: which there are, what they say, and how they are drawn.


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
    chart: Callable[[Scorecard], Chart | None]
    wide: bool = False


def _estimates(card: Scorecard) -> Chart | None:
    return None if card.course is None else charts.estimates(card.course)


def _daily(card: Scorecard) -> Chart | None:
    if card.drift is None:
        return None
    return charts.daily(card.drift, _picked(card, card.drift.names))


def _allocation(card: Scorecard) -> Chart | None:
    if card.shares is None:
        return None
    return charts.allocation(card.shares, _picked(card, card.shares.names))


def _picked(card: Scorecard, names: Sequence[str]) -> list[int] | None:
    """Those that the chart of estimates picks."""
    if card.course is None:
        return None
    return charts.matched(charts.likely(card.course), card.course.names, names)


def _plausible(card: Scorecard) -> Chart | None:
    return None if card.course is None else charts.plausible(card.course)


def _effects(card: Scorecard) -> Chart | None:
    return _parts(card, "factors")


def _items(card: Scorecard) -> Chart | None:
    return _parts(card, "items")


def _parts(card: Scorecard, kind: Literal["factors", "items"]) -> Chart | None:
    if card.effects is None or card.effects.kind != kind:
        return None
    return charts.effects(card.effects)


def _interactions(card: Scorecard) -> Chart | None:
    if card.effects is None or not card.effects.pairs:
        return None
    return charts.interactions(card.effects)


def _drift(card: Scorecard) -> Chart | None:
    return None if card.drift is None else charts.drift(card.drift)


def _waiting(card: Scorecard) -> Chart | None:
    return None if card.waiting is None else charts.waiting(card.waiting)


def _leaderboard(card: Scorecard) -> Chart | None:
    if card.verdict is None:
        return None
    return charts.leaderboard(card.verdict, card.names, card.settings.direction)


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


def sections_of(card: Scorecard) -> list[tuple[Section, Chart]]:
    """What there is to show, in the order of the page."""
    found = ((section, section.chart(card)) for section in SECTIONS.values())
    return [(section, chart) for section, chart in found if chart is not None]


Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

MOST_NAMED = 6  # variants, or levels of a factor
MOST_ROWS = 30  # of a leaderboard before the rest is left out


@dataclass(frozen=True)
class Card:
    """One experiment of the overview.

    Attributes
    ----------
    used : share of the budget that was handed out
    leader : None if there is none yet, or nobody has looked so far
    rivals : variants beside the leader that are not ruled out
    settled : whether a look was there, so that what is missing is missing
    failed : whether looking failed
    """

    name: str
    state: str
    policy: str
    arms: int
    assigned: int
    budget: int
    used: float
    leader: str | None
    rivals: int
    light: Light
    headline: str
    settled: bool
    failed: bool
    created: datetime
    started: datetime | None
    expected_end: datetime | None
    last: datetime | None

    @property
    def over(self) -> bool:
        """Whether nothing more will be handed out."""
        return self.assigned >= self.budget or self.state in ("stopped", "archived")


@dataclass(frozen=True)
class Rank:
    """One variant of the leaderboard; positions of its bar go from 0 to 100."""

    place: int
    name: str
    label: str
    estimate: float
    low: float
    high: float
    share: float
    share_now: float
    assigned: int
    rewarded: int
    standing: Standing
    left: float | None
    middle: float | None
    right: float | None


def cards(found: Iterable[tuple[Summary, Scorecard | None, bool]]) -> list[Card]:
    """The overview, from summaries, looks, and whether looking failed: what runs comes first."""
    rows = [_card(*one) for one in found]
    order = {"running": 0, "paused": 1, "draft": 2, "stopped": 3, "archived": 4}
    rows.sort(key=lambda card: (card.over, order[card.state], -card.created.timestamp()))
    return rows


def _card(summary: Summary, card: Scorecard | None, failed: bool) -> Card:
    config: Any = summary.config
    verdict = None if card is None else card.verdict
    return Card(
        name=summary.name,
        state=summary.state,
        policy=config["policy"]["name"],
        arms=variants_in(config),
        assigned=summary.assigned,
        budget=config["budget"],
        used=min(summary.assigned / config["budget"], 1.0),
        leader=None if card is None or verdict is None else card.labels[verdict.row],
        rivals=0 if verdict is None else _rivals(verdict),
        light="none" if card is None else card.light,
        headline="" if card is None else card.headline,
        settled=card is not None,
        failed=failed,
        created=to_datetime(summary.created),
        started=None if summary.started is None else to_datetime(summary.started),
        expected_end=None if card is None else card.expected_end,
        last=None if summary.last is None else to_datetime(summary.last),
    )


def _rivals(verdict: Verdict) -> int:
    return len(set(verdict.plausible) - {verdict.name}) + verdict.others


def what_is_tested(card: Scorecard) -> str:
    """The variants and their rewards in a few sentences."""
    arms, K = card.settings.arms, card.size
    factors, bundles = factors_in(arms), bundles_in(arms)
    if bundles is not None:
        n = len(bundles.items)
        variants = (
            f"{K:,} bundles of {bundles.size} of {n} items: {listed(bundles.items, MOST_NAMED)}."
        )
    elif factors is None and arms.large:
        variants = f"{K:,} variants: {', '.join(arms.names[:MOST_NAMED])} and others."
    elif factors is None:
        variants = f"{K:,} variants: {listed(card.names, MOST_NAMED)}."
    else:
        parts = (f"{name} ({listed(levels, MOST_NAMED)})" for name, levels in factors.items())
        variants = f"{K:,} combinations, named in this order: {', '.join(parts)}."
    return " ".join((variants, *rewards_in_words(card.settings)))


def rewards_are_shares(card: Scorecard) -> bool:
    """Whether rewards lie between 0 and 1, so that per cent are easier to read."""
    return card.settings.reward_range == (0.0, 1.0)


def leaderboard(card: Scorecard, most: int | None = MOST_ROWS) -> list[Rank]:
    """Variants from the best to the worst; before the first reward in their own order."""
    verdict, names, labels = card.verdict, card.names, card.labels
    K, assigned, rewarded = len(names), card.assigned, card.rewarded
    nothing = np.full(K, np.nan)
    estimates = nothing if verdict is None else verdict.estimates
    limits = np.full((K, 2), np.nan) if verdict is None else verdict.intervals
    known = np.isfinite(limits).all(axis=1) & np.isfinite(estimates)
    place = _scale(estimates, limits, known)
    total = max(card.status.total_assigned, 1)
    now = nothing if card.planned is None else card.planned
    if card.ended:
        now = nothing
    return [
        Rank(
            place=i,
            name=names[k],
            label=labels[k],
            estimate=float(estimates[k]),
            low=float(limits[k, 0]) if known[k] else np.nan,
            high=float(limits[k, 1]) if known[k] else np.nan,
            share=assigned[k] / total,
            share_now=float(now[k]),
            assigned=assigned[k],
            rewarded=rewarded[k],
            standing=standing_of(card, k),
            left=place(limits[k, 0]) if known[k] else None,
            middle=place(estimates[k]) if np.isfinite(estimates[k]) else None,
            right=place(limits[k, 1]) if known[k] else None,
        )
        for i, k in enumerate(order_of(card)[:most], 1)
    ]


def _scale(estimates: Floats, limits: Floats, known: Booleans) -> Callable[[float], float]:
    """From rewards to positions, such that all that is known fits."""
    values = np.concatenate([estimates[np.isfinite(estimates)], limits[known].ravel()])
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    room = (high - low) or 1.0
    return lambda value: round(2 + 96 * float((value - low) / room), 2)
