"""Sections that reports on live tests and on logs share: health, drift, other ways to conclude."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import Counterfactuals, DriftReport, HealthReport
from steadyarm.live.scorecard import Course, Effects, Scorecard, Standing, order_of, standing_of
from steadyarm.plot import charts
from steadyarm.reports.document import Block, Heading, Note, Paragraph, Picture, Table
from steadyarm.reports.method import in_the_way
from steadyarm.wording import counted, factors_in, listed, number, p_value, percent, reach

# Sections that reports on live tests and on logs share: health, drift, other ways to conclude.


MOST_ROWS = 40
MOST_PERIODS = 31
MOST_COLUMNS = 6  # variants beside each other, as many as fit on paper
LONG = 16  # letters of a name from which on half as many fit


def best_first(estimates: NDArray[np.float64], direction: str) -> list[int]:
    """Variants from the best estimate to the worst, unknown ones last."""
    sign = 1 if direction == "maximize" else -1
    return [int(k) for k in np.argsort(-sign * estimates, kind="stable")]


def rest_note(shown: int, total: int, what: str = "variant") -> str:
    """Says how many rows were left out; empty if none."""
    if shown >= total:
        return ""
    return f"The first {shown:,} of {counted(total, what)} are shown."


def health_table(health: HealthReport, caption: str) -> Table:
    """What was looked at, and what to do."""
    rows = tuple((f.status, f.name, f"{f.explanation} {f.advice}".strip()) for f in health.findings)
    return Table(caption, ("status", "check", "what was found"), "lll", rows)


def period_table(drift: DriftReport, order: Sequence[int], counted_as: str) -> Table:
    """Estimates in every period of the best variants, the last periods if there are many."""
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
    return Table(caption, header, "lrl" + "r" * len(shown), rows, " ".join(notes))


def otherwise_blocks(other: Counterfactuals) -> list[Block]:
    """Who else would have been put first, and why not to."""
    rows = []
    if other.raw is not None:
        behind = f"behind by {number(other.raw.behind, 3)}, {reach(*other.raw.interval)}"
        rows.append(("plain means", other.raw.leader, behind if other.simpson else "the same"))
    for early in {early.rounds: early for early in other.early}.values():
        same = "the same" if early.leader == other.best else "another variant"
        share = percent(round(early.rounds / other.rounds, 2))
        rows.append((f"a look after {share} of the rewards", early.leader, same))
    lost = other.best_dropped
    gone = (
        ("the same" if other.winner == other.best else "another variant")
        if lost is None
        else f"gives the best variant up after {lost:,} rewards"
    )
    rows.append(("elimination by halves", other.winner, gone))
    caption = "The same rewards, read in other ways"
    blocks: list[Block] = [
        Table(caption, ("by", "best variant", f"against {other.best}"), "lll", tuple(rows))
    ]
    if other.raw is not None and other.simpson:
        clear = other.raw.interval[0] > 0
        says = (
            "Plain means put another variant first: the mix of periods differs between variants."
            if clear
            else "Plain means put another variant first, but the two are too close to tell."
        )
        blocks.insert(0, Note(says, "warn") if clear else Paragraph(says))
    elif all(row[2] == "the same" for row in rows):
        blocks.insert(0, Paragraph("All of them come to the same conclusion here."))
    return blocks


def _error(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "-"


# How a live test went: estimates and shares over time, who could still win, what parts do.


MOST_LOOKS = 12  # rows of the table of estimates over time


def course_blocks(card: Scorecard) -> list[Block]:
    """Estimates over time and per day, with a table of who led."""
    head = Heading("Estimates over time")
    if card.course is None:
        why = (
            f"{in_the_way(card.settings.policy)}, so there are no estimates over time that can be "
            "trusted."
            if not card.settings.policy.unbiased
            else "There are no rewards yet."
        )
        return [head, Paragraph(why)]
    blocks: list[Block] = [
        head,
        Picture(charts.estimates(card.course)),
        _looks(card.course),
    ]
    if card.drift is not None and card.by_day:
        says = "Days differ by chance alone, too, so look at the intervals."
        blocks += [Heading("Each day by itself", 3), Paragraph(says)]
        blocks.append(Picture(charts.daily(card.drift)))
    return blocks


def share_blocks(card: Scorecard) -> list[Block]:
    """Allocation and the plausible set."""
    blocks: list[Block] = [Heading("Who was shown how often")]
    if card.shares is None:
        blocks.append(Paragraph("Nothing was handed out yet."))
    else:
        turns = int(card.shares.turns[1:].sum())
        times = "once" if turns == 1 else f"{turns:,} times"
        says = f"The policy changed its mind {times}." if turns else "Shares stayed as they were."
        blocks += [
            Paragraph(says),
            Picture(charts.allocation(card.shares)),
            _shares(card),
        ]
    blocks.append(Heading("Who may be as good" if card.settled else "Who can still win"))
    blocks += [Paragraph(said) for said in _rivals(card)]
    return blocks if card.course is None else [*blocks, Picture(charts.plausible(card.course))]


def _rivals(card: Scorecard) -> list[str]:
    """Who is not ruled out, and who was not measured to the end."""
    verdict = card.verdict
    if verdict is None:
        return [
            "There is no verdict, so no variant is ruled out."
            if card.settled
            else "Every variant can still win."
        ]
    standings = [(name, standing_of(card, k)) for k, name in enumerate(card.labels)]
    others = [name for name, standing in standings if standing in ("open", "maybe")]
    dropped = [name for name, standing in standings if standing == "dropped"]
    level = percent(verdict.level)
    if others or verdict.others:
        leads = "has the best estimate" if card.settled else "leads"
        among = "among them " if verdict.others else ""
        rivals = counted(len(others) + verdict.others, "variant")
        named = f": {among}{listed(others, 5 if verdict.size else 20)}" if others else ""
        said = [
            f"Besides {verdict.name}, which {leads}, {rivals} cannot be ruled out at "
            f"{level}{named}."
        ]
    elif len(dropped) < len(standings) - 1:
        rest = " that were measured to the end" if dropped else ""
        said = [f"All variants{rest} but {verdict.name} are ruled out at {level}."]
    else:
        said = [f"{verdict.name} is left."]
    if dropped:
        were = counted(len(dropped), "variant was", "variants were")
        said.append(f"{were} dropped on the way: {listed(dropped, 20)}.")
    if verdict.caution:
        said.append(verdict.caution)
    if verdict.reach:
        said.append(verdict.reach)
    return said


def effect_blocks(card: Scorecard) -> list[Block]:
    """Main effects and interactions of a factorial test, or what each item of bundles brings."""
    effects = card.effects
    if effects is None:
        return []
    if effects.kind == "items":
        return _items(effects)
    rows = tuple(
        (e.factor, e.level, number(e.mean), number(e.difference), reach(e.low, e.high))
        for e in effects.main
    )
    level = percent(effects.level)
    header = ("factor", "level", "mean", "from the average", f"{level} interval")
    note = rest_note(MOST_ROWS, len(rows), "level")
    table = Table("What each level does", header, "llrrr", rows[:MOST_ROWS], note)
    blocks: list[Block] = [Heading("Effects of the factors")]
    blocks += [Picture(charts.effects(effects)), table]
    if not effects.pairs:
        return blocks
    pairs = tuple(
        (f"{pair.first} and {pair.second}", number(pair.strength), p_value(pair.p_value))
        for pair in effects.pairs
    )
    note = rest_note(MOST_ROWS, len(pairs), "pair")
    caption = "How far pairs of factors depart from the sum of their effects"
    return [
        *blocks,
        Heading("Do factors depend on each other?", 3),
        Picture(charts.interactions(effects)),
        Table(caption, ("factors", "largest departure", "p-value"), "lrr", pairs[:MOST_ROWS], note),
    ]


def _items(effects: Effects) -> list[Block]:
    rows = tuple(
        (e.level, number(e.mean), number(e.difference), reach(e.low, e.high)) for e in effects.main
    )
    header = ("item", "mean with it", "from without it", f"{percent(effects.level)} interval")
    note = rest_note(MOST_ROWS, len(rows), "item")
    caption = "Items from the best to the worst"
    return [
        Heading("What each item brings"),
        Paragraph(
            "The mean reward of all bundles with an item, minus that of all bundles without it. "
            "Intervals hold for all items at once."
        ),
        Picture(charts.effects(effects)),
        Table(caption, header, "lrrr", rows[:MOST_ROWS], note),
    ]


def _looks(course: Course) -> Table:
    last = len(course.rounds) - 1
    shown = np.unique(np.linspace(0, last, min(MOST_LOOKS, last + 1)).round().astype(int))
    rows = []
    for j in (int(i) for i in shown):
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
    caption = "Who led after so many visits; intervals hold at all looks at once"
    align = "r" + "l" * len(timed) + "lrrr"
    note = f"{len(rows)} of {last + 1:,} looks are shown." if len(rows) <= last else ""
    return Table(caption, header, align, tuple(rows), note)


def _shares(card: Scorecard) -> Table:
    shares = card.shares
    assert shares is not None
    given = shares.given.sum(axis=0)
    large = card.settings.arms.large
    names = shares.names if large else card.labels
    order = _by_share(given, shares.single, len(names)) if large else order_of(card)
    rows = tuple(
        (
            names[k],
            f"{int(given[k]):,}",
            percent(given[k] / max(given.sum(), 1)),
            percent(shares.planned[0, k]),
            percent(shares.planned[-1, k]),
        )
        for k in order[: MOST_ROWS + large]
    )
    header = ("variant", "visits", "share", "planned at first", "planned at last")
    note = rest_note(MOST_ROWS, len(card.names))
    if large:
        note = f"{shares.variants:,} of {counted(card.size, 'variant')} may have been handed out."
    return Table("Visits by variant", header, "lrrrr", rows, note)


def _by_share(given: NDArray[np.int64], single: int, columns: int) -> list[int]:
    """Those handed out most often first, the sum of all others last."""
    order = np.argsort(-given[:single], kind="stable").tolist()
    return [*order, *range(single, columns)]


# The variants of a live test from the best to the worst, as a table and a picture.


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


def leaderboard_blocks(card: Scorecard) -> list[Block]:
    """Heading, table and picture."""
    head = Heading("Leaderboard")
    verdict, names = card.verdict, card.labels
    if verdict is None:
        return [
            head,
            *_order(card),
            Paragraph(f"{card.obstacle[:1].upper()}{card.obstacle[1:]}"),
            _assigned(card),
        ]
    total, assigned = max(card.status.total_assigned, 1), card.assigned
    order = order_of(card)
    rows = tuple(
        (
            names[k],
            number(verdict.estimates[k]),
            reach(*verdict.intervals[k]),
            percent(assigned[k] / total),
            STANDINGS[standing_of(card, k)],
        )
        for k in order[:MOST_ROWS]
    )
    note = rest_note(MOST_ROWS, card.size)
    rest = [standing_of(card, k) for k in order[MOST_ROWS:]]
    if rest:
        still: Standing = "maybe" if card.settled else "open"
        note += f" Of the others {rest.count(still) + verdict.others:,} {STANDINGS[still]}."
    level = percent(verdict.level)
    header = ("variant", "estimate", f"{level} interval", "share of visits", "standing")
    table = Table("Variants from the best to the worst", header, "lrrrl", rows, note)
    chart = charts.leaderboard(verdict, names, card.settings.direction)
    # the table here is cut, too
    picture = Picture(replace(chart, note=chart.note.replace("are in the table", "are not drawn")))
    told = Paragraph(
        f"From {counted(verdict.rewards, 'reward')}. Intervals hold for all variants at once."
    )
    blocks: list[Block] = [head, *_order(card), table, told]
    return [*blocks, picture] if np.isfinite(verdict.estimates).any() else blocks


def _order(card: Scorecard) -> list[Block]:
    """What short names stand for."""
    factors = factors_in(card.settings.arms)
    if factors is None or card.settings.arms.large or card.labels == card.names:
        return []
    return [Paragraph(f"Variants are named by their levels of {listed(list(factors), 20)}.")]


def _assigned(card: Scorecard) -> Table:
    assigned, rewarded = card.assigned, card.rewarded
    rows = tuple(
        (name, f"{assigned[k]:,}", f"{rewarded[k]:,}")
        for k, name in enumerate(card.labels[:MOST_ROWS])
    )
    note = rest_note(MOST_ROWS, card.size)
    return Table("The variants", ("variant", "visits", "rewards"), "lrr", rows, note)
