"""A report on a log, as Markdown or as one HTML page: the verdict and all that it rests on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steadyarm.analysis.result import Analysis
from steadyarm.errors import InvalidInputError
from steadyarm.files import write_atomically
from steadyarm.pages import code_block, html_page, markdown_table, plain_text

__all__ = ["check_path", "markdown_report", "write_report"]

TITLE = "What the log says"
MOST_ARMS = 12  # columns of the table of periods


def check_path(path: Path) -> Path:
    """The path, if its ending tells what to write."""
    if path.suffix.lower() not in (".md", ".html"):
        raise InvalidInputError(f"the report is {path.name}; expected a name in .md or .html.")
    return path


def write_report(found: Analysis, path: Path, command: str = "") -> Path:
    """Write the report; the ending of the path, .md or .html, says how."""
    text = markdown_report(found, command)
    page = check_path(path).suffix.lower() == ".html"
    return write_atomically(path, (html_page(text, TITLE) if page else text).encode())


def markdown_report(found: Analysis, command: str = "") -> str:
    """The whole report as Markdown."""
    blocks = [
        f"# {TITLE}",
        f"**{plain_text(found.verdict)}**",
        f"{plain_text(found.log)}: {found.rows:,} rows, {found.rewards:,} rewards. "
        f"A good reward is {'large' if found.evidence.direction == 'maximize' else 'small'}.",
        "## Estimates",
        *_estimates(found),
        f"## Can the log be trusted? {found.health.status}",
        _health(found),
        "## Did the world move?",
        *_drift(found),
        "## What would have been concluded otherwise?",
        *_otherwise(found),
        "## What this rests on",
        _assumptions(found),
    ]
    if command:
        blocks += ["## How to get this again", code_block(command)]
    return "\n\n".join(blocks) + "\n"


def _estimates(found: Analysis) -> list[str]:
    i = found.intervals
    level = f"{i.level:.4g}"
    sign = 1 if found.evidence.direction == "maximize" else -1
    rows = []
    for k in np.argsort(-sign * i.estimates[0], kind="stable"):
        best = k == i.recommended[0]
        rows.append(
            [
                plain_text(found.arms.names[k]),
                f"{found.counts[k]:,}",
                f"{i.estimates[0, k]:.4g}",
                _reach(i.low[0, k], i.high[0, k]),
                "" if best else f"{i.gaps[0, k]:.4g}",
                "" if best else _reach(i.gap_low[0, k], i.gap_high[0, k]),
                "yes" if i.plausible[0, k] else "no",
                _number(found.means[k]),
            ]
        )
    header = ["arm", "rewards", "estimate", "interval", "behind by", "interval of that"]
    header += ["may be the best", "plain mean"]
    return [
        f"Time-averaged reward of every arm. Intervals hold for all arms at once with probability "
        f"{level}, so does the list of those that may be the best.",
        markdown_table(header, "lrrrrrlr", rows),
    ]


def _health(found: Analysis) -> str:
    rows = [
        [f.status, plain_text(f.name), plain_text(f"{f.explanation} {f.advice}")]
        for f in found.health.findings
    ]
    return markdown_table(["status", "check", "what was found"], "lll", rows)


def _drift(found: Analysis) -> list[str]:
    drift = found.drift
    sign = 1 if found.evidence.direction == "maximize" else -1
    order = np.argsort(-sign * found.intervals.estimates[0], kind="stable")[:MOST_ARMS]
    rows = [
        [
            plain_text(label),
            f"{drift.rounds[j]:,}",
            plain_text(drift.leaders[j]),
            *(f"{drift.estimates[j, k]:.4g} ± {_number(drift.errors[j, k], 2)}" for k in order),
        ]
        for j, label in enumerate(drift.periods)
    ]
    header = ["period", "rewards", "ahead", *(plain_text(found.arms.names[k]) for k in order)]
    rest = found.arms.size - len(order)
    more = f" Only the best {len(order)} of {found.arms.size} arms are shown." if rest else ""
    return [
        plain_text(drift.verdict),
        f"Estimates in every period, with standard errors.{more}",
        markdown_table(header, "lrl" + "r" * len(order), rows),
    ]


def _otherwise(found: Analysis) -> list[str]:
    other = found.otherwise
    rows = []
    if other.raw is not None:
        behind = (
            f"behind by {other.raw.behind:.3g}, {_reach(*other.raw.interval)}"
            if other.simpson
            else "the same"
        )
        rows.append(["plain means", plain_text(other.raw.leader), behind])
    for early in {early.rounds: early for early in other.early}.values():
        same = "the same" if early.leader == other.best else "another arm"
        way = f"a look after {early.rounds / other.rounds:.0%} of the rewards".replace("%", " %")
        rows.append([way, plain_text(early.leader), same])
    lost = other.best_dropped
    gone = (
        ("the same" if other.winner == other.best else "another arm")
        if lost is None
        else f"gives the best arm up after {lost:,} rewards"
    )
    rows.append(["elimination by halves", plain_text(other.winner), gone])
    says = "Plain means put another arm first: the mix of periods differs between arms."
    return [
        *([says] if other.simpson else []),
        markdown_table(["by", "best arm", f"against {plain_text(other.best)}"], "lll", rows),
    ]


def _assumptions(found: Analysis) -> str:
    lines = [
        "The logged probabilities are those with which arms were drawn, given all that was known "
        "then.",
        found.intervals.assumption,
        f"Variance: {found.intervals.method}; of periods: {found.drift.method}.",
        *found.notes,
    ]
    return "\n".join(f"- {plain_text(line)}" for line in lines)


def _reach(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}".replace("inf", "∞")


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if np.isfinite(value) else "-"
