"""Adding to tallies: exact sums by segment, arm and day, in the shard of whoever adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql

from steadyarm.storages.sql.lookups import one_or_many
from steadyarm.storages.sql.schema import tallies

__all__ = ["More", "Place", "add"]

Place = tuple[int, int, int]  # segment, arm and day
NOTHING = Fraction(0)

SUMS = (
    select(tallies.c.segment, tallies.c.arm, tallies.c.day, tallies.c.sums, tallies.c.squares)
    .where(
        tallies.c.key == bindparam("key"),
        tallies.c.segment.in_(bindparam("segments", expanding=True)),
        tallies.c.arm.in_(bindparam("arms", expanding=True)),
        tallies.c.shard == bindparam("shard"),
        tallies.c.day.in_(bindparam("days", expanding=True)),
    )
    .order_by(tallies.c.segment, tallies.c.arm, tallies.c.day)
    .with_for_update()
)
BEGIN = insert(tallies)
BEGIN_NEW = postgresql.insert(tallies).on_conflict_do_nothing()
ADD = (
    update(tallies)
    .where(
        tallies.c.key == bindparam("of"),
        tallies.c.segment == bindparam("in_segment"),
        tallies.c.arm == bindparam("of_arm"),
        tallies.c.shard == bindparam("in_shard"),
        tallies.c.day == bindparam("of_day"),
    )
    .values(
        rewarded=tallies.c.rewarded + bindparam("more"),
        sums=bindparam("all_sums"),
        squares=bindparam("all_squares"),
        waited=tallies.c.waited + bindparam("more_waited"),
        late=tallies.c.late + bindparam("more_late"),
        excluded=tallies.c.excluded + bindparam("more_excluded"),
    )
)


@dataclass
class More:
    """What is added in one place; what a correction takes away is below zero.

    Attributes
    ----------
    values : rewards that came
    waited : milliseconds for which rewards were waited
    late : rewards that came too late
    rewarded, sums, squares : of rewards that were told by `tell`
    excluded : assignments
    """

    values: list[float] = field(default_factory=list)
    waited: int = 0
    late: int = 0
    rewarded: int = 0
    sums: Fraction = NOTHING
    squares: Fraction = NOTHING
    excluded: int = 0

    def tell(self, value: float, times: int = 1) -> None:
        """Add a reward that many times; take it away if that is below zero."""
        exact = Fraction(value)
        self.rewarded += times
        self.sums += times * exact
        self.squares += times * exact * exact


def add(connection: Connection, key: int, shard: int, more: Mapping[Place, More]) -> None:
    """Add to the sums; nothing happens if there is nothing."""
    if not more:
        return
    there = _sums(connection, key, shard, more)
    rows = []
    for place in sorted(more):
        one = more[place]
        exact = [Fraction(value) for value in one.values]
        sums, squares = there[place]
        rows.append(
            {
                "of": key,
                "in_segment": place[0],
                "of_arm": place[1],
                "in_shard": shard,
                "of_day": place[2],
                "more": len(exact) + one.rewarded,
                "all_sums": str(sum(exact, Fraction(sums) + one.sums)),
                "all_squares": str(
                    sum((value * value for value in exact), Fraction(squares) + one.squares)
                ),
                "more_waited": one.waited,
                "more_late": one.late,
                "more_excluded": one.excluded,
            }
        )
    connection.execute(ADD, one_or_many(rows))


def _sums(
    connection: Connection, key: int, shard: int, places: Mapping[Place, More]
) -> dict[Place, tuple[str, str]]:
    """Sums and squares of our shard, locked; rows that are missing are begun."""
    wanted = {
        "key": key,
        "segments": sorted({segment for segment, _, _ in places}),
        "arms": sorted({arm for _, arm, _ in places}),
        "days": sorted({day for _, _, day in places}),
        "shard": shard,
    }

    def look() -> dict[Place, tuple[str, str]]:
        found = connection.execute(SUMS, wanted)
        return {(row.segment, row.arm, row.day): (row.sums, row.squares) for row in found}

    there = look()
    missing = sorted(places.keys() - there.keys())
    if not missing:
        return there
    none = {"assigned": 0, "rewarded": 0, "sums": "0", "squares": "0", "last": None}
    statement = BEGIN if connection.dialect.name == "sqlite" else BEGIN_NEW
    connection.execute(
        statement,
        [
            {"key": key, "segment": segment, "arm": arm, "shard": shard, "day": day, **none}
            for segment, arm, day in missing
        ],
    )
    return look()
