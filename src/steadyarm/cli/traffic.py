"""`steadyarm experiment ask` and `tell`: one, several, or many from standard input."""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from steadyarm.cli.main import load_experiment, read_time, show, table
from steadyarm.errors import InvalidInputError, SteadyArmError

BATCH = 1000  # in one transaction
WIDEST = 60  # characters of a value
SHOWN = 20  # refusals that are printed one by one
VALUE = re.compile(r"([A-Za-z][\w .-]*)=([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
TARGETS = ("id", "assignment", "unit")  # columns that name an assignment, the surest first

Report = tuple[str, Any, datetime | None, str | None]  # target, values, time, event


def ask(args: argparse.Namespace) -> None:
    """Assign the variant to show to a unit, such as a visitor.

    Many at once, one unit a line, or CSV with a column unit:

      steadyarm experiment ask checkout - < visitors.csv

    What is known of them, of the attributes and covariates that were declared; in CSV in columns of
    their names:

      steadyarm experiment ask checkout visitor-1 --known device=mobile --known spend=41.0
    """
    from steadyarm.wire.responses import AssignmentAnswer

    with load_experiment(args) as experiment:
        settings = experiment.settings
        if not args.units and settings.sticky == "unit":
            raise InvalidInputError(
                "UNIT is required. Name the unit that gets the variant: steadyarm experiment ask "
                f"{shlex.quote(args.name)} visitor-1"
            )
        visits: list[Any] = [(unit, {}) for unit in args.units or [None]]
        if args.units == ["-"]:
            visits = read_units(sys.stdin, {*settings.attributes, *settings.covariates})
        units = [unit for unit, _ in visits]
        same = _read_known(args.known)
        facts = [_split(same | known, settings.covariates) for _, known in visits]
        alone = len(units) == 1 and args.units != ["-"]
        answers: list[Any] = []
        if alone:
            answers.append(experiment.ask(units[0], *facts[0]))
        else:
            for i in range(0, len(units), BATCH):
                attributes, covariates = zip(*facts[i : i + BATCH], strict=True)
                answers += experiment.ask_many(units[i : i + BATCH], attributes, covariates)
    head, align = ["unit", "variant", "probability", "id", ""], "<<><<"
    if settings.values is not None:  # else values say what names do
        head, align = [*head[:2], "value", *head[2:]], "<<<><<"
    results: list[Any] = []
    rows = []
    for unit, answer in zip(units, answers, strict=True):
        if isinstance(answer, SteadyArmError):
            results.append({"unit": unit, "error": problem(answer)})
            continue
        results.append(AssignmentAnswer.of(answer))
        row = [answer.unit, answer.name]
        if settings.values is not None:
            value = json.dumps(answer.value, ensure_ascii=False)
            row.append(value if len(value) <= WIDEST else value[: WIDEST - 1] + "…")
        remark = "" if answer.new else "as before"
        if answer.in_test:
            rows.append([*row, f"{answer.probability:.4g}", answer.id, remark])
        else:
            rows.append([*row, "", answer.id, "outside of the test"])
    text = table(head, rows, align, most=None)
    show(args, results[0] if alone else {"assignments": results}, text)
    _report_errors([unit or "" for unit in units], answers, "units got no variant")


def tell(args: argparse.Namespace) -> None:
    """Report rewards.

    Rewards of units, or of the ids that ask gave. A negative one follows --:

      steadyarm experiment tell checkout visitor-1 1 visitor-2 0
      steadyarm experiment tell checkout -- visitor-3 -12.50
      steadyarm experiment tell checkout visitor-4 bought=1 revenue=35.20 --event order-17
      steadyarm experiment tell checkout - < purchases.csv

    The file has an id or a unit and a reward in every line, or CSV with a column reward, or columns
    named after metrics, and one of id, assignment and unit; columns at and event say when it was
    and which event. A reward that is repeated counts once; if some are refused, the others are
    stored.
    """
    bulk = args.rewards == ["-"]
    with load_experiment(args) as experiment:
        if bulk:
            reports, without = read_rewards(sys.stdin, experiment.settings.measured)
        else:
            reports, without = _read_pairs(args.rewards, args.at, args.event), 0
        answers: list[Any] = []
        for i in range(0, len(reports), BATCH):
            answers += experiment.tell_many(reports[i : i + BATCH])
    alone = len(reports) == 1 and not bulk
    if alone and isinstance(answers[0], SteadyArmError):
        raise answers[0]
    refused = [isinstance(answer, SteadyArmError) for answer in answers]
    results = [
        {"error": problem(answer)} if wrong else {"status": answer}
        for answer, wrong in zip(answers, refused, strict=True)
    ]
    counts = Counter(answer for answer, wrong in zip(answers, refused, strict=True) if not wrong)
    outside = f"{counts['outside']:,} outside, " if counts["outside"] else ""
    text = f"{counts['stored']:,} stored, {counts['repeated']:,} repeated, {outside}"
    text += f"{sum(refused):,} refused"
    text += f"; {without:,} lines without a reward left out" if without else ""
    show(args, results[0] if alone else {"rewards": results}, text)
    _report_errors([target for target, *_ in reports], answers, "rewards were refused")


def _read_known(texts: Sequence[str]) -> dict[str, str]:
    """Read attributes and covariates of units from texts such as device=mobile."""
    known: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value) or name in known:
            raise InvalidInputError(
                f"--known is {text!r}; expected NAME=VALUE, such as device=mobile, with each name "
                "once."
            )
        known[name] = value
    return known


def _split(
    known: dict[str, str], covariates: Sequence[str]
) -> tuple[dict[str, str | None] | None, dict[str, Any] | None]:
    """Split the known values of a unit into attributes and covariates."""
    numbers = {name: _number(value) for name, value in known.items() if name in covariates}
    levels: dict[str, str | None] = {n: v for n, v in known.items() if n not in covariates}
    return levels or None, numbers or None


def read_units(
    lines: Iterable[str], columns: Iterable[str] = ()
) -> list[tuple[str, dict[str, str]]]:
    """Units with what is known of them: one in a line, or CSV with a column unit.

    columns : the names of attributes and covariates; an empty cell is one not known

    Examples
    --------
    >>> read_units(["visitor 1", "visitor 2"])
    [('visitor 1', {}), ('visitor 2', {})]
    >>> read_units(["spend,unit", '41,"Doe, Jo"'], ["spend"])
    [('Doe, Jo', {'spend': '41'})]
    """
    rows = _read_table(lines, {"unit"}, ("unit",))
    return [
        (row["unit"], {name: row[name] for name in row.keys() & set(columns) if row[name]})
        for _, row in rows
    ]


def read_rewards(lines: Iterable[str], metrics: Iterable[str] = ()) -> tuple[list[Report], int]:
    """Ids or units with their rewards, when these happened and of which event; and lines without.

    Two columns, or CSV with a header that names reward, or metrics, then one of id, assignment and
    unit, and perhaps event and at (or rewarded_at, as exports do).

    metrics : the names of metrics that a column may have

    Examples
    --------
    >>> read_rewards(["visitor 1,1", "visitor 2,"])
    ([('visitor 1', 1.0, None, None)], 1)
    >>> read_rewards(["unit,event,revenue", "visitor 1,order 17,35.2"], ["revenue"])
    ([('visitor 1', {'revenue': 35.2}, None, 'order 17')], 0)
    """
    reports: list[Report] = []
    rows = _read_table(lines, {"reward", *metrics}, ("unit", "reward"))
    for line, row in rows:
        target = next((row[name] for name in TARGETS if name in row), None)
        if target is None:
            raise InvalidInputError(
                f"the columns are {', '.join(row)}; expected reward and one of: "
                f"{', '.join(TARGETS)}."
            )
        values: Any = {name: _number(row[name]) for name in row.keys() & set(metrics) if row[name]}
        if row.get("reward"):
            values = _number(row["reward"])
        if values != {}:
            at = row.get("at") or row.get("rewarded_at")
            time = read_time(at, f"at in line {line}") if at else None
            reports.append((target, values, time, row.get("event") or None))
    return reports, len(rows) - len(reports)


def _read_table(
    lines: Iterable[str], names: set[str], usual: tuple[str, ...]
) -> list[tuple[int, dict[str, str]]]:
    """Rows by column, with the numbers of their lines.

    Columns are those of the first line if it has one of `names`, else the usual ones.
    """
    rows = list(_read_rows(lines))
    columns: Sequence[str] = usual
    if rows and names & set(rows[0][1]):
        columns = rows.pop(0)[1]
    for line, row in rows:
        if len(row) < len(columns) or (columns == usual and len(row) != len(usual)):
            raise InvalidInputError(
                f"line {line} has {len(row)} columns; expected {', '.join(columns)}, or CSV whose "
                "first line names the columns."
            )
    return [(line, dict(zip(columns, row, strict=False))) for line, row in rows]


def _read_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if reader.line_num == 1 and row:
                row[0] = row[0].removeprefix("\ufeff")
            if row:
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise InvalidInputError(f"line {reader.line_num} is not CSV: {error}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"standard input is not UTF-8 text: {error}.") from None


def _read_pairs(words: Sequence[str], at: str | None, event: str | None) -> list[Report]:
    """Targets with their rewards, or with one or several values of metrics such as revenue=35."""
    time = None if at is None else read_time(at, "--at")
    reports: list[Report] = []
    left = list(words)
    while left:
        target = left.pop(0)
        if not left:
            raise InvalidInputError(
                f"{target!r} has no reward. Give pairs of a unit (or id) and its reward, or - to "
                "read them from standard input."
            )
        values: Any = {}
        while left and (named := VALUE.fullmatch(left[0])):
            values[named[1]] = float(named[2])
            left.pop(0)
        reports.append((target, values or _number(left.pop(0)), time, event))
    return reports


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text  # refused where rewards are checked, without the others


def problem(error: SteadyArmError) -> dict[str, str]:
    """An error as the service names it.

    Examples
    --------
    >>> from steadyarm.errors import BudgetSpentError
    >>> problem(BudgetSpentError("nothing is left."))
    {'type': 'urn:steadyarm:problem:budget-spent', 'detail': 'nothing is left.'}
    """
    from steadyarm.wire.responses import PROBLEM, PROBLEMS

    kinds = (name for name, kind in PROBLEMS.items() if isinstance(error, kind))
    return {"type": PROBLEM + next(kinds, "internal"), "detail": str(error)}


def _report_errors(targets: Sequence[str], answers: Sequence[Any], what: str) -> None:
    """Print what was refused, and fail if anything was."""
    lines = [
        f"{target}: {answer}"
        for target, answer in zip(targets, answers, strict=True)
        if isinstance(answer, SteadyArmError)
    ]
    if lines:
        print(*lines[:SHOWN], sep="\n", file=sys.stderr)
        more = f" (the first {SHOWN} are named above)" if len(lines) > SHOWN else ""
        raise SteadyArmError(f"{len(lines):,} of {len(answers):,} {what}{more}.")
