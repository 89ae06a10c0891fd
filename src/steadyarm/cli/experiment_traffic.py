"""`steadyarm experiment ask` and `tell`: one, several, or many from standard input."""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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

    What is known of them, of the attributes and covariates that were declared; in CSV in columns of
    their names:

      steadyarm experiment ask checkout visitor-1 --known device=mobile --known spend=41.0
    """
    from steadyarm.wire.responses import AssignmentAnswer

    bulk = args.units == ["-"]
    with loaded(args) as experiment:
        settings = experiment.settings
        if not args.units and settings.sticky == "unit":
            raise InvalidInputError(
                "UNIT is missing; say who gets the variant, such as: steadyarm experiment ask "
                f"{shlex.quote(args.name)} visitor-1"
            )
        columns = {*settings.attributes, *settings.covariates}
        visits = read_units(sys.stdin, columns) if bulk else [(u, {}) for u in args.units or [None]]
        same = _known(args.known)
        asked = [(unit, *_split(same | known, settings.covariates)) for unit, known in visits]
        alone = len(asked) == 1 and not bulk

        def ask_part(part: Sequence[tuple[Any, Any, Any]]) -> list[Any]:
            units, attributes, covariates = zip(*part, strict=True)
            return list(experiment.ask_many(units, attributes, covariates))

        answers: list[Any] = [experiment.ask(*asked[0])] if alone else _in_batches(asked, ask_part)
    units = [unit for unit, _, _ in asked]
    assigned = [answer for answer in answers if not isinstance(answer, SteadyArmError)]
    facts = [
        {"unit": unit, "error": problem(answer)}
        if isinstance(answer, SteadyArmError)
        else AssignmentAnswer.of(answer)
        for unit, answer in zip(units, answers, strict=True)
    ]
    valued = settings.values is not None  # else values say what names do
    rows = [
        (
            *(a.unit, a.name, *([_in_line(a.value)] if valued else [])),
            *(f"{a.probability:.4g}" if a.in_test else "", a.id, _remark(a)),
        )
        for a in assigned
    ]
    head = ("unit", "variant", *(["value"] if valued else []), "probability", "id", "")
    text = table(head, rows, "<<<><<" if valued else "<<><<", most=None)
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


def _known(given: Sequence[str]) -> dict[str, str]:
    """What is known of units, from texts such as device=mobile."""
    found: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        if not (name and value) or name in found:
            raise InvalidInputError(
                f"--known is {text!r}; expected an attribute or a covariate and its value, such as "
                "device=mobile, each once."
            )
        found[name] = value
    return found


def _split(
    known: dict[str, str], covariates: Sequence[str]
) -> tuple[dict[str, str | None] | None, dict[str, Any] | None]:
    """What is known of a unit as attributes and as covariates."""
    numbers = {name: _number(value) for name, value in known.items() if name in covariates}
    levels: dict[str, str | None] = {n: v for n, v in known.items() if n not in covariates}
    return levels or None, numbers or None


def read_units(lines: Any, columns: Iterable[str] = ()) -> list[tuple[str, dict[str, str]]]:
    """Units with what is known of them: one in a line, or CSV with a column unit.

    columns : the names of attributes and covariates; an empty cell is one not known

    Examples
    --------
    >>> read_units(["visitor 1", "visitor 2"])
    [('visitor 1', {}), ('visitor 2', {})]
    >>> read_units(["spend,unit", '41,"Doe, Jo"'], ["spend"])
    [('Doe, Jo', {'spend': '41'})]
    """
    rows = _table(lines, {"unit"}, ("unit",))
    return [
        (row["unit"], {name: row[name] for name in row.keys() & set(columns) if row[name]})
        for _, row in rows
    ]


Report = tuple[str, Any, datetime | None, str | None]


def read_rewards(lines: Any, metrics: Iterable[str] = ()) -> tuple[list[Report], int]:
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
    found: list[Report] = []
    rows = _table(lines, {"reward", *metrics}, ("unit", "reward"))
    for line, row in rows:
        target = next((row[name] for name in TARGETS if name in row), None)
        if target is None:
            raise InvalidInputError(
                f"the columns are {', '.join(row)}; expected reward and one of "
                f"{', '.join(TARGETS)}."
            )
        values: Any = {name: _number(row[name]) for name in row.keys() & set(metrics) if row[name]}
        if row.get("reward"):
            values = _number(row["reward"])
        if values != {}:
            when = row.get("at") or row.get("rewarded_at")
            moment = read_time(when, f"at in line {line}") if when else None
            found.append((target, values, moment, row.get("event") or None))
    return found, len(rows) - len(found)


def _table(lines: Any, named: set[str], usual: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """Rows by the names of columns: those of the first line if it has one of `named`."""
    rows = list(_rows(lines))
    columns: Sequence[str] = usual
    if rows and named & set(rows[0][1]):
        columns = rows.pop(0)[1]
    for line, row in rows:
        if len(row) < len(columns) or (columns == usual and len(row) != len(usual)):
            raise InvalidInputError(
                f"line {line} has {len(row)} columns; expected {', '.join(columns)}, or CSV whose "
                "first line names the columns."
            )
    return [(line, dict(zip(columns, row, strict=False))) for line, row in rows]


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


def _pairs(words: Sequence[str], at: str | None, event: str | None) -> list[Report]:
    """Targets with their rewards, or with one or several values of metrics such as revenue=35."""
    when = None if at is None else read_time(at, "--at")
    found: list[Report] = []
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
