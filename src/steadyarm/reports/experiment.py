"""The report on a live test: a Scorecard in words, tables and pictures, and how to check it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from steadyarm import __version__
from steadyarm.live.after_test import outside_texts
from steadyarm.live.experiment import Experiment
from steadyarm.live.export import csv_lines
from steadyarm.live.replay import Replay
from steadyarm.live.scorecard import Course, Effects, Scorecard, Standing, order_of, standing_of
from steadyarm.live.scoring import scorecard_of
from steadyarm.live.tables import adjusted_text, lift_text, metric_cells, metric_obstacles
from steadyarm.plot import charts
from steadyarm.plot.charts.common import thinned
from steadyarm.reports.analysis import (
    MOST_ROWS,
    cut_table,
    drift_section,
    health_table,
)
from steadyarm.reports.document import (
    Block,
    Document,
    Facts,
    Heading,
    Lead,
    Note,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.reports.method import Fingerprint, appendix, fingerprint_of, in_short, in_the_way
from steadyarm.storages.records import to_datetime
from steadyarm.wording import counted, factors_in, listed, number, p_value, percent, reach, when

MOST_TIMES = 12  # rows of the table of estimates over time
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

# Short names of variants throughout a report.


NAMES = {  # fields with them
    *("name", "names", "best", "leaders", "plausible", "control", "against"),
}


def labelled(card: Scorecard) -> Scorecard:
    """The same scorecard with short names of its variants; the settings keep the whole ones."""
    named = ("verdict", "course", "shares", "drift", "people")
    return card.changed(**{part: _shortened(getattr(card, part), card) for part in named})


def _shortened(found: Any, card: Scorecard) -> Any:
    """What was found, with short names of variants in all fields that have names."""
    if card.settings.arms.large or card.labels == card.names:
        return found
    short = dict(zip(card.names, card.labels, strict=True))

    def changed(value: Any, named: bool) -> Any:
        if isinstance(value, tuple):
            return tuple(changed(entry, named) for entry in value)
        if is_dataclass(value) and not isinstance(value, type):
            new = {f.name: changed(getattr(value, f.name), f.name in NAMES) for f in fields(value)}
            return replace(value, **new)
        return short.get(value, value) if named and isinstance(value, str) else value

    return changed(found, False)


HEALTH = {
    "ok": "Nothing suspicious was found.",
    "warn": "One of the checks found something unusual.",
    "fail": "Something is wrong; do not rely on the result before it is explained.",
}

MEANWHILE = (
    " The log's fingerprint and the replay check were read just after that, and may include visits "
    "and rewards that came in between."
)


def experiment_report(
    experiment: Experiment,
    card: Scorecard | None = None,
    replay: bool = True,
    fingerprint: bool = True,
) -> Document:
    """The report on an experiment as it stands.

    Parameters
    ----------
    experiment : a live test
    card : the scorecard, if there is one already
    replay : whether the whole test is computed anew and compared; reads the whole log
    fingerprint : whether the log's fingerprint is taken; reads the whole log, too

    Returns
    -------
    Document : for `write_report`

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 100, "memory", seed=1, missing="drop"
    ... )
    >>> for visitor in range(100):
    ...     shown = test.ask(f"visitor {visitor}")
    ...     test.tell(shown, 1.0 if shown.name == "B" else 0.0)
    >>> experiment_report(test).title
    'Test report: shop'
    """
    seen = scorecard_of(experiment) if card is None else card
    digest = fingerprint_of(csv_lines(experiment)) if fingerprint else None
    return document_of(seen, digest, experiment.replay() if replay else None)


def document_of(
    card: Scorecard,
    fingerprint: Fingerprint | None = None,
    replayed: Replay | None = None,
) -> Document:
    """The report on a scorecard."""
    card = labelled(card)
    blocks: list[Block] = [*_top(card), Facts(_facts(card)), *leaderboard_section(card)]
    if card.status.total_assigned:
        blocks += [
            *_looks(card),
            *metric_section(card),
            *people_section(card),
            *course_section(card),
            *allocation_section(card),
            *effect_section(card.effects),
            *_drift(card),
            *_health(card),
            *_corrections(card),
        ]
    blocks += appendix(card, fingerprint, replayed)
    foot = f"Written by SteadyArm {__version__} from what was stored at {when(card.seen)}."
    if not card.settled and (fingerprint or replayed):
        foot += MEANWHILE
    return Document(f"Test report: {card.name}", tuple(blocks), foot)


def _top(card: Scorecard) -> Iterator[Block]:
    """The decision, if there is one to make, and the headline."""
    if card.status.total_assigned:
        yield Lead(card.decision.text)
        yield Paragraph(card.headline)
    else:
        yield Lead(card.headline)
    if shown := outside_texts(card.status.outside):
        yield Paragraph(" ".join(shown))


def _facts(card: Scorecard) -> tuple[tuple[str, str], ...]:
    assigned, budget = card.status.total_assigned, card.status.budget
    facts = [
        ("State", _state(card)),
        ("Visits", f"{assigned:,} of {budget:,} ({percent(assigned / budget)})"),
        ("Variants", f"{card.size:,}"),
        ("Created", when(card.status.created)),
    ]
    if card.started is not None and card.last is not None:
        facts += [("First visit", when(card.started)), ("Last visit", when(card.last))]
    if card.expected_end is not None and not card.ended:
        facts.append(("Expected end", when(card.expected_end)))
    return (*facts, ("Policy", in_short(card.settings.policy)))


def _state(card: Scorecard) -> str:
    spent = card.status.total_assigned >= card.status.budget and card.status.state == "running"
    return "finished: all visits are assigned" if spent else card.status.state


def _looks(card: Scorecard) -> Iterator[Block]:
    """The looks at a test that may stop early."""
    if card.verdict is None or card.verdict.stopping is None:
        return
    report = card.verdict.stopping
    yield Heading("Looks")
    yield Paragraph(report.text)
    if not report.looks:
        return
    rows = [
        (
            f"{look.number}" if report.planned is None else f"{look.number} of {report.planned}",
            "" if look.when is None else when(look.when),
            f"{look.visits:,}",
            percent(look.share),
            f"{look.reached:.2f}",
            f"{look.boundary:.2f}" if isfinite(look.boundary) else "too early",
        )
        for look in report.looks
    ]
    head = ("Look", "Until", "Visits", "Of the budget", "Standard errors seen", "Needed")
    note = "Differences are decided at the standard errors needed, so that all looks hold at once."
    yield Table("Looks at the test", head, "llrrrr", tuple(rows), note)


def _drift(card: Scorecard) -> Iterator[Block]:
    yield Heading("Did the world move?")
    if card.drift is not None:
        order = charts.matched(order_of(card), card.labels, card.drift.names) or [0]
        yield from drift_section(card.drift, order, "visits")
    elif card.settings.policy.unbiased:
        yield Paragraph("There is nothing to compare yet.")
    else:
        why = in_the_way(card.settings.policy)
        yield Paragraph(f"{why}, so drift cannot be seen in what it measured.")


def _health(card: Scorecard) -> Iterator[Block]:
    yield Heading("Is the test healthy?")
    if card.health is None:
        yield Paragraph("Nothing was assigned yet, so there is nothing to check.")
        return
    yield Note(HEALTH[card.health.status], card.health.status)
    yield health_table(card.health)
    if (waiting := card.waiting) is not None:
        assigned, came, late = (
            int(each.sum()) for each in (waiting.assigned, waiting.rewarded, waiting.late)
        )
        refused = counted(late, "reward that came too late was", "rewards that came too late were")
        says = f"{came:,} of {counted(assigned, 'reward')} came"
        yield Paragraph(says + (f"; {refused} refused." if late else ", none of them too late."))
        yield Picture(charts.waiting(waiting))


def _corrections(card: Scorecard) -> list[Block]:
    """What was changed by hand, and why; nothing if nothing was."""
    if not card.corrections:
        return []
    rows = tuple(
        (
            when(to_datetime(entry.created)),
            entry.action.replace(".", " "),
            f"{entry.detail.get('assignments', 0):,}",
            str(entry.detail.get("reason", "")),
        )
        for entry in card.corrections
    )
    says = "What the policy decided rests on what was known then; all numbers here follow."
    header = ("When", "What", "Visits", "Why")
    table = Table("What was corrected by hand", header, "llrl", rows)
    return [Heading("What was corrected?"), Paragraph(says), table]


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
    unit = card.settings.primary.difference_unit
    lifts = (
        [] if verdict.control is None else [lift_text(verdict, k, unit) for k in range(len(names))]
    )
    against = [f"against {verdict.control}"] * bool(lifts)
    unadjusted = [] if verdict.raw is None else ["unadjusted"]
    table = cut_table(
        "Variants from the best to the worst",
        (
            "variant",
            "estimate",
            *unadjusted,
            f"{percent(verdict.level)} interval",
            *against,
            "share of visits",
            "standing",
        ),
        f"lrr{'r' * len(unadjusted + against)}rl",
        (
            (
                names[k],
                card.settings.shown(verdict.estimates[k]),
                *(card.settings.shown(raw[k]) for raw in (verdict.raw,) if raw is not None),
                reach(
                    float(verdict.intervals[k, 0]),
                    float(verdict.intervals[k, 1]),
                    shown=card.settings.shown,
                    unknown=verdict.no_interval,
                ),
                *lifts[k : k + 1],
                percent(card.assigned[k] / total),
                STANDINGS[standing_of(card, k)],
            )
            for k in order
        ),
        total=card.size,
    )
    if rest := [standing_of(card, k) for k in order[MOST_ROWS:]]:
        still: Standing = "maybe" if card.ended else "open"
        more = f" Of the others {rest.count(still) + verdict.others:,} {STANDINGS[still]}."
        table = replace(table, note=table.note + more)
    yield table
    yield Paragraph(
        f"From {counted(verdict.rewards, 'reward')}. Intervals hold for all variants at once."
        + (f" Differences from {verdict.control} have their own." if lifts else "")
    )
    if adjusted := adjusted_text(verdict, card.settings.covariates):
        yield Paragraph(adjusted)
    if np.isfinite(verdict.estimates).any():
        direction, rates = card.settings.direction, card.settings.primary.kind == "yes/no"
        chart = charts.leaderboard(verdict, names, direction, rates)
        # the table here is cut, too
        note = chart.note.replace("are in the table", "are not drawn")
        yield Picture(replace(chart, note=note))
        if verdict.control is not None and verdict.variants > 1:
            yield Picture(charts.lifts(verdict, names, direction, rates))


def people_section(card: Scorecard) -> Iterator[Block]:
    """What variants brought in each level of the attributes of units."""
    if not card.people:
        return
    yield Heading("Segments of people (exploratory)")
    for found in card.people:
        header = (found.attribute, "visits", "variant", "estimate", f"against {found.against}")
        title = f"Results by {found.attribute}"
        rows = found.rows(card.settings.shown, card.settings.primary.difference_unit)
        yield cut_table(title, header, "lrlrr", rows, total=len(rows))
        yield Paragraph(found.summary)


def metric_section(card: Scorecard) -> Iterator[Block]:
    """What variants brought in further metrics, and whether they keep to the guardrails."""
    verdict = card.verdict
    if verdict is None or not verdict.metrics:
        return
    yield Heading("Other metrics")
    header = ("metric", "variant", "value", "control", "difference", "guardrail")
    rows = metric_cells(verdict)
    yield cut_table("Metrics that do not steer the test", header, "llrrrl", rows, total=len(rows))
    yield from map(Paragraph, metric_obstacles(verdict))
    names = [one.name for one in verdict.metrics if one.metric.role == "secondary"]
    each = "Intervals of a metric hold for all variants at once"
    if len(names) > 1:
        each += f", and those of the {len(names)} secondary metrics hold together"
    yield Paragraph(
        f"{each}. A guardrail is within its margin if the variant is shown to be worse than the "
        "control by less than that."
    )


def course_section(card: Scorecard) -> Iterator[Block]:
    """Estimates over time and for each day, with a table of the leaders."""
    yield Heading("Estimates over time")
    if card.course is None:
        policy = card.settings.policy
        why = f"{in_the_way(policy)}, so there are no estimates over time that can be trusted."
        yield Paragraph("There are no rewards yet." if policy.unbiased else why)
        return
    rates = card.settings.primary.kind == "yes/no"
    yield Picture(charts.estimates(card.course, rates=rates))
    yield _leaders(card.course)
    if card.drift is not None and card.by_day:
        yield Heading("Each day by itself", 3)
        yield Paragraph("Days differ by chance alone, too, so compare the intervals.")
        yield Picture(charts.daily(card.drift, rates=rates))


def _leaders(course: Course) -> Table:
    J, rows = len(course.rounds), []
    for j in thinned(J, MOST_TIMES):
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
    note = f"{len(rows)} of {J:,} times are shown." if len(rows) < J else ""
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
    yield Heading("Who may be as good" if card.ended else "Who can still win")
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
    header = ("variant", "visits", "share", "planned at first", "planned now")
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
        yield none if card.ended else "Every variant can still win."
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
