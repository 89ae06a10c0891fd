"""What pages show of experiments: looks and summaries as rows, texts and positions of bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.answers import moment
from steadyarm.arms.bundles import bundles_in
from steadyarm.factors import factors_in
from steadyarm.looks import Light, Look
from steadyarm.looks.ranking import Standing, order_of, standing_of
from steadyarm.reports.method import rewards_in_words
from steadyarm.settings import variants_in
from steadyarm.storages.records import Summary
from steadyarm.verdict import Verdict
from steadyarm.wording import listed

__all__ = [
    "MOST_ROWS",
    "Card",
    "Rank",
    "cards",
    "leaderboard",
    "rewards_are_shares",
    "what_is_tested",
]

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


def cards(found: Iterable[tuple[Summary, Look | None, bool]]) -> list[Card]:
    """The overview, from summaries, looks, and whether looking failed: what runs comes first."""
    rows = [_card(*one) for one in found]
    order = {"running": 0, "paused": 1, "draft": 2, "stopped": 3, "archived": 4}
    rows.sort(key=lambda card: (card.over, order[card.state], -card.created.timestamp()))
    return rows


def _card(summary: Summary, look: Look | None, failed: bool) -> Card:
    config: Any = summary.config
    verdict = None if look is None else look.verdict
    return Card(
        name=summary.name,
        state=summary.state,
        policy=config["policy"]["name"],
        arms=variants_in(config),
        assigned=summary.assigned,
        budget=config["budget"],
        used=min(summary.assigned / config["budget"], 1.0),
        leader=None if look is None or verdict is None else look.labels[verdict.row],
        rivals=0 if verdict is None else _rivals(verdict),
        light="none" if look is None else look.light,
        headline="" if look is None else look.headline,
        settled=look is not None,
        failed=failed,
        created=moment(summary.created),
        started=None if summary.started is None else moment(summary.started),
        expected_end=None if look is None else look.expected_end,
        last=None if summary.last is None else moment(summary.last),
    )


def _rivals(verdict: Verdict) -> int:
    return len(set(verdict.plausible) - {verdict.name}) + verdict.others


def what_is_tested(look: Look) -> str:
    """The variants and their rewards in a few sentences."""
    arms, K = look.settings.arms, look.size
    factors, bundles = factors_in(arms), bundles_in(arms)
    if bundles is not None:
        n = len(bundles.items)
        variants = (
            f"{K:,} bundles of {bundles.size} of {n} items: {listed(bundles.items, MOST_NAMED)}."
        )
    elif factors is None and arms.large:
        variants = f"{K:,} variants: {', '.join(arms.names[:MOST_NAMED])} and others."
    elif factors is None:
        variants = f"{K:,} variants: {listed(look.names, MOST_NAMED)}."
    else:
        parts = (f"{name} ({listed(levels, MOST_NAMED)})" for name, levels in factors.items())
        variants = f"{K:,} combinations, named in this order: {', '.join(parts)}."
    return " ".join((variants, *rewards_in_words(look.settings)))


def rewards_are_shares(look: Look) -> bool:
    """Whether rewards lie between 0 and 1, so that per cent are easier to read."""
    return look.settings.reward_range == (0.0, 1.0)


def leaderboard(look: Look, most: int | None = MOST_ROWS) -> list[Rank]:
    """Variants from the best to the worst; before the first reward in their own order."""
    verdict, names, labels = look.verdict, look.names, look.labels
    K, assigned, rewarded = len(names), look.assigned, look.rewarded
    nothing = np.full(K, np.nan)
    estimates = nothing if verdict is None else verdict.estimates
    limits = np.full((K, 2), np.nan) if verdict is None else verdict.intervals
    known = np.isfinite(limits).all(axis=1) & np.isfinite(estimates)
    place = _scale(estimates, limits, known)
    total = max(look.status.handed, 1)
    now = nothing if look.planned is None else look.planned
    if look.ended:
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
            standing=standing_of(look, k),
            left=place(limits[k, 0]) if known[k] else None,
            middle=place(estimates[k]) if np.isfinite(estimates[k]) else None,
            right=place(limits[k, 1]) if known[k] else None,
        )
        for i, k in enumerate(order_of(look)[:most], 1)
    ]


def _scale(estimates: Floats, limits: Floats, known: Booleans) -> Callable[[float], float]:
    """From rewards to positions, such that all that is known fits."""
    values = np.concatenate([estimates[np.isfinite(estimates)], limits[known].ravel()])
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    room = (high - low) or 1.0
    return lambda value: round(2 + 96 * float((value - low) / room), 2)
