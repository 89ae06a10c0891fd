"""Tallies by day, with how long rewards were waited for and how many came too late.

The old sums do not say what belongs to which day, so they are made anew from assignments and
rewards, exactly. How many came too late before is not known.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TABLE = "steadyarm_tallies"
KEYS = ("key", "segment", "arm", "shard", "day")
DAY = 86_400_000_000  # microseconds
POSITIONS = 2**32
SHARD = 0
AT_ONCE = 10_000


def _table(name: str, *whole: str, **others: Any) -> sa.TableClause:
    columns = dict.fromkeys(whole, sa.BigInteger) | others
    return sa.table(name, *(sa.column(each, kind) for each, kind in columns.items()))


COUNTS = ("assigned", "rewarded", "last", "waited")
tallies = _table(TABLE, *KEYS, *COUNTS, sums=sa.Text, squares=sa.Text)
assignments = _table("steadyarm_assignments", "key", "number", "arm", "created")
rewards = _table("steadyarm_rewards", "key", "number", "created", reward=sa.Double)


def upgrade() -> None:
    """Add the columns, and the day to the primary key; count anew."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        _make()
    else:
        _alter()  # first, for its lock: nobody adds to what is being counted
    rows = [*_counted(connection)]
    for first in range(0, len(rows), AT_ONCE):
        connection.execute(sa.insert(tallies), rows[first : first + AT_ONCE])


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _alter() -> None:
    """Not made anew: others may have been given rights to the table."""
    op.add_column(TABLE, _count("waited"))
    op.add_column(TABLE, _count("late"))
    op.execute(sa.delete(tallies))
    op.add_column(TABLE, sa.Column("day", sa.Integer, nullable=False))
    op.drop_constraint(f"{TABLE}_pkey", TABLE, type_="primary")
    op.create_primary_key(f"{TABLE}_pkey", TABLE, [*KEYS])


def _make() -> None:
    """SQLite cannot change a primary key."""
    op.drop_table(TABLE)
    kinds = {"key": sa.BigInteger}
    op.create_table(
        TABLE,
        *(
            sa.Column(name, kinds.get(name, sa.Integer), primary_key=True, autoincrement=False)
            for name in KEYS
        ),
        sa.Column("assigned", sa.BigInteger, nullable=False),
        sa.Column("rewarded", sa.BigInteger, nullable=False),
        sa.Column("sums", sa.Text, nullable=False),
        sa.Column("squares", sa.Text, nullable=False),
        sa.Column("last", sa.BigInteger, nullable=True),
        _count("waited"),
        _count("late"),
    )


def _counted(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Rows of tallies. Equal rewards come as one, since most tests know few different ones."""
    whole = sa.BigInteger
    segment = assignments.c.number // sa.literal(POSITIONS, whole)
    day = assignments.c.created // sa.literal(DAY, whole)
    waited = (rewards.c.created - assignments.c.created) // sa.literal(1000, whole)
    place = (assignments.c.key, segment.label("segment"), assignments.c.arm, day.label("day"))
    found = (
        sa.select(
            *place,
            rewards.c.reward,
            sa.func.count().label("times"),
            sa.func.max(assignments.c.created).label("last"),
            sa.func.sum(sa.case((waited > 0, waited), else_=0)).label("waited"),
        )
        .select_from(
            assignments.outerjoin(
                rewards,
                (rewards.c.key == assignments.c.key) & (rewards.c.number == assignments.c.number),
            )
        )
        .group_by(*(sa.literal_column(str(i)) for i in range(1, 6)))
        .order_by(*(sa.literal_column(str(i)) for i in range(1, 5)))
        .execution_options(yield_per=AT_ONCE)
    )
    for at, group in groupby(connection.execute(found), _place):
        rows = [*group]
        told = [(Fraction(row.reward), row.times) for row in rows if row.reward is not None]
        yield {
            **dict(zip(("key", "segment", "arm", "day"), at, strict=True)),
            "shard": SHARD,
            "assigned": sum(row.times for row in rows),
            "rewarded": sum(times for _, times in told),
            "sums": str(sum((value * times for value, times in told), Fraction(0))),
            "squares": str(sum((value * value * times for value, times in told), Fraction(0))),
            "last": max(row.last for row in rows),
            "waited": sum(int(row.waited) for row in rows),
        }


def _place(row: sa.Row[Any]) -> tuple[int, ...]:
    return row.key, row.segment, row.arm, row.day
