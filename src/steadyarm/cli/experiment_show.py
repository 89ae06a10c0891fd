"""What `steadyarm experiment` prints: tables for people, plain values for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from steadyarm.inference.drift import DriftReport
from steadyarm.live.assignments import Status, to_datetime
from steadyarm.live.experiment import Experiment
from steadyarm.live.serializers import record_facts
from steadyarm.live.settings import UNITS, Settings
from steadyarm.live.verdict import Verdict
from steadyarm.storages.records import ExperimentRecord

__all__ = [
    "print_drift",
    "print_experiment",
    "print_json",
    "print_list",
    "print_table",
    "print_verdict",
]

MOST_LINES = 60
MOST_DRIFTING = 10  # of very many variants
WIDTH = 100  # characters of a line
ACROSS = 8  # periods beside each other
MISSING = {
    "zero": "a missing one counts as zero",
    "drop": "a missing one counts as the mean of its variant",
    "fail": "no verdict while one is missing",
}


def print_json(facts: Any) -> None:
    """One line that programs read."""
    print(json.dumps(facts))


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], align: str, most: int | None = MOST_LINES
) -> None:
    """Aligned columns; `align` has < or > for each."""
    body = list(map(tuple, rows))
    lines = [tuple(head), *body[:most]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:{a}{w}}" for cell, a, w in zip(line, align, widths, strict=True))
        print("  ".join(cells).rstrip())
    if hidden := len(body) - len(lines) + 1:
        print(f"… and {hidden} more, see --format json")


def print_list(records: Iterable[ExperimentRecord]) -> None:
    """A line for every experiment."""
    rows = [
        (
            facts["name"],
            facts["state"],
            _time(to_datetime(record.created)),
            facts["policy"],
            f"{facts['arms']}",
            f"{facts['budget']:,}",
        )
        for record in records
        for facts in [record_facts(record)]
    ]
    print_table(("name", "state", "created", "policy", "variants", "budget"), rows, "<<<<>>")


def print_experiment(experiment: Experiment) -> None:
    """Where an experiment stands, with a line for every variant."""
    status, settings = experiment.status(), experiment.settings
    handed, told = status.total_assigned, status.total_rewarded
    print(f"{status.name}: {status.state}, created {_time(status.created)}")
    print(
        f"{settings.policy.name} on {settings.arms.size:,} variants, to {settings.direction} the "
        f"reward; seed {settings.seed}"
    )
    print(
        f"{handed:,} of {status.budget:,} handed out ({100 * handed // status.budget} %), "
        f"{told:,} rewards recorded, {handed - told - status.excluded:,} pending or missing"
        + (f", {status.excluded:,} excluded" if status.excluded else "")
    )
    print(_segments(status))
    print(_rules(settings))
    print()
    snapshot = experiment.storage.snapshot(experiment.key)
    share: dict[int, float] = {}
    if snapshot.segments:
        last = snapshot.segments[-1][0].segment
        share = {last.arm_at(c): weight for c, weight in enumerate(last.weights[0].tolist())}
    counts = _counts(status, share)
    rows = [
        (
            settings.arms.names[k],
            f"{assigned:,}",
            f"{rewarded:,}",
            f"{share.get(k, 0.0):.4f}" if share else "",
            _kept(settings, settings.arms.names[k]),
        )
        for k, assigned, rewarded in counts[:MOST_LINES]
    ]
    print_table(("variant", "assigned", "rewarded", "share now", ""), rows, "<>>><", None)
    if status.arms is not None:
        played = sum(count > 0 for _, count, _ in counts)
        print(f"{played:,} of {settings.arms.size:,} variants were handed out so far")
    elif hidden := len(counts) - len(rows):
        print(f"… and {hidden} more, see --format json")


def _counts(status: Status, share: Mapping[int, float]) -> list[tuple[int, int, int]]:
    """Variants with assignments and rewards; of very many those that get most come first."""
    if status.arms is None:
        pairs = zip(status.assigned, status.rewarded, strict=True)
        return [(k, assigned, rewarded) for k, (assigned, rewarded) in enumerate(pairs)]
    rows = {k: (k, 0, 0) for k in share}
    rows |= {
        k: (k, assigned, rewarded)
        for k, assigned, rewarded in zip(status.arms, status.assigned, status.rewarded, strict=True)
    }
    return sorted(rows.values(), key=lambda row: (-share.get(row[0], 0.0), -row[1], row[0]))


def print_verdict(verdict: Verdict, settings: Settings) -> None:
    """The verdict, and the variants from the best to the worst."""
    print(f"{verdict}\n")
    sign = 1 if settings.direction == "maximize" else -1
    order = np.argsort(-sign * verdict.estimates, kind="stable")  # unknown ones last
    shown, alive = verdict.shown, set(verdict.plausible)
    names = [settings.arms.names[int(k if shown is None else shown[k])] for k in order]
    rows = [
        (
            name,
            _number(verdict.estimates[k]),
            _reach(*verdict.intervals[k]),
            "" if k == verdict.row else _number(verdict.gaps[k]),
            "*" if name in alive else "",
        )
        for k, name in zip(order, names, strict=True)
    ]
    level = f"{verdict.level:.0%}".replace("%", " %")
    print_table(("variant", "estimate", f"{level}, all at once", "behind by", ""), rows, "<>>><")
    print("* may be the best")
    if verdict.size:
        print(
            f"The best {len(rows)} of {verdict.size:,} variants; {verdict.possible:,} of all may "
            "be the best."
        )
    if verdict.missing:
        have = (
            "reward of a judged visit is"
            if verdict.missing == 1
            else "rewards of judged visits are"
        )
        print(f"\n{verdict.missing:,} {have} missing: {MISSING[settings.missing]}.")
    print(f"\nIntervals: {verdict.method}. {verdict.assumption}")


def print_drift(report: DriftReport) -> None:
    """Variants below each other, periods beside each other, and what it means."""
    for first in range(0, len(report.periods), ACROSS):
        _print_periods(report, slice(first, first + ACROSS))
        print()
    print("± standard error; the best on average is marked *\n")
    if report.others:
        total = len(report.names) + report.others
        print(f"The best {MOST_DRIFTING} of {total:,} variants are shown.\n")
    print(textwrap.fill(report.verdict, WIDTH))


def _print_periods(report: DriftReport, part: slice) -> None:
    labels = [label.replace(" to ", "\nto ").partition("\n") for label in report.periods[part]]
    head = [
        ("", *(first for first, _, _ in labels)),
        ("variant", *(second for _, _, second in labels)),
    ]
    tail = ("rounds", *(f"{rounds:,}" for rounds in report.rounds[part]))
    rows = [
        (
            (name + " *" * (name == report.best), *(_number(v) for v in report.estimates[part, k])),
            ("", *(f"±{error:.2g}" for error in report.errors[part, k])),
        )
        for k, name in _shown(report)
    ]
    lines = [*head, *(line for pair in rows for line in pair), tail]
    wide = [max(map(len, column)) for column in list(zip(*lines, strict=True))[1:]]
    left = WIDTH - sum(width + 2 for width in wide)
    longest = max(len(line[0]) for line in lines)
    column = longest if longest <= left else max(len("variant"), min(left, 20))
    for line in lines:
        name = line[0]
        if len(name) > column:  # on a line of its own
            print(textwrap.shorten(name, WIDTH, placeholder=" …") if len(name) > WIDTH else name)
            name = ""
        cells = (f"  {cell:>{width}}" for cell, width in zip(line[1:], wide, strict=True))
        print(f"{name:<{column}}{''.join(cells)}".rstrip())


def _shown(report: DriftReport) -> list[tuple[int, str]]:
    """All variants; of very many the best."""
    if not report.others:
        return list(enumerate(report.names))
    weights = report.rounds / max(int(report.rounds.sum()), 1)
    best = np.argsort(np.nan_to_num(report.gaps).T @ weights, kind="stable")[:MOST_DRIFTING]
    return [(int(k), report.names[k]) for k in best]


def _segments(status: Status) -> str:
    leased = f"; {status.leased:,} positions out on lease" if status.leased else ""
    opened = f"{status.segments} segment{'s' * (status.segments != 1)}"
    return f"{opened} opened, {status.observed} handed to the policy{leased}"


def _rules(settings: Settings) -> str:
    window = settings.reward_window
    when = "whenever they come"
    if window is not None:
        grace = settings.reward_grace or 0.0
        when = f"for {_span(window)}" + (f" (and may arrive {_span(grace)} later)" if grace else "")
    sticky = "units keep their variant" if settings.sticky == "unit" else "every request is drawn"
    return f"rewards count {when}, {MISSING[settings.missing]}; {sticky}"


def _kept(settings: Settings, name: str) -> str:
    if name in settings.control:
        return f"control, always {settings.control[name]:g}"
    return f"at least {settings.min_share[name]:g}" if name in settings.min_share else ""


def _span(seconds: float) -> str:
    """172800 as "2 d"."""
    unit = next((u for u in ("d", "h", "m") if seconds % UNITS[u] == 0), "s")
    return f"{seconds / UNITS[unit]:g} {unit}"


def _number(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:.4g}"


def _reach(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}" if np.isfinite(high - low) else "unknown"


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
