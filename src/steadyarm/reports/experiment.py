"""The report on a live test: its scorecard as text, tables and charts, and how to verify it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.live.after_test import outside_texts
from steadyarm.live.estimates import lift_text, metric_cells, metric_obstacles
from steadyarm.live.experiment import Experiment
from steadyarm.live.export import csv_chunks
from steadyarm.live.headline import rewards_in_words
from steadyarm.live.lifecycle import description_of
from steadyarm.live.replay import Replay
from steadyarm.live.scorecard import (
    Scorecard,
    Standing,
    compute_scorecard,
    order_of,
    standing_of,
)
from steadyarm.live.verdict import Verdict, adjusted_text
from steadyarm.plot.sources import CHARTS, chart_for
from steadyarm.plot.spec import Spec
from steadyarm.reports.offline import periods_of
from steadyarm.reports.render import ROWS, render
from steadyarm.storages.records import to_datetime
from steadyarm.wording import (
    factors_in,
    number,
    p_value,
    percent,
    reach,
    toml_of,
    when,
)

LONGEST = 16_000  # characters of a description that is printed
STANDINGS: dict[Standing, str] = {
    "best": "best",
    "leads": "leads",
    "ahead": "best estimate",
    "open": "can still win",
    "maybe": "may be as good",
    "out": "ruled out",
    "dropped": "dropped",
    "unknown": "no verdict",
}
NAMES = ("name", "names", "variants", "best", "leaders", "plausible", "control", "against")


@dataclass(frozen=True)
class Fingerprint:
    """SHA-256 of an exported log, and how many rows it has."""

    sha256: str
    rows: int


def experiment_report(
    experiment: Experiment,
    card: Scorecard | None = None,
    replay: bool = True,
    fingerprint: bool = True,
) -> str:
    """The report on an experiment as it stands, as a page.

    Parameters
    ----------
    experiment : a live test
    card : the scorecard, if there is one already
    replay : whether the whole test is computed anew and compared; reads the whole log
    fingerprint : whether the log's fingerprint is taken; reads the whole log, too

    Returns
    -------
    str : HTML, for `write_report`

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 100, "memory", seed=1, missing="drop"
    ... )
    >>> for visitor in range(100):
    ...     shown = test.ask(f"visitor {visitor}")
    ...     test.tell(shown, 1.0 if shown.name == "B" else 0.0)
    >>> "<h1>Test report: shop</h1>" in experiment_report(test)
    True
    """
    seen = compute_scorecard(experiment) if card is None else card
    digest = fingerprint_of(csv_chunks(experiment)) if fingerprint else None
    return page_of(seen, digest, experiment.replay() if replay else None)


def page_of(
    card: Scorecard, fingerprint: Fingerprint | None = None, replayed: Replay | None = None
) -> str:
    """The report on a scorecard."""
    charts, people = _charts(card), _shorten(card.people, card)
    verdict, drift = _shorten(card.verdict, card), _shorten(card.drift, card)
    order, settings = order_of(card), card.settings
    factors = factors_in(settings.arms)
    description = toml_of({"name": card.name, **description_of(settings)}).strip()
    names = card.labels
    return render(
        "experiment.html",
        title=f"Test report: {card.name}",
        card=card,
        verdict=verdict,
        drift=drift,
        fingerprint=fingerprint,
        replayed=replayed,
        outside=outside_texts(card.status.outside),
        facts=_facts(card),
        factors=list(factors or ()) if names != card.names else [],
        counts=[(n, f"{card.assigned[k]:,}", f"{card.rewarded[k]:,}") for k, n in enumerate(names)],
        standings=_standings(card, verdict, order),
        charts=charts,
        people=people,
        adjusted="" if verdict is None else adjusted_text(verdict, settings.covariates),
        looks=_looks(card),
        metrics=[] if verdict is None or not verdict.metrics else metric_cells(verdict),
        obstacles=[] if verdict is None else metric_obstacles(verdict),
        effects=_effects(card),
        pairs=[
            (f"{pair.first} and {pair.second}", number(pair.strength), p_value(pair.p_value))
            for pair in (card.effects.pairs if card.effects is not None else ())
        ],
        periods=None if drift is None else periods_of(drift, [names[k] for k in order], "visits"),
        corrections=[
            (
                when(to_datetime(entry.created)),
                entry.action.replace(".", " "),
                f"{entry.detail.get('assignments', 0):,}",
                str(entry.detail.get("reason", "")),
            )
            for entry in card.corrections
        ],
        rewards=rewards_in_words(settings),
        description=description if len(description) <= LONGEST else "",
    )


def _shorten(part: Any, card: Scorecard) -> Any:
    """The part with short names of variants in all fields that have names."""
    if card.settings.arms.large or card.labels == card.names:
        return part
    short = dict(zip(card.names, card.labels, strict=True))

    def changed(value: Any, named: bool) -> Any:
        if isinstance(value, tuple):
            return tuple(changed(entry, named) for entry in value)
        if is_dataclass(value) and not isinstance(value, type):
            new = {f.name: changed(getattr(value, f.name), f.name in NAMES) for f in fields(value)}
            return replace(value, **new)
        return short.get(value, value) if named and isinstance(value, str) else value

    return changed(part, False)


def fingerprint_of(chunks: Iterable[bytes]) -> Fingerprint:
    r"""The fingerprint of a log, from its CSV file, a part at a time.

    Examples
    --------
    >>> fingerprint_of([b"unit,arm\r\n", b"v1,A\r\nv2,B\r\n"]).rows
    2
    """
    digest, ends = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        ends += chunk.count(b"\r\n")
    return Fingerprint(digest.hexdigest(), ends - 1)


def _charts(card: Scorecard) -> dict[str, Spec]:
    """The charts that there is something to draw in."""
    charts = {}
    for name in CHARTS:
        try:
            charts[name] = chart_for(name, card)
        except InvalidInputError:
            continue
    return charts


def _facts(card: Scorecard) -> list[tuple[str, str]]:
    assigned, budget = card.status.total_assigned, card.status.budget
    spent = assigned >= budget and card.status.state == "running"
    facts = [
        ("State", "finished: all visits are assigned" if spent else card.status.state),
        ("Visits", f"{assigned:,} of {budget:,} ({percent(assigned / budget)})"),
        ("Variants", f"{card.size:,}"),
        ("Created", when(card.status.created)),
    ]
    if card.started is not None and card.last is not None:
        facts += [("First visit", when(card.started)), ("Last visit", when(card.last))]
    if card.expected_end is not None and not card.ended:
        facts.append(("Expected end", when(card.expected_end)))
    about = [
        (key.capitalize(), ", ".join(value) if key == "tags" else value)
        for key, value in card.settings.about.items()
    ]
    return [*facts, ("Policy", card.settings.policy.name), *about]


def _standings(card: Scorecard, verdict: Verdict | None, order: list[int]) -> dict[str, Any] | None:
    """The table of the variants from the best to the worst."""
    names, settings = card.labels, card.settings
    if verdict is None:
        return None
    total, raw = max(card.status.total_assigned, 1), verdict.raw
    against, unit = verdict.control is not None, settings.primary.difference_unit
    rows = [
        (
            names[k],
            settings.format_value(verdict.estimates[k]),
            *([] if raw is None else [settings.format_value(raw[k])]),
            reach(
                float(verdict.intervals[k, 0]),
                float(verdict.intervals[k, 1]),
                shown=settings.format_value,
                unknown=verdict.no_interval,
            ),
            *([lift_text(verdict, k, unit)] if against else []),
            f"{card.assigned[k]:,} ({percent(card.assigned[k] / total)})",
            STANDINGS[standing_of(card, k)],
        )
        for k in order
    ]
    header = [
        "variant",
        "estimate",
        *([] if raw is None else ["unadjusted"]),
        f"{percent(verdict.level)} interval",
        *([f"against {verdict.control}"] if against else []),
        "visits",
        "standing",
    ]
    note = ""
    if rest := [standing_of(card, k) for k in order[ROWS:]]:
        still: Standing = "maybe" if card.ended else "open"
        note = f"Of the others {rest.count(still) + verdict.others:,} {STANDINGS[still]}."
    return {"header": header, "align": f"l{'r' * (len(header) - 2)}l", "rows": rows, "note": note}


def _looks(card: Scorecard) -> list[tuple[str, ...]]:
    report = None if card.verdict is None else card.verdict.stopping
    if report is None:
        return []
    return [
        (
            f"{look.number}" if report.planned is None else f"{look.number} of {report.planned}",
            "" if look.when is None else when(look.when),
            f"{look.visits:,}",
            percent(look.share),
            f"{look.reached:.2f}",
            "too early" if look.boundary is None else f"{look.boundary:.2f}",
        )
        for look in report.looks
    ]


def _effects(card: Scorecard) -> list[tuple[str, ...]]:
    return [
        (e.factor, e.level, number(e.mean), number(e.difference), reach(e.low, e.high))
        for e in (card.effects.main if card.effects is not None else ())
    ]
