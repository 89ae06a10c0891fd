"""The page about benchmarks, from their docstrings and from what they printed.

The page is a file of the repository, because README links to it where the site is not built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import FACTS, ROOT, Record, about, read, scripts
from steadyarm.files import write_atomically
from tools.docs.docstrings import escaped, table

__all__ = ["PAGE", "PLACES", "Place", "benchmarks_page", "lowered"]

PAGE = ROOT / "docs" / "benchmarks.md"
OTHERS = "benchmarks/results/against_what_people_use.md"
MADE_BY = re.compile(r"^Made by `(?P<command>[^`]+)` .*, (?P<date>[\d-]{10})\.$", re.MULTILINE)
RIGHT, FAST, BESIDE = "Is it right?", "Is it fast?", "Beside others"


@dataclass(frozen=True)
class Place:
    """Where a benchmark stands on the page, and which pages of docs/ discuss it."""

    section: str
    pages: tuple[str, ...]


PLACES = {
    "how_steady_is_steady": Place(RIGHT, ("steady.md",)),
    "how_much_do_early_rewards_bring": Place(RIGHT, ("guides/delayed_rewards.md",)),
    "how_honest_are_the_intervals": Place(RIGHT, ("inference.md",)),
    "how_honest_are_the_lifts": Place(RIGHT, ("inference.md",)),
    "how_honest_are_the_metrics": Place(RIGHT, ("inference.md",)),
    "how_honest_is_stopping": Place(RIGHT, ("inference.md",)),
    "how_honest_are_live_stops": Place(RIGHT, ("inference.md",)),
    "how_much_do_covariates_bring": Place(RIGHT, ("inference.md",)),
    "how_true_at_the_desk": Place(RIGHT, ("inference.md", "live.md")),
    "how_alert_is_srm": Place(RIGHT, ("health.md",)),
    "how_alert_is_drift": Place(RIGHT, ("health.md",)),
    "how_alert_is_fit": Place(RIGHT, ("health.md",)),
    "how_right_is_analyze": Place(RIGHT, ("analyze.md",)),
    "how_right_are_splits": Place(RIGHT, ("analyze.md",)),
    "how_right_is_the_planner": Place(RIGHT, ("plan.md",)),
    "how_many_visits": Place(RIGHT, ("plan.md",)),
    "how_well_does_it_survive": Place(RIGHT, ("reliability.md",)),
    "how_long_does_it_last": Place(RIGHT, ("reliability.md",)),
    "how_quick_is_the_start": Place(FAST, ("start.md",)),
    "how_long_is_the_first_run": Place(FAST, ("start.md",)),
    "how_fast_is_a_trial": Place(FAST, ("reproduce.md", "steady.md")),
    "how_fast_is_a_design": Place(FAST, ("designs.md",)),
    "how_far_does_it_scale": Place(FAST, ("designs.md",)),
    "how_large_can_a_test_be": Place(FAST, ("scale.md",)),
    "how_much_traffic": Place(FAST, ("service.md",)),
    "how_does_it_grow": Place(FAST, ("service.md",)),
    "how_fast_is_a_page": Place(FAST, ("dashboard.md",)),
    "how_fast_is_analyze": Place(FAST, ("analyze.md",)),
    "how_fast_are_two_tables": Place(FAST, ("analyze.md",)),
}
TITLES = {
    "analyze.md": "Analysing a log",
    "dashboard.md": "Dashboard",
    "guides/compare_policies.md": "Compare policies",
    "designs.md": "Designs",
    "guides/delayed_rewards.md": "Late rewards",
    "health.md": "Health and drift",
    "inference.md": "Intervals",
    "live.md": "Live experiments",
    "plan.md": "Plans",
    "reliability.md": "Reliability",
    "reproduce.md": "Reproduce the paper",
    "scale.md": "A million variants",
    "service.md": "Service",
    "start.md": "First test",
    "steady.md": "The argument for Steady",
}
NAMES = {
    "machine": "",
    "system": "",
    "python": "Python",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "numba": "numba",
    "steadyarm": "SteadyArm",
}
HEAD = """\
<!-- Made by `python -m tools.docs.benchmarks`; change benchmarks/, not this file. -->

# Benchmarks

Each script in `benchmarks/` has a question for its name and prints the answer. This page shows what
it printed, with the command and the machine. Speed is a ratio to something measured in the same
run, so that it means the same on another machine: take ratios and error rates as they are, and
seconds as a hint. Times in a row belong together. Nothing here is asserted in a unit test."""
LOAD = """\
The load is the number of processes that wanted a core in the minute before: at the start that of
other work, at the end that of the benchmark, too. A start near the number of cores, or above it,
means a busy machine: times are longer there, error rates the same."""
PAPER = """\
`steadyarm reproduce --published-trials` plays every figure of the paper with as many trials as were
published, and compares the errors with the published ones. What came out is in
[Reproduce the paper](reproduce.md)."""
ANEW = """\
## Run them anew

```console
python -m benchmarks.record --list                           # questions, and when last recorded
python -m benchmarks.record how_alert_is_drift --tests 500   # run one and keep what it prints
python -m tools.docs.benchmarks                              # write this page
make bench                                                   # record all of them: takes hours
```

- Run them in the repository's folder, with the Python of `.venv`.
- `python -m benchmarks.how_alert_is_drift` runs one without keeping what it prints; all take
  `--help`. A benchmark that fails leaves its old record.
- `how_fast_is_a_design` needs cvxpy, `how_fast_is_analyze` and `how_fast_are_two_tables` DuckDB;
  `make test` installs both with everything else that tests need.
- Those with PostgreSQL start a server of their own, which comes with what tests need;
  `--backend sqlite` leaves it out.
- Error rates have fixed seeds, so the same version gives the same counts. Times do not repeat to
  the digit, nor does what a crash leaves.
- Fewer trials for a first look: `--trials`, `--tests` or `--rows`, as `--help` says. Figures on
  other pages may come from longer runs than those shown here; each names its command.

Which figures a change may touch: a policy, `how_steady_is_steady` and
`steadyarm reproduce beyond_paper`; inference, the four of "Is it right?" that ask for intervals,
lost rows, drift and plans; the service or a storage, traffic, growth and crashes. Record these
anew, and put new figures on the page that cites them."""


def benchmarks_page(root: Path = ROOT) -> str:
    """The page, from the scripts and records below `root`."""
    missing = set(scripts(root)) ^ set(PLACES)
    if missing:
        raise ValueError(
            f"PLACES in tools/docs/benchmarks.py and benchmarks/ differ in {sorted(missing)}; "
            "add a line for each new script, and take out what is gone"
        )
    records = {name: read(name, root) for name in PLACES}
    known = [record for record in records.values() if record is not None]
    common = _common(known)
    parts = [HEAD, _said(common), LOAD, _overview(records, root)]
    for section in (RIGHT, FAST):
        parts.append(f"## {section}")
        for name, place in PLACES.items():
            if place.section == section:
                parts += _about(name, records[name], common, root)
        if section == RIGHT:
            parts += ["### Does the paper come out again?", PAPER]
    parts += [f"## {BESIDE}", lowered((root / OTHERS).read_text(encoding="utf-8")), ANEW]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def lowered(page: str, by: int = 2) -> str:
    r"""A page whose headings are those of a part of another.

    Examples
    --------
    >>> lowered("# Title\n\ntext #1\n\n## Part\n")
    '### Title\n\ntext #1\n\n#### Part\n'
    """
    return re.sub(r"^(#+ )", "#" * by + r"\1", page, flags=re.MULTILINE)


def _common(records: list[Record]) -> dict[str, str]:
    """Facts on which all records agree."""
    first = records[0].facts if records else {}
    return {
        fact: first[fact]
        for fact in FACTS
        if fact in first and all(record.facts.get(fact) == first[fact] for record in records)
    }


def _said(facts: Mapping[str, str]) -> str:
    """Machine and versions in a sentence; nothing if there are no facts."""
    words = [f"{NAMES[fact]} {value}".strip() for fact, value in facts.items()]
    return f"Recorded on: {', '.join(words)}." if words else ""


def _overview(records: Mapping[str, Record | None], root: Path) -> str:
    rows = []
    for section in (RIGHT, FAST):
        for name, place in PLACES.items():
            if place.section == section:
                question = about(name, root)[0]
                record = records[name]
                date = record.facts["date"] if record else "not recorded yet"
                rows.append(_row(question, _command(name, record), date))
        if section == RIGHT:
            paper = "Does the paper come out again?"
            rows.append(_row(paper, "steadyarm reproduce --published-trials", "see there"))
    other = about("against_what_people_use", root)[0]
    made = MADE_BY.search((root / OTHERS).read_text(encoding="utf-8"))
    if made is None:
        raise ValueError(f"{OTHERS} does not say by which command and when: run `make compare`")
    rows.append(_row(other, made["command"], made["date"], BESIDE))
    return table("question", "command", "recorded", rows=rows)


def _row(question: str, command: str, date: str, heading: str | None = None) -> str:
    return f"| [{question}](#{_anchor(heading or question)}) | `{command}` | {date} |"


def _about(
    name: str, record: Record | None, common: Mapping[str, str], root: Path
) -> Iterator[str]:
    question, measured = about(name, root)
    yield f"### {question}"
    for paragraph in measured.split("\n\n"):
        yield escaped(paragraph)
    links = " and ".join(f"[{TITLES[page]}]({page})" for page in PLACES[name].pages)
    if record is None:
        yield f"Not recorded yet: `{_command(name, None)}`. Discussed in {links}."
        return
    facts = record.facts
    own = {fact: facts[fact] for fact in FACTS if fact in facts and fact not in common}
    yield (
        f"`{facts['command']}`, {facts['date']}, {facts['seconds']} s; load {facts['load']}. "
        f"{_said(own)} Discussed in {links}.".replace("  ", " ")
    )
    yield f"```text\n{record.output.rstrip()}\n```"


def _command(name: str, record: Record | None) -> str:
    return record.facts["command"] if record else f"python -m benchmarks.{name}"


def _anchor(heading: str) -> str:
    """Where a heading is, on the site and where files are shown.

    Examples
    --------
    >>> _anchor("How fast is `analyze`, beside others?")
    'how-fast-is-analyze-beside-others'
    """
    return re.sub(r"[^\w\s-]", "", heading).lower().replace(" ", "-")


if __name__ == "__main__":
    write_atomically(PAGE, benchmarks_page().encode())
    print(f"Wrote {PAGE.relative_to(ROOT)}.")
