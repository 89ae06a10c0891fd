"""The report on a log, and the sections that reports on live tests share with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from steadyarm import __version__
from steadyarm.analysis import Analysis
from steadyarm.inference import DriftReport, HealthReport
from steadyarm.live.tables import lift_text
from steadyarm.plot import charts
from steadyarm.reports.document import (
    Block,
    Code,
    Document,
    Heading,
    Items,
    Lead,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.wording import counted, number, percent, reach

MOST_ROWS = 40
MOST_PERIODS = 31
MOST_COLUMNS = 6  # variants beside each other, as many as fit on paper
LONG = 16  # letters of a name from which on half as many fit


def analysis_report(found: Analysis, command: str = "") -> Document:
    """The report on what `analyze` found.

    Parameters
    ----------
    found : what `sa.analyze` returned
    command : what was typed, to be shown

    Returns
    -------
    Document : for `write_report`

    Examples
    --------
    >>> import pandas as pd
    >>> import steadyarm as sa
    >>> shown = ["A", "B"] * 1000
    >>> clicks = [int(i % 10 < (4 if name == "B" else 2)) for i, name in enumerate(shown)]
    >>> when = pd.date_range("2026-03-01", periods=2000, freq="5min")
    >>> log = pd.DataFrame({"timestamp": when, "unit": range(2000), "arm": shown, "reward": clicks})
    >>> analysis_report(sa.analyze(log.assign(probability=0.5))).title
    'What the log says'
    """
    direction = found.evidence.direction
    sign, good = (1, "Larger") if direction == "maximize" else (-1, "Smaller")
    order = np.argsort(-sign * found.estimates, kind="stable").tolist()  # unknown ones come last
    # the drift report's short list may be another one
    drifting = charts.matched(order, found.intervals.arms.names, found.drift.names) or [0]
    blocks: list[Block] = [
        *([] if found.control is None else [Lead(found.verdict.decision.text)]),
        Lead(found.summary) if found.control is None else Paragraph(found.summary),
        Paragraph(f"{found.log}: {found.size}. {good} rewards are better."),
        Heading("Estimates"),
        Picture(charts.leaderboard(found.verdict, found.arms.names, direction)),
        _estimates(found, order),
        *_against_control(found, order),
        *_segments(found),
        *_further(found),
        Heading(f"Can the log be trusted? {found.health.status}"),
        health_table(found.health),
        Heading("Did the world move?"),
        *drift_section(found.drift, drifting, "rewards"),
        Heading("What this rests on"),
        Items(_assumptions(found)),
    ]
    if command:
        blocks += [Heading("How to get this again"), Code(command)]
    return Document("What the log says", tuple(blocks), f"Written by SteadyArm {__version__}.")


def _further(found: Analysis) -> Iterator[Block]:
    """The other metrics of two tables: what each is, its verdict, estimates and lifts."""
    for name, one in found.further.items():
        sign = 1 if one.evidence.direction == "maximize" else -1
        order = np.argsort(-sign * one.estimates, kind="stable").tolist()
        yield Heading(name)
        yield Paragraph(f"{one.notes[0]} {one.summary} {one.size[:1].upper()}{one.size[1:]}.")
        yield _estimates(one, order)
        yield from _against_control(one, order)


def _estimates(found: Analysis, order: list[int]) -> Table:
    i, shown = found.intervals, found.shown
    rows = []
    for k in order:
        best = k == i.recommended[0]
        rows.append(
            (
                i.arms.names[k],
                f"{found.counts[shown[k]]:,}",
                number(i.estimates[0, k]),
                reach(i.low[0, k], i.high[0, k]),
                "" if best else number(i.gaps[0, k]),
                "" if best else reach(i.gap_low[0, k], i.gap_high[0, k]),
                "yes" if i.plausible[0, k] else "no",
                number(found.means[shown[k]]),
            )
        )
    header = (
        "variant", "rewards", "estimate", "interval", "behind by", "interval of that",
        "may be the best", "plain mean",
    )  # fmt: skip  # a table reads better so
    caption = (
        "Time-averaged reward of every variant. Intervals hold for all variants at once with "
        f"probability {percent(i.level)}; so does the list of those that may be the best."
    )
    return cut_table(caption, header, "lrrrrrlr", rows, total=found.arms.size)


def _against_control(found: Analysis, order: list[int]) -> Iterator[Block]:
    """Differences from the control, absolute and relative."""
    verdict = found.verdict
    if verdict.lifts is None or verdict.lift_intervals is None:
        return
    names, control = verdict.names, verdict.control
    rows = [
        (
            names[k],
            number(verdict.lifts[k]),
            reach(*verdict.lift_intervals[k].tolist()),
            lift_text(verdict, k),
        )
        for k in order
        if names[k] != control
    ]
    caption = (
        f"Differences from {control}. Absolute intervals hold for all variants at once with "
        f"probability {percent(verdict.level)}, and so do relative ones."
    )
    header = ("variant", "difference", "interval", "relative")
    yield Heading(f"Against {control}" + (f": {found.metric}" if found.metric else ""))
    yield Picture(charts.lifts(verdict, found.arms.names, found.evidence.direction))
    yield cut_table(caption, header, "lrrr", rows)


def _segments(found: Analysis) -> Iterator[Block]:
    if found.segments:
        yield Heading("Segments (exploratory)")
    for one in found.segments:
        yield Paragraph(one.summary)
        header = (one.attribute, "rows", "variant", "value", f"against {one.against}")
        yield Table(f"By {one.attribute}", header, "lrlrr", tuple(one.rows()))


def _assumptions(found: Analysis) -> tuple[str, ...]:
    drawn = (
        "The logged probabilities are those with which variants were drawn, given all that was "
        "known then."
    )
    if found.split is not None:
        drawn = "Variants were drawn at random with the shares that were given."
    return (
        drawn,
        found.intervals.assumption,
        f"Variance: {found.intervals.method}; of periods: {found.drift.method}.",
        *found.notes,
    )


# Sections that reports on logs and on live tests share.


def cut_table(
    caption: str,
    header: tuple[str, ...],
    align: str,
    rows: Iterable[tuple[str, ...]],
    what: str = "variant",
    total: int = 0,
) -> Table:
    """A table of the first rows, with a note on how many there are; `total` if it is more."""
    found = tuple(rows)
    total = max(total, len(found))
    cut = f"The first {MOST_ROWS:,} of {counted(total, what)} are shown."
    return Table(caption, header, align, found[:MOST_ROWS], cut if total > MOST_ROWS else "")


def health_table(health: HealthReport) -> Table:
    """What was checked, what was found, and what to do."""
    rows = tuple((f.status, f.name, f"{f.explanation} {f.advice}".strip()) for f in health.findings)
    return Table("What was checked", ("status", "check", "what was found"), "lll", rows)


def drift_section(drift: DriftReport, order: Sequence[int], counted_as: str) -> Iterator[Block]:
    """The verdict on drift, its picture, and estimates in every period of the best variants."""
    yield Paragraph(drift.verdict)
    if len(drift.periods) > 1:
        yield Picture(charts.drift(drift))
    wide = any(len(drift.names[k]) > LONG for k in order[:MOST_COLUMNS])
    shown = order[: MOST_COLUMNS // 2 if wide else MOST_COLUMNS]
    first = max(0, len(drift.periods) - MOST_PERIODS)
    rows = tuple(
        (
            drift.periods[j],
            f"{drift.rounds[j]:,}",
            drift.leaders[j],
            *(f"{number(drift.estimates[j, k])} ± {_error(drift.errors[j, k])}" for k in shown),
        )
        for j in range(first, len(drift.periods))
    )
    notes = []
    total = len(drift.names) + drift.others
    if len(shown) < total:
        notes.append(f"Only the best {len(shown)} of {total:,} variants are shown.")
    if first:
        notes.append(f"The last {MOST_PERIODS} of {len(drift.periods):,} periods are shown.")
    header = ("period", counted_as, "ahead", *(drift.names[k] for k in shown))
    caption = "Estimates in every period, with standard errors"
    yield Table(caption, header, "lrl" + "r" * len(shown), rows, " ".join(notes))


def _error(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "-"
