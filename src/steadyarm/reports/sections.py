"""Sections of reports: those that live tests and logs share, then those of live tests alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from steadyarm.inference import Counterfactuals, DriftReport, HealthReport
from steadyarm.live.scorecard import Course, Effects, Scorecard, Standing, order_of, standing_of
from steadyarm.plot import charts
from steadyarm.reports.document import Block, Heading, Note, Paragraph, Picture, Table
from steadyarm.reports.method import in_the_way
from steadyarm.wording import counted, factors_in, listed, number, p_value, percent, reach

MOST_ROWS = 40
MOST_PERIODS = 31
MOST_COLUMNS = 6  # variants beside each other, as many as fit on paper
LONG = 16  # letters of a name from which on half as many fit
MOST_TIMES = 12  # rows of the table of estimates over time
STANDINGS: dict[Standing, str] = {
    "best": "best",
    "leads": "leads",
    "ahead": "best estimate",
    "open": "can still win",
    "maybe": "may be as good",
    "out": "ruled out",
    "dropped": "dropped",
    "unknown": "unknown",
}


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


def counterfactual_section(other: Counterfactuals) -> Iterator[Block]:
    """Which variant other methods would have put first, and why not to trust them."""
    rows = []
    if other.raw is not None:
        behind = f"behind by {number(other.raw.behind, 3)}, {reach(*other.raw.interval)}"
        rows.append(("plain means", other.raw.leader, behind if other.simpson else "the same"))
    for early in {early.rounds: early for early in other.early}.values():
        same = "the same" if early.leader == other.best else "another variant"
        share = percent(round(early.rounds / other.rounds, 2))
        rows.append((f"estimates after {share} of the rewards", early.leader, same))
    gone = "the same" if other.winner == other.best else "another variant"
    if other.best_dropped is not None:
        gone = f"drops the best variant after {other.best_dropped:,} rewards"
    rows.append(("successive halving", other.winner, gone))
    if other.raw is not None and other.simpson:
        first = "Plain means put another variant first"
        if other.raw.interval[0] > 0:
            yield Note(f"{first}: the mix of periods differs between variants.", "warn")
        else:
            yield Paragraph(f"{first}, but the two are too close to tell.")
    elif all(row[2] == "the same" for row in rows):
        yield Paragraph("All of them come to the same conclusion here.")
    header = ("by", "best variant", f"against {other.best}")
    yield Table("The same rewards, read in other ways", header, "lll", tuple(rows))


# A live test: the variants from the best to the worst, and how the test went.


def leaderboard_section(card: Scorecard) -> Iterator[Block]:
    """The variants from the best to the worst, as a table and as a picture."""
    yield Heading("Leaderboard")
    verdict, names, arms = card.verdict, card.labels, card.settings.arms
    factors = factors_in(arms)
    if factors is not None and not arms.large and names != card.names:
        yield Paragraph(f"Variants are named by their levels of {listed(list(factors), 20)}.")
    if verdict is None:
        yield Paragraph(f"{card.obstacle[:1].upper()}{card.obstacle[1:]}")
        rows = (
            (name, f"{card.assigned[k]:,}", f"{card.rewarded[k]:,}")
            for k, name in enumerate(names[:MOST_ROWS])
        )
        header = ("variant", "visits", "rewards")
        yield cut_table("The variants", header, "lrr", rows, total=card.size)
        return
    total, order = max(card.status.total_assigned, 1), order_of(card)
    table = cut_table(
        "Variants from the best to the worst",
        (
            "variant",
            "estimate",
            f"{percent(verdict.level)} interval",
            "share of visits",
            "standing",
        ),
        "lrrrl",
        (
            (
                names[k],
                number(verdict.estimates[k]),
                reach(*verdict.intervals[k]),
                percent(card.assigned[k] / total),
                STANDINGS[standing_of(card, k)],
            )
            for k in order
        ),
        total=card.size,
    )
    if rest := [standing_of(card, k) for k in order[MOST_ROWS:]]:
        still: Standing = "maybe" if card.settled else "open"
        more = f" Of the others {rest.count(still) + verdict.others:,} {STANDINGS[still]}."
        table = replace(table, note=table.note + more)
    yield table
    yield Paragraph(
        f"From {counted(verdict.rewards, 'reward')}. Intervals hold for all variants at once."
    )
    if np.isfinite(verdict.estimates).any():
        chart = charts.leaderboard(verdict, names, card.settings.direction)
        # the table here is cut, too
        note = chart.note.replace("are in the table", "are not drawn")
        yield Picture(replace(chart, note=note))


def course_section(card: Scorecard) -> Iterator[Block]:
    """Estimates over time and for each day, with a table of the leaders."""
    yield Heading("Estimates over time")
    if card.course is None:
        policy = card.settings.policy
        why = f"{in_the_way(policy)}, so there are no estimates over time that can be trusted."
        yield Paragraph("There are no rewards yet." if policy.unbiased else why)
        return
    yield Picture(charts.estimates(card.course))
    yield _leaders(card.course)
    if card.drift is not None and card.by_day:
        yield Heading("Each day by itself", 3)
        yield Paragraph("Days differ by chance alone, too, so compare the intervals.")
        yield Picture(charts.daily(card.drift))


def _leaders(course: Course) -> Table:
    last = len(course.rounds) - 1
    shown = np.unique(np.linspace(0, last, min(MOST_TIMES, last + 1)).round().astype(int))
    rows = []
    for j in shown.tolist():
        k = int(course.leaders[j])
        rows.append(
            (
                f"{course.rounds[j]:,}",
                *(() if course.times is None else (f"{course.times[j]:%Y-%m-%d %H:%M}",)),
                course.names[k],
                number(course.estimates[j, k]),
                reach(course.low[j, k], course.high[j, k]),
                f"{int(course.possible[j]):,}",
            )
        )
    timed = () if course.times is None else ("until (UTC)",)
    interval = f"{percent(course.level)} interval"
    header = ("visits", *timed, "ahead", "estimate", interval, "not ruled out")
    caption = "The leader over time; intervals hold at all times at once"
    align = "r" + "l" * len(timed) + "lrrr"
    note = f"{len(rows)} of {last + 1:,} times are shown." if len(rows) <= last else ""
    return Table(caption, header, align, tuple(rows), note)


def allocation_section(card: Scorecard) -> Iterator[Block]:
    """How often each variant was shown, and which ones are not ruled out."""
    yield Heading("Who was shown how often")
    if card.shares is None:
        yield Paragraph("Nothing was assigned yet.")
    else:
        turns = int(card.shares.turns[1:].sum())
        times = "once" if turns == 1 else f"{turns:,} times"
        changed = f"The policy changed its mind {times}."
        yield Paragraph(changed if turns else "Shares stayed as they were.")
        yield Picture(charts.allocation(card.shares))
        yield _shares(card)
    yield Heading("Who may be as good" if card.settled else "Who can still win")
    yield from map(Paragraph, _rivals(card))
    if card.course is not None:
        yield Picture(charts.plausible(card.course))


def _shares(card: Scorecard) -> Table:
    shares = card.shares
    assert shares is not None
    given = shares.given.sum(axis=0)
    large = card.settings.arms.large
    names: Sequence[str] = card.labels
    order = order_of(card)
    if large:  # the most frequent first, the sum of all others last
        names = shares.names
        most = np.argsort(-given[: shares.single], kind="stable").tolist()
        order = [*most, *range(shares.single, len(names))]
    rows = tuple(
        (
            names[k],
            f"{int(given[k]):,}",
            percent(given[k] / max(given.sum(), 1)),
            percent(shares.planned[0, k]),
            percent(shares.planned[-1, k]),
        )
        for k in order
    )
    header = ("variant", "visits", "share", "planned at first", "planned at last")
    table = cut_table("Visits by variant", header, "lrrrr", rows, total=len(card.names))
    if not large:
        return table
    note = f"{shares.variants:,} of {counted(card.size, 'variant')} may have been assigned."
    return replace(table, rows=rows[: MOST_ROWS + 1], note=note)


def _rivals(card: Scorecard) -> Iterator[str]:
    """Which variants are not ruled out, and which were not measured to the end."""
    verdict = card.verdict
    if verdict is None:
        none = "There is no verdict, so no variant is ruled out."
        yield none if card.settled else "Every variant can still win."
        return
    standings = [(name, standing_of(card, k)) for k, name in enumerate(card.labels)]
    others = [name for name, standing in standings if standing in ("open", "maybe")]
    dropped = [name for name, standing in standings if standing == "dropped"]
    level = percent(verdict.level)
    if others or verdict.others:
        leads = "has the best estimate" if card.settled else "leads"
        among = "among them " if verdict.others else ""
        rivals = counted(len(others) + verdict.others, "variant")
        named = f": {among}{listed(others, 5 if verdict.size else 20)}" if others else ""
        best = f"Besides {verdict.name}, which {leads}"
        yield f"{best}, {rivals} cannot be ruled out at {level}{named}."
    elif len(dropped) < len(standings) - 1:
        rest = " that were measured to the end" if dropped else ""
        yield f"All variants{rest} but {verdict.name} are ruled out at {level}."
    else:
        yield f"{verdict.name} is left."
    if dropped:
        were = counted(len(dropped), "variant was", "variants were")
        yield f"{were} dropped on the way: {listed(dropped, 20)}."
    yield from filter(None, (verdict.caution, verdict.reach))


def effect_section(effects: Effects | None) -> Iterator[Block]:
    """Main effects and interactions of a factorial test, or what each item of bundles brings."""
    if effects is None:
        return
    interval = f"{percent(effects.level)} interval"
    values = [(number(e.mean), number(e.difference), reach(e.low, e.high)) for e in effects.main]
    if effects.kind == "items":
        yield Heading("What each item brings")
        yield Paragraph(
            "The mean reward of all bundles with an item, minus that of all bundles without it. "
            "Intervals hold for all items at once."
        )
        yield Picture(charts.effects(effects))
        rows = ((e.level, *own) for e, own in zip(effects.main, values, strict=True))
        columns = ("item", "mean with it", "from without it", interval)
        yield cut_table("Items from the best to the worst", columns, "lrrr", rows, "item")
        return
    yield Heading("Effects of the factors")
    yield Picture(charts.effects(effects))
    levels = ((e.factor, e.level, *own) for e, own in zip(effects.main, values, strict=True))
    header = ("factor", "level", "mean", "from the average", interval)
    yield cut_table("What each level does", header, "llrrr", levels, "level")
    if effects.pairs:
        yield Heading("Do factors depend on each other?", 3)
        yield Picture(charts.interactions(effects))
        pairs = (
            (f"{pair.first} and {pair.second}", number(pair.strength), p_value(pair.p_value))
            for pair in effects.pairs
        )
        caption = "How far pairs of factors depart from the sum of their effects"
        yield cut_table(caption, ("factors", "largest departure", "p-value"), "lrr", pairs, "pair")
