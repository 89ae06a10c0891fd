"""The tables of the comparison: error probabilities with intervals and times, Markdown and CSV.

The CSV file is the record; the page is made from it. A run replaces the rows of the tools that it
played, and rows of other tools stay as long as they are about the same tests.
"""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from scipy.stats import fisher_exact

from benchmarks.peers.contest import RULES, TOOLS, Cell, Contest, environment_of, tests_of
from benchmarks.peers.worlds import WORLDS

__all__ = ["markdown", "wilson", "write"]

Found = Mapping[tuple[str, str], Cell | str]
OURS = "steady"
NAME = "against_what_people_use"
COLUMNS = (
    *("tool", "version", "scenario", "status", "trials", "errors", "error_rate", "low", "high"),
    *("rule", "errors_own", "errors_best_mean", "errors_most_shown", "sure", "sure_wrong"),
    *("microseconds_per_visit", "milliseconds_per_verdict", "visits_per_day", "seed", "tests"),
    *("date", "machine"),
)


@dataclass(frozen=True)
class Table:
    """What is known of all tools.

    Attributes
    ----------
    found : by tool and world a cell, or the reason why there is none
    versions, dates, machines : by tool: of the library, when and where it played
    """

    found: dict[tuple[str, str], Cell | str]
    versions: dict[str, str]
    dates: dict[str, str]
    machines: dict[str, str]

    @property
    def tools(self) -> list[str]:
        """Those of which anything is known."""
        return [tool for tool in TOOLS if tool in self.versions]

    @property
    def worlds(self) -> list[str]:
        """Those that were played."""
        return [world for world in WORLDS if any(at == world for _, at in self.found)]

    def of(self, tool: str, world: str) -> Cell | str:
        """The cell, or why there is none."""
        return self.found.get((tool, world), "not played")

    def trials(self, tool: str) -> str:
        """How many trials a tool played; the smallest number if that differs between worlds."""
        cells = [self.of(tool, world) for world in self.worlds]
        return str(min((cell.trials for cell in cells if isinstance(cell, Cell)), default=0))


def wilson(errors: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a probability.

    Examples
    --------
    >>> [round(end, 4) for end in wilson(10, 100)]
    [0.0552, 0.1744]
    """
    z = float(ndtri((1 + level) / 2))
    rate, scale = errors / trials, 1 + z * z / trials
    middle = (rate + z * z / (2 * trials)) / scale
    half = z * np.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2) / scale
    # Rounding must not push an end past what was seen.
    return float(min(max(middle - half, 0.0), rate)), float(max(min(middle + half, 1.0), rate))


def write(folder: Path, plan: Contest, found: Found, command: str, seconds: float) -> list[Path]:
    """Write the Markdown page and the CSV file; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page, path = folder / f"{NAME}.md", folder / f"{NAME}.csv"
    table = _known(path, plan)
    table.found.update(found)
    for tool in plan.tools:
        table.versions[tool] = TOOLS[tool].version
        table.dates[tool], table.machines[tool] = _today(), _machine()
    last = f"Made by `{command}` in {_lasting(seconds)} on {_machine()}, {_today()}."
    page.write_text(markdown(plan, table, last), encoding="utf-8")
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        rows.writeheader()
        rows.writerows(_rows(plan, table))
    return [page, path]


def _known(path: Path, plan: Contest) -> Table:
    """What an earlier run wrote about the same tests, without the tools that have played again."""
    table = Table({}, {}, {}, {})
    if not path.exists():
        return table
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tool"] not in plan.tools]
    for row in rows:
        tool, world = row["tool"], row["scenario"]
        if tool not in TOOLS or world not in WORLDS or not _same_tests(row, plan):
            continue
        table.found[tool, world] = _cell(row, plan) if row["status"] == "played" else row["status"]
        table.versions[tool] = row["version"]
        table.dates[tool], table.machines[tool] = row["date"], row["machine"]
    return table


def _same_tests(row: Mapping[str, str], plan: Contest) -> bool:
    of_row = row.get("visits_per_day"), row.get("seed"), row.get("tests")
    tests = tests_of(row["scenario"], plan.visits_per_day, plan.seed)
    return of_row == (str(plan.visits_per_day), str(plan.seed), tests)


def _cell(row: Mapping[str, str], plan: Contest) -> Cell:
    """What a row says."""
    trials = int(row["trials"])
    visits = trials * environment_of(row["scenario"], plan.visits_per_day).budget
    return Cell(
        trials=trials,
        visits=visits,
        wrong=tuple(int(row[f"errors_{rule.replace(' ', '_')}"]) for rule in RULES),
        sure=int(row["sure"] or -1),
        sure_wrong=int(row["sure_wrong"] or -1),
        visit_seconds=float(row["microseconds_per_visit"]) * visits / 1e6,
        verdict_seconds=float(row["milliseconds_per_verdict"]) * trials / 1e3,
    )


def markdown(plan: Contest, table: Table, last: str) -> str:
    """The page; last : what was run last."""
    T = environment_of(plan.worlds[0], plan.visits_per_day).budget
    lines = [
        "# Against what people use",
        "",
        last,
        "",
        "All rows are about the same tests; the last column says when each was played.",
        "",
        f"Each test has {T:,} visits, 14 days of {plan.visits_per_day}. In a trial every tool "
        "meets the same potential rewards. An error is a decision for another variant than the one "
        "with the highest click rate averaged over the test. Bandits are made to earn during the "
        "test, not for this question; they name no winner, so each is judged by the best of three "
        "rules in each scenario: what it ranks first, the highest mean, the variant shown most.",
        "",
        "## Wrong decisions, in percent of tests (95% interval, Wilson)",
        "",
        _line(["", *(WORLDS[world].title for world in table.worlds), "trials", "played"]),
        _line(["---"] * (len(table.worlds) + 3)),
    ]
    for tool in table.tools:
        cells = [_error(table.of(tool, world), tool) for world in table.worlds]
        lines.append(_line([TOOLS[tool].title, *cells, table.trials(tool), table.dates[tool]]))
    lines += ["", *_scenarios(plan, table)]
    lines += ["", *_by_rule(table)]
    lines += ["", "## Time of the processor, mean over scenarios", ""]
    lines += [_line(["", "per visit, µs", "per verdict, ms", "claims a winner", "wrong claims"])]
    lines += [_line(["---"] * 5)]
    lines += [_line([TOOLS[tool].title, *_times(table, tool)]) for tool in table.tools]
    lines += ["", "A visit is a choice and the update with its reward. Claims are in percent of"]
    lines += [
        "all tests; tools with a dash make none. On a busy machine times are longer than on an"
    ]
    lines += ["idle one: compare within the column, and only rows that played together."]
    for machine in dict.fromkeys(table.machines.values()):
        here = [TOOLS[tool].title for tool in table.tools if table.machines[tool] == machine]
        lines += ["", f"On {machine}: {'; '.join(here)}."]
    lines += ["", "## How each is set", ""]
    for tool in table.tools:
        version = f" {table.versions[tool]}".rstrip()
        lines.append(f"- **{TOOLS[tool].title}**{version}: {TOOLS[tool].settings}.")
    return "\n".join(lines) + "\n"


def _scenarios(plan: Contest, table: Table) -> Iterable[str]:
    """What each scenario is, and who did better and worse than Steady there."""
    for key in table.worlds:
        world = WORLDS[key]
        gap = environment_of(key, plan.visits_per_day).gap
        text = f"- **{world.title}**: {world.story}; the best leads by {gap:.3f} on average."
        ours = table.of(OURS, key)
        if isinstance(ours, Cell):
            for words, sign in (("lower", -1), ("higher", 1)):
                names = [
                    TOOLS[tool].title
                    for tool in table.tools
                    if _differs(ours, table.of(tool, key), tool) == sign
                ]
                text += f" Error significantly {words} than Steady's: {'; '.join(names) or 'none'}."
        yield text
    yield ""
    compared = len(table.worlds) * (len(table.tools) - 1)
    yield (
        f"Significantly: two-sided Fisher test, p < 0.05, each of {compared} comparisons by "
        f"itself, so some {compared * 0.05:.0f} would show up if nothing differed. For "
        "bandits neither the test nor the interval knows that the best of three rules was taken: "
        "both flatter them."
    )


def _by_rule(table: Table) -> Iterable[str]:
    """The bandits again, by each rule alone: nobody knows beforehand which one will be best."""
    bandits = [tool for tool in table.tools if not TOOLS[tool].own_rule]
    if not bandits:
        return
    yield "## Bandits, rule by rule"
    yield ""
    yield (
        "Wrong decisions in percent, by what the library ranks first / the highest mean / the "
        "variant shown most. The table above takes the lowest of the three in each scenario, which "
        "somebody who runs one test cannot. MABWiser's first is `predict_expectations`: a random "
        "draw for Thompson, an upper bound for UCB1, which says little about who is best."
    )
    yield ""
    yield _line(["", *(WORLDS[world].title for world in table.worlds)])
    yield _line(["---"] * (len(table.worlds) + 1))
    for tool in bandits:
        cells = (table.of(tool, world) for world in table.worlds)
        yield _line([TOOLS[tool].title, *(_all_rules(cell) for cell in cells)])


def _all_rules(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return _error(cell, "")
    return " / ".join(f"{100 * wrong / cell.trials:.1f}" for wrong in cell.wrong)


def _differs(ours: Cell, theirs: Cell | str, tool: str) -> int:
    """-1 if the other errs significantly less than Steady, 1 if more, 0 if one cannot say."""
    if isinstance(theirs, str):
        return 0
    mine, other = ours.wrong[0], theirs.errors(TOOLS[tool])[0]
    table = [[mine, ours.trials - mine], [other, theirs.trials - other]]
    if fisher_exact(np.array(table)).pvalue >= 0.05:
        return 0
    return 1 if other / theirs.trials > mine / ours.trials else -1


def _error(cell: Cell | str, tool: str) -> str:
    if isinstance(cell, str):
        return cell.replace("|", "/").replace("\n", " ")
    errors, _ = cell.errors(TOOLS[tool])
    low, high = wilson(errors, cell.trials)
    return f"{100 * errors / cell.trials:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _times(table: Table, tool: str) -> list[str]:
    cells = [cell for world in table.worlds if isinstance(cell := table.of(tool, world), Cell)]
    if not cells:
        return ["-"] * 4
    total = cells[0]
    for cell in cells[1:]:
        total = total + cell
    visit, verdict = _each(total)
    claims = ["-", "-"]
    if total.sure >= 0:
        claims = [f"{100 * n / total.trials:.1f}" for n in (total.sure, total.sure_wrong)]
    return [f"{visit:.1f}", f"{verdict:.2f}", *claims]


def _each(cell: Cell) -> tuple[float, float]:
    """Microseconds a visit, milliseconds a verdict."""
    return 1e6 * cell.visit_seconds / cell.visits, 1e3 * cell.verdict_seconds / cell.trials


def _rows(plan: Contest, table: Table) -> Iterable[dict[str, object]]:
    for tool in table.tools:
        for world in table.worlds:
            cell = table.of(tool, world)
            row: dict[str, object] = dict.fromkeys(COLUMNS, "")
            row |= {"tool": tool, "version": table.versions[tool], "scenario": world}
            row |= {"visits_per_day": plan.visits_per_day, "seed": plan.seed}
            row["tests"] = tests_of(world, plan.visits_per_day, plan.seed)
            row |= {"date": table.dates[tool], "machine": table.machines[tool]}
            if isinstance(cell, str):
                yield row | {"status": cell}
                continue
            errors, rule = cell.errors(TOOLS[tool])
            low, high = wilson(errors, cell.trials)
            visit, verdict = _each(cell)
            names = ("errors_own", "errors_best_mean", "errors_most_shown")
            yield (
                row
                | {"status": "played", "trials": cell.trials, "errors": errors, "rule": rule}
                | {"error_rate": f"{errors / cell.trials:.5f}"}
                | {"low": f"{low:.5f}", "high": f"{high:.5f}"}
                | dict(zip(names, cell.wrong, strict=True))
                | ({"sure": cell.sure, "sure_wrong": cell.sure_wrong} if cell.sure >= 0 else {})
                | {"microseconds_per_visit": f"{visit:.2f}"}
                | {"milliseconds_per_verdict": f"{verdict:.3f}"}
            )


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _machine() -> str:
    model = platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
