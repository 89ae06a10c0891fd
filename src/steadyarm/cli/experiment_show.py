"""What `steadyarm experiment` prints for people: tables and sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

import steadyarm as sa
from steadyarm.cli.common import MOST_LINES, WIDTH, table
from steadyarm.live.after_test import outside_texts
from steadyarm.live.settings import Settings
from steadyarm.live.tables import (
    adjusted_text,
    lift_text,
    metric_cells,
    metric_obstacles,
)
from steadyarm.wording import counted, number, percent, reach, span, when

if TYPE_CHECKING:
    from steadyarm.inference import DriftReport
    from steadyarm.wire.responses import ListedExperiment

METRICS = ("metric", "variant", "value", "control", "difference", "guardrail")
MISSING = {
    "zero": "a missing one counts as zero",
    "drop": "a missing one counts as the mean of its variant",
    "fail": "no verdict while one is missing",
}


def list_text(experiments: Iterable[ListedExperiment]) -> str:
    """A line for every experiment."""
    rows = [
        (
            listed.name,
            listed.state,
            when(listed.created),
            listed.policy,
            f"{listed.arms}",
            f"{listed.budget:,}",
        )
        for listed in experiments
    ]
    return table(("name", "state", "created", "policy", "variants", "budget"), rows, "<<<<>>")


def experiment_text(experiment: sa.Experiment) -> str:
    """The state of an experiment, with a line for every variant."""
    status, settings = experiment.status(), experiment.settings
    assigned, rewarded = status.total_assigned, status.total_rewarded
    pending = assigned - rewarded - status.excluded
    excluded = f", {status.excluded:,} excluded" if status.excluded else ""
    lines = [
        f"{status.name}: {status.state}, created {when(status.created)}",
        *_decision(experiment),
        f"{settings.policy.name} on {settings.arms.size:,} variants, to {settings.direction} the "
        f"reward; seed {settings.seed}",
        f"{assigned:,} of {status.budget:,} visits assigned ({100 * assigned // status.budget} %), "
        f"{counted(rewarded, 'reward')} recorded, {pending:,} pending or missing{excluded}",
        f"{counted(status.segments, 'segment')} opened, {status.observed} observed by the policy",
        *([f"covariates: {', '.join(settings.covariates)}"] if settings.covariates else []),
        *([_looks(settings)] if settings.stop is not None else []),
        f"{_rules(settings)}",
        *outside_texts(status.outside),
        "",
    ]
    share = _shares(experiment)
    counts = _counts(status, share)
    rows = [
        (
            settings.arms.names[k],
            f"{assigned:,}",
            f"{rewarded:,}",
            f"{share.get(k, 0.0):.4f}" if share else "",
            _reserved(settings, settings.arms.names[k]),
        )
        for k, assigned, rewarded in counts[:MOST_LINES]
    ]
    head = ("variant", "assigned", "rewarded", "share now", "")
    lines.append(table(head, rows, "<>>><", None))
    if status.arms is not None:
        played = sum(count > 0 for _, count, _ in counts)
        lines.append(f"{played:,} of {settings.arms.size:,} variants were assigned so far")
    elif hidden := len(counts) - len(rows):
        lines.append(f"… and {hidden} more, see --format json")
    return "\n".join(lines)


def _shares(experiment: sa.Experiment) -> dict[int, float]:
    """The share of each variant that is assigned now; empty before the first."""
    segments = experiment.storage.snapshot(experiment.key).segments
    if not segments:
        return {}
    last = segments[-1][0].segment
    return {last.arm_at(c): weight for c, weight in enumerate(last.weights[0].tolist())}


def _decision(experiment: sa.Experiment) -> Iterator[str]:
    """What to do, if anything can be judged yet."""
    try:
        verdict = experiment.recommend()
    except sa.RewardsPendingError:
        return
    yield verdict.decision.text
    if verdict.stopping is not None:
        yield verdict.stopping.text


def _counts(status: sa.Status, share: Mapping[int, float]) -> list[tuple[int, int, int]]:
    """Variants with assignments and rewards; of very many those that get most come first."""
    arms = range(len(status.assigned)) if status.arms is None else status.arms
    rows = list(zip(arms, status.assigned, status.rewarded, strict=True))
    if status.arms is None:
        return rows
    rows += [(k, 0, 0) for k in share.keys() - set(arms)]
    return sorted(rows, key=lambda row: (-share.get(row[0], 0.0), -row[1], row[0]))


def verdict_text(verdict: sa.Verdict, settings: Settings) -> str:
    """The verdict, and the variants from the best to the worst."""
    sign = 1 if settings.direction == "maximize" else -1
    order = np.argsort(-sign * verdict.estimates, kind="stable")  # unknown ones last
    shown, alive = verdict.shown, set(verdict.plausible)
    names = [settings.arms.names[int(k if shown is None else shown[k])] for k in order]
    control = [] if verdict.control is None else ["against control"]
    unadjusted = [] if verdict.raw is None else ["unadjusted"]
    rows = [
        (
            name,
            settings.shown(verdict.estimates[k]),
            *(settings.shown(raw[k]) for raw in (verdict.raw,) if raw is not None),
            reach(
                float(verdict.intervals[k, 0]),
                float(verdict.intervals[k, 1]),
                shown=settings.shown,
                unknown=verdict.no_interval,
            ),
            *(lift_text(verdict, int(k), settings.primary.difference_unit) for _ in control),
            "" if k == verdict.row else settings.shown(verdict.gaps[k]),
            "*" if name in alive else "",
        )
        for k, name in zip(order, names, strict=True)
    ]
    interval = f"{percent(verdict.level)}, all at once"
    head = ("variant", "estimate", *unadjusted, interval, *control, "behind by", "")
    columns = f"<>>{'>' * len(unadjusted + control)}><"
    lines = [f"{verdict.decision.text}\n", f"{verdict}\n", table(head, rows, columns)]
    lines.append("* may be the best")
    if adjusted := adjusted_text(verdict, settings.covariates):
        lines.append(adjusted)
    if verdict.size:
        lines.append(
            f"The best {len(rows)} of {verdict.size:,} variants; {verdict.possible:,} of all may "
            "be the best."
        )
    if verdict.missing:
        one, many = "reward of a judged visit is", "rewards of judged visits are"
        have = counted(verdict.missing, one, many)
        lines.append(f"\n{have} missing: {MISSING[settings.missing]}.")
    if verdict.metrics:
        lines += [
            "\n" + table(METRICS, metric_cells(verdict), "<<>>><"),
            *metric_obstacles(verdict),
        ]
    return "\n".join((*lines, f"\nAssumptions: {verdict.assumption}"))


def breakdown_text(found: sa.Breakdown, settings: Settings) -> str:
    """The levels of an attribute below each other, and what it means."""
    head = (found.attribute, "visits", "variant", "estimate", f"against {found.against}")
    unknown = counted(found.unknown, "visit") if found.unknown else ""
    cells = found.rows(settings.shown, settings.primary.difference_unit)
    lines = [textwrap.fill(found.summary, WIDTH), "", table(head, cells, "<><>>")]
    if unknown:
        lines.append(f"{unknown} of an unknown {found.attribute}")
    return "\n".join(lines)


def drift_text(report: DriftReport) -> str:
    """Variants below each other, periods beside each other, and what it means."""
    rows = [
        (
            name + " *" * (name == report.best),
            *(
                f"{number(value)} ±{error:.2g}"
                for value, error in zip(report.estimates[:, k], report.errors[:, k], strict=True)
            ),
        )
        for k, name in enumerate(report.names)
    ]
    rows.append(("rounds", *(f"{rounds:,}" for rounds in report.rounds)))
    lines = [table(("variant", *report.periods), rows, "<" + ">" * len(report.periods))]
    lines.append("± standard error; the best on average is marked *\n")
    return "\n".join((*lines, textwrap.fill(report.verdict, WIDTH)))


def _rules(settings: Settings) -> str:
    counting = "whenever they come"
    if settings.reward_window is not None:
        counting = f"for {span(settings.reward_window)}"
    if settings.reward_grace:
        counting += f" (and may arrive {span(settings.reward_grace)} later)"
    sticky = "units keep their variant" if settings.sticky == "unit" else "every request is drawn"
    return f"rewards count {counting}, {MISSING[settings.missing]}; {sticky}"


def _looks(settings: Settings) -> str:
    """When the test is looked at, and what follows if a look decides it."""
    does = "stops itself when sure" if settings.stop == "when sure" else "says when to stop"
    futile = "" if settings.futility is None else f", futility {settings.shown(settings.futility)}"
    return f"{does}: {settings.looks} looks, spending {settings.spending}{futile}"


def _reserved(settings: Settings, name: str) -> str:
    share, floor = settings.control_share, settings.min_share.get(name)
    said = [f"at least {floor:g}"] if floor is not None else []
    if name == settings.control:
        said.insert(0, "control" if share is None else f"control, always {share:g}")
    return ", ".join(said)
