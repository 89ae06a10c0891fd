"""The contents of an experiment's page, from its scorecard: tables, forecasts, texts and charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.dashboard.responses import amount
from steadyarm.errors import InvalidInputError
from steadyarm.live.after_test import outside_texts
from steadyarm.live.effects import bundles_in
from steadyarm.live.estimates import MetricRow, lift_text, metric_rows
from steadyarm.live.headline import rewards_in_words
from steadyarm.live.scorecard import Scorecard, Standing, order_of, standing_of
from steadyarm.live.stopping import next_look
from steadyarm.live.verdict import VariantEstimate, adjusted_text
from steadyarm.plot.sources import chart_for, has_rates
from steadyarm.plot.spec import Spec
from steadyarm.plot.standings import intervals_mean
from steadyarm.storages.records import to_datetime
from steadyarm.wording import factors_in, listed

MOST_NAMED = 6  # variants, or levels of a factor
MOST_ROWS = 30  # of a leaderboard before the rest is left out
MAIN = ("estimates", "allocation", "drift")  # charts that are not folded away
TITLES = {  # of the charts, in the order of the page
    "estimates": "Estimates over time",
    "allocation": "Traffic shares",
    "drift": "Drift of the lead",
    "lifts": "Against the control",
    "effects": "Effects of the parts",
    "interactions": "Levels that depend on each other",
    "waiting": "Rewards by day",
    "leaderboard": "Leaderboard",  # the page has it as a table
}

# Variants and what is to come


@dataclass(frozen=True)
class Rank:
    """One variant of the leaderboard; positions of its bar go from 0 to 100.

    Attributes
    ----------
    result : what the verdict says of it; None without a verdict
    lift, lift_interval : difference from the control, such as "+8 %" and "3 to 13 %"; of the
        control itself "control"; empty if there is none
    analysed : visits of this variant that the verdict rests on
    total : the sum of their rewards, such as "131" conversions or "5,200.50 €"
    share : the share of the visits that are assigned now; of all visits if the test has ended
    left, middle, right : positions of interval and estimate; None if they are unknown
    """

    name: str
    label: str
    result: VariantEstimate | None
    lift: str
    lift_interval: str
    analysed: int
    total: str
    share: float
    assigned: int
    standing: Standing
    left: float | None
    middle: float | None
    right: float | None


def leaderboard(card: Scorecard, most: int | None = MOST_ROWS) -> list[Rank]:
    """Variants from the best to the worst; before the first reward in their own order."""
    verdict, K = card.verdict, len(card.names)
    values = np.full((K, 3), np.nan)  # lower limit, estimate, upper limit
    if verdict is not None:
        values = np.column_stack(
            [verdict.intervals[:, 0], verdict.estimates, verdict.intervals[:, 1]]
        )
        values[~np.isfinite(values).all(axis=1), ::2] = np.nan
    shares = np.full(K, np.nan) if card.planned is None else card.planned
    if card.ended:
        shares = np.asarray(card.assigned) / max(card.status.total_assigned, 1)
    position, unit = _scale(values), card.settings.primary.difference_unit
    visits, sums = analysed_sums(card)
    total = "{:,.0f}".format if has_rates(card) else card.settings.format_value
    ranks = []
    for k in order_of(card)[:most]:
        lift, _, interval = ("" if verdict is None else lift_text(verdict, k, unit)).partition(" (")
        left, middle, right = map(position, values[k])
        ranks.append(
            Rank(
                name=card.names[k],
                label=card.labels[k],
                result=None if verdict is None else verdict.of(verdict.names[k]),
                lift=lift,
                lift_interval=interval.removesuffix(")"),
                analysed=int(visits[k]),
                total=total(float(sums[k])),
                share=float(shares[k]),
                assigned=card.assigned[k],
                standing=standing_of(card, k),
                left=left,
                middle=middle,
                right=right,
            )
        )
    return ranks


def analysed_sums(card: Scorecard) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Visits of each variant shown that the verdict rests on, and the sums of their rewards."""
    visits, sums = np.zeros((2, len(card.names)))
    if card.moment is None:
        return visits, sums
    results = card.moment.results
    looks = results.looks if card.settings.stop is not None else []
    for piece in results.mature[: looks[-1].pieces] if looks else results.mature:
        arms = np.array([piece.segment.arm_at(j) for j in range(piece.segment.columns)])
        rows, here = arms, np.ones(len(arms), dtype=bool)
        if card.shown is not None:
            rows = np.minimum(np.searchsorted(card.shown, arms), len(card.shown) - 1)
            here = card.shown[rows] == arms
        visits[rows[here]] += piece.assigned[here]
        sums[rows[here]] += results.sign * piece.stats.sums[0, here]
    return visits, sums


@dataclass(frozen=True)
class Forecast:
    """When a test will be decided and when it ends, at the present pace; None where not known.

    Attributes
    ----------
    analysis : when the next interim analysis is made, after the last rewards it waits for
    visits : that it rests on, about
    decision : when the visits have come that are needed for a decision
    more : how many visits these are, about
    within : whether the budget has so many left
    end : when the budget is spent
    """

    analysis: datetime | None = None
    visits: int | None = None
    decision: datetime | None = None
    more: int | None = None
    within: bool = True
    end: datetime | None = None


def forecast_of(card: Scorecard) -> Forecast:
    """Forecasts of a test, as far as they are possible now."""
    if card.ended or card.moment is None:
        return Forecast()
    left, settings = card.status.budget - card.status.total_assigned, card.settings
    results, patience = card.moment.results, timedelta(microseconds=settings.patience or 0)

    def time_of(visits: int) -> datetime | None:
        """When so many more visits have come and their rewards are in."""
        if card.expected_end is None:
            return None
        with suppress(OverflowError):
            return card.seen + (card.expected_end - card.seen) * (visits / left) + patience
        return None

    analysis, visits = None, None
    if settings.stop is not None:
        following = next_look(settings, results.looks, results.mature)
        if following is not None:
            visits, until = following
            analysis = time_of(max(visits - card.status.total_assigned, 0))
            if until is not None:
                analysis = to_datetime(until) + patience
    more = card.decision.more
    within = more is None or more <= left
    return Forecast(
        analysis=analysis,
        visits=visits,
        decision=time_of(more) if more is not None and within else None,
        more=more,
        within=within,
        end=card.expected_end,
    )


def _scale(values: NDArray[np.float64]) -> Callable[[float], float | None]:
    """From rewards to positions, such that all known values fit; None for unknown ones."""
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    room = (high - low) or 1.0

    def position(value: float) -> float | None:
        return round(2 + 96 * float((value - low) / room), 2) if np.isfinite(value) else None

    return position


def describe_variants(card: Scorecard) -> str:
    """The variants and their rewards in a few sentences."""
    arms, K = card.settings.arms, card.size
    factors, bundles = factors_in(arms), bundles_in(arms)
    if bundles is not None:
        items = f"{len(bundles.items)} items: {listed(bundles.items, MOST_NAMED)}"
        variants = f"{K:,} bundles of {bundles.size} of {items}."
    elif factors is not None:
        parts = (f"{name} ({listed(levels, MOST_NAMED)})" for name, levels in factors.items())
        variants = f"{K:,} combinations, named in this order: {', '.join(parts)}."
    else:
        variants = f"{K:,} variants."
    return " ".join((variants, *rewards_in_words(card.settings)))


# The page as a whole


def experiment_values(card: Scorecard, everything: bool) -> dict[str, Any]:
    """The values of an experiment's page that all viewers may see."""
    rows, verdict = leaderboard(card, None if everything else MOST_ROWS), card.verdict
    metrics = [] if verdict is None else metric_rows(verdict)
    charts = charts_of(card)
    return {
        "card": card,
        "rows": rows,
        "guardrails": _by_metric(metrics, "guardrail"),
        "metrics": _by_metric(metrics, "secondary"),
        "more": len(card.names) - len(rows),
        "everything": everything,
        "rates": has_rates(card),
        "forecast": forecast_of(card),
        "value": partial(value_text, card),
        "meaning": "" if verdict is None else intervals_mean(verdict),
        "adjusted": "" if verdict is None else adjusted_text(verdict, card.settings.covariates),
        "tested": describe_variants(card),
        "charts": {name: charts[name] for name in MAIN if name in charts},
        "further": {name: chart for name, chart in charts.items() if name not in MAIN},
        "titles": TITLES,
        "rolled": outside_texts(card.status.outside),
    }


def value_text(card: Scorecard, value: float) -> str:
    """A mean reward of a test, in per cent or with its unit; a dash if it is not known."""
    if has_rates(card) or not isfinite(value):
        return amount(value, rates=True)
    return card.settings.format_value(value)


def _by_metric(rows: Sequence[MetricRow], role: str) -> dict[str, list[MetricRow]]:
    """The rows of the metrics that have a role, by metric."""
    found: dict[str, list[MetricRow]] = {}
    for row in rows:
        if row.role == role:
            found.setdefault(row.metric, []).append(row)
    return found


# Charts


@lru_cache(maxsize=200)
def chart_of(card: Scorecard, name: str) -> Spec | None:
    """A chart of a scorecard; None if there is nothing to show."""
    try:
        return chart_for(name, card)
    except InvalidInputError:
        return None


def charts_of(card: Scorecard) -> dict[str, Spec]:
    """The charts of a test's page that have something to show, by name."""
    charts = {name: chart_of(card, name) for name in TITLES if name != "leaderboard"}
    return {name: chart for name, chart in charts.items() if chart is not None}
