"""`steadyarm experiment ask` and `tell`: one, several, or many from standard input."""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from steadyarm.cli.common import loaded, read_time, show, table
from steadyarm.errors import InvalidInputError, SteadyArmError

if TYPE_CHECKING:
    from steadyarm.live.assigner import LiveAssignment

BATCH = 1000  # in one transaction
WIDEST = 60  # characters of a value
SHOWN = 20  # refusals that are printed one by one
VALUE = re.compile(r"([A-Za-z][\w .-]*)=([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
TARGETS = ("id", "assignment", "unit")  # columns that name an assignment, the surest first

T = TypeVar("T")
Answer = TypeVar("Answer")


def ask(args: argparse.Namespace) -> None:
    """Assign the variant to show to a unit, such as a visitor.

    Many at once, one unit a line, or CSV with a column unit:

      steadyarm experiment ask checkout - < visitors.csv

    What is known of them, of the attributes that were declared:

      steadyarm experiment ask checkout visitor-1 --attribute device=mobile

    Covariates are given alike, or in columns of the CSV that have their names:

      steadyarm experiment ask checkout visitor-1 --covariate spend=41.0 --expected 3.2
    """
    bulk = args.units == ["-"]
    from steadyarm.wire.responses import AssignmentAnswer

    with loaded(args) as experiment:
        covariates = _covariates(args.covariate, args.expected)
        units: list[str | None] = list(args.units) or [None]
        numbers: list[dict[str, Any]] = [covariates] * len(units)
        if bulk:
            names, columns = read_units(sys.stdin, experiment.settings.covariates)
            units, numbers = list(names), [covariates | found for found in columns]
        alone = len(units) == 1 and not bulk
        if units == [None] and experiment.settings.sticky == "unit":
            raise InvalidInputError(
                "UNIT is missing; say who gets the variant, such as: steadyarm experiment ask "
                f"{shlex.quote(args.name)} visitor-1"
            )
        known = _attributes(args.attribute)

        def many(part: Sequence[tuple[str | None, dict[str, Any]]]) -> list[Any]:
            asked, given = [unit for unit, _ in part], [numbers for _, numbers in part]
            knowns = [known] * len(part)
            return list(experiment.ask_many(asked, attributes=knowns, covariates=given))

        answers: list[Any] = (
            [experiment.ask(units[0], known, covariates)]
            if alone
            else _in_batches(list(zip(units, numbers, strict=True)), many)
        )
    assigned = [answer for answer in answers if not isinstance(answer, SteadyArmError)]
    facts = [
        {"unit": unit, "error": problem(answer)}
        if isinstance(answer, SteadyArmError)
        else AssignmentAnswer.of(answer)
        for unit, answer in zip(units, answers, strict=True)
    ]
    given = experiment.settings.values is not None  # else values say what names do
    rows = [
        (
            *(a.unit, a.name, *([_in_line(a.value)] if given else [])),
            *(f"{a.probability:.4g}" if a.in_test else "", a.id, _remark(a)),
        )
        for a in assigned
    ]
    head = ("unit", "variant", *(["value"] if given else []), "probability", "id", "")
    text = table(head, rows, "<<<><<" if given else "<<><<", most=None)
    show(args, facts[0] if alone else {"assignments": facts}, text)
    _refuse([unit or "" for unit in units], answers, "units got no variant")


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
    with loaded(args) as experiment:
        known = tuple(experiment.settings.measured)
        if bulk:
            rewards, without = read_rewards(sys.stdin, known)
        else:
            rewards, without = _pairs(args.rewards, args.at, args.event), 0
        alone = len(rewards) == 1 and not bulk
        answers: list[Any] = _in_batches(rewards, experiment.tell_many)
    if alone and isinstance(answers[0], SteadyArmError):
        raise answers[0]
    facts = [
        {"error": problem(answer)} if isinstance(answer, SteadyArmError) else {"status": answer}
        for answer in answers
    ]
    count = Counter("refused" if isinstance(a, SteadyArmError) else a for a in answers)
    shown = ("stored", "repeated", *(["outside"] if count["outside"] else []), "refused")
    parts = [f"{count[status]:,} {status}" for status in shown]
    skipped = f"; {without:,} lines without a reward left out" if without else ""
    show(args, facts[0] if alone else {"rewards": facts}, f"{', '.join(parts)}{skipped}")
    _refuse([event[0] for event in rewards], answers, "rewards were refused")


def _remark(shown: LiveAssignment) -> str:
    if not shown.in_test:
        return "outside of the test"
    return "" if shown.new else "as before"


def _in_line(value: Any) -> str:
    """A value as JSON, as far as it fits into a line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _attributes(given: Sequence[str]) -> dict[str, str | None]:
    """Levels by attribute, from texts such as device=mobile."""
    found: dict[str, str | None] = {}
    for text in given:
        name, equals, level = text.partition("=")
        if not (name and equals and level) or name in found:
            raise InvalidInputError(
                f"--attribute is {text!r}; expected an attribute and its level, such as "
                "device=mobile, each attribute once."
            )
        found[name] = level
    return found


def _covariates(given: Sequence[str], expected: float | None) -> dict[str, Any]:
    """Numbers by covariate, from texts such as spend=41.0."""
    from steadyarm.covariates import with_expected

    found: dict[str, Any] = {}
    for text in given:
        named = VALUE.fullmatch(text)
        if named is None or named[1] in found:
            raise InvalidInputError(
                f"--covariate is {text!r}; expected a covariate and its number, such as "
                "spend=41.0, each covariate once."
            )
        found[named[1]] = float(named[2])
    return dict(with_expected(found, expected) or {})


def read_units(
    lines: Any, covariates: Sequence[str] = ()
) -> tuple[list[str], list[dict[str, Any]]]:
    """Units, one in a line, or the column unit of CSV with a header; and their covariates.

    covariates : the names of covariates that a column may have; an empty cell is one not known

    Examples
    --------
    >>> read_units(["visitor 1", "visitor 2"])
    (['visitor 1', 'visitor 2'], [{}, {}])
    >>> read_units(["spend,unit", '41,"Doe, Jo"'], ["spend"])
    (['Doe, Jo'], [{'spend': 41.0}])
    """
    rows = list(_rows(lines))
    column, measured = None, list[tuple[str, int]]()
    if rows and "unit" in rows[0][1]:
        names = rows.pop(0)[1]
        column = names.index("unit")
        measured = [(name, names.index(name)) for name in covariates if name in names]
    found, known = [], []
    for line, row in rows:
        if column is None and len(row) != 1:
            raise InvalidInputError(
                f"line {line} has {len(row)} columns; expected one unit in every line, in quotes "
                "if it has a comma, or CSV whose first line names a column unit."
            )
        found.append(_cell(row, column or 0, line))
        cells = {name: _cell(row, at, line) for name, at in measured}
        known.append({name: _number(cell) for name, cell in cells.items() if cell != ""})
    return found, known


Told = tuple[str, Any, datetime | None, str | None]


def read_rewards(lines: Any, metrics: Sequence[str] = ()) -> tuple[list[Told], int]:
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
    rows = list(_rows(lines))
    columns = set(rows[0][1]) & {"reward", *metrics} if rows else set()
    target, reward, headed = 0, 1, bool(columns)
    at = event = None
    measured: list[tuple[str, int]] = []
    if headed:
        names = rows.pop(0)[1]
        known = [name for name in TARGETS if name in names]
        if not known:
            raise InvalidInputError(
                f"the first line names the columns {', '.join(names)}; expected reward and one of "
                f"{', '.join(TARGETS)}."
            )
        target = names.index(known[0])
        if "reward" in columns:
            reward = names.index("reward")
        else:
            measured = [(name, names.index(name)) for name in names if name in columns]
        at = next((names.index(name) for name in ("at", "rewarded_at") if name in names), None)
        event = names.index("event") if "event" in names else None
    found: list[Told] = []
    without = 0
    for line, row in rows:
        if not headed and len(row) != 2:
            raise InvalidInputError(
                f"line {line} has {len(row)} columns; expected an id or a unit and its reward, or "
                "CSV whose first line names the columns."
            )
        cells = {name: _cell(row, column, line) for name, column in measured}
        values: Any = {name: _number(cell) for name, cell in cells.items() if cell != ""}
        if not measured and (cell := _cell(row, reward, line)) != "":
            values = _number(cell)
        if values == {}:
            without += 1
            continue
        when = "" if at is None else _cell(row, at, line)
        moment = read_time(when, f"at in line {line}") if when else None
        key = None if event is None else _cell(row, event, line) or None
        found.append((_cell(row, target, line), values, moment, key))
    return found, without


def _rows(lines: Any) -> Iterator[tuple[int, list[str]]]:
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


def _cell(row: list[str], column: int, line: int) -> str:
    if column >= len(row):
        raise InvalidInputError(f"line {line} has {len(row)} columns only; it is cut short.")
    return row[column]


def _pairs(words: Sequence[str], at: str | None, event: str | None) -> list[Told]:
    """Targets with their rewards, or with one or several values of metrics such as revenue=35."""
    when = None if at is None else read_time(at, "--at")
    found: list[Told] = []
    left = list(words)
    while left:
        target = left.pop(0)
        if not left:
            raise InvalidInputError(
                f"{target!r} stands alone; expected pairs of an id or a unit and its reward, or - "
                "to read them from standard input."
            )
        values: Any = {}
        while left and (named := VALUE.fullmatch(left[0])):
            values[named[1]] = float(named[2])
            left.pop(0)
        found.append((target, values or _number(left.pop(0)), when, event))
    return found


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

    kinds = (name for name, each in PROBLEMS.items() if isinstance(error, each))
    kind = next(kinds, "internal")
    return {"type": PROBLEM + kind, "detail": str(error)}


def _in_batches(entries: Sequence[T], send: Callable[[Sequence[T]], list[Answer]]) -> list[Answer]:
    starts = range(0, len(entries), BATCH)
    return [answer for i in starts for answer in send(entries[i : i + BATCH])]


def _refuse(asked: Sequence[str], answers: Sequence[Any], what: str) -> None:
    """Print what was refused, and fail if anything was."""
    errors = [
        (target, answer)
        for target, answer in zip(asked, answers, strict=True)
        if isinstance(answer, SteadyArmError)
    ]
    if not errors:
        return
    for target, error in errors[:SHOWN]:
        print(f"{target}: {error}", file=sys.stderr)
    more = f" (the first {SHOWN} are named above)" if len(errors) > SHOWN else ""
    raise SteadyArmError(f"{len(errors):,} of {len(answers):,} {what}{more}.")
