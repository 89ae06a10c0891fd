"""Logs that SteadyArm exported: what is known of them beyond their rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from steadyarm.analysis.allocations import Described
from steadyarm.analysis.log import Log
from steadyarm.errors import InvalidInputError
from steadyarm.wording import counted

OURS = {"segment", "block", "position", "policy_version", "id", "rewarded_at"}
ALONE = (
    "This is a log of SteadyArm without its description (LOG.experiment.json) beside it: every "
    "variant counts by itself. Features need --arms FILE, or the description."
)


def ours(log: Log) -> bool:
    """Whether the log has the columns that SteadyArm exports."""
    return set(log.there) >= OURS


def mature(log: Log, table: Any, described: Described | None) -> tuple[Any, str]:
    """The rows whose rewards will not come any more, and a note on the others, if there are any.

    As in the test itself: rows after the first one whose reward may still come are left out,
    whether they have a reward or not, since quick rewards are not like slow ones.
    """
    if described is None or described.over:
        return table, ""
    absent, time = table["reward"].isnull(), table["time"]
    if table["reward"].type().is_string():
        absent = table["reward"].nullif("").isnull()
    [found] = log.fetch(
        table.aggregate(last=time.max(), first=time.min(where=absent), rows=table.count())
    )
    cut, last = found["first"], found["last"]
    if not isinstance(cut, datetime) or not isinstance(last, datetime):
        return table, ""  # nothing is missing, or there are no times
    if described.lasting is not None:
        over = last - timedelta(seconds=described.lasting)
        [found] = log.fetch(
            table.aggregate(first=time.min(where=absent & (time > over)), rows=table.count())
        )
        cut = found["first"]
    if cut is None:
        return table, ""
    kept = table.filter(time < cut)
    [left] = log.fetch(kept.aggregate(rows=kept.count()))
    if not left["rows"]:
        raise InvalidInputError(
            f"{log.name} is of the test {described.name}, which is still running, and rewards of "
            "all its visits may still come; export it again later, or say what a missing reward "
            'counts as: missing="drop" or "zero" (--missing drop).'
        )
    out = counted(found["rows"] - left["rows"], "row was", "rows were")
    return kept, (
        f"The newest {out} left out: the test {described.name} is still running, and some of their "
        "rewards may still come."
    )
