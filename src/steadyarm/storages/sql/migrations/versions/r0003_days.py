"""Tallies by day, with how long rewards were waited for and how many came too late.

What was counted before is put on the day of the last assignment it counts; rows that count rewards
alone, on that of their segment.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TABLE, BEFORE = "steadyarm_tallies", "steadyarm_tallies_before"
KEPT = ("key", "segment", "arm", "shard", "assigned", "rewarded", "sums", "squares", "last")
DAY = 86_400_000_000  # microseconds

segments = sa.table(
    "steadyarm_segments", *(sa.column(name, sa.BigInteger) for name in ("key", "index", "opened"))
)


def upgrade() -> None:
    """Add the columns, and the day to the primary key."""
    if op.get_bind().dialect.name == "sqlite":
        _copy()
    else:
        _alter()


def _tallies(name: str, *more: str) -> sa.TableClause:
    return sa.table(name, *(sa.column(each, sa.BigInteger) for each in (*KEPT, *more)))


def _day(tallies: sa.TableClause) -> sa.ColumnElement[int]:
    others = tallies.alias("others")
    last = (
        sa.select(sa.func.max(others.c.last))
        .where(others.c.key == tallies.c.key, others.c.segment == tallies.c.segment)
        .scalar_subquery()
    )
    opened = (
        sa.select(segments.c.opened)
        .where(segments.c.key == tallies.c.key, segments.c.index == tallies.c.segment)
        .scalar_subquery()
    )
    time = sa.func.coalesce(tallies.c.last, last, opened, 0, type_=sa.BigInteger)
    return time // sa.literal(DAY, sa.BigInteger)


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _alter() -> None:
    op.add_column(TABLE, sa.Column("day", sa.Integer, nullable=True))
    op.add_column(TABLE, _count("waited"))
    op.add_column(TABLE, _count("late"))
    tallies = _tallies(TABLE, "day")
    op.execute(sa.update(tallies).values(day=_day(tallies)))
    op.alter_column(TABLE, "day", nullable=False)
    op.drop_constraint(f"{TABLE}_pkey", TABLE, type_="primary")
    op.create_primary_key(f"{TABLE}_pkey", TABLE, ["key", "segment", "arm", "shard", "day"])


def _copy() -> None:
    """SQLite cannot change a primary key; the new table is made under its final name."""
    op.rename_table(TABLE, BEFORE)
    keys = (("key", sa.BigInteger), *((n, sa.Integer) for n in ("segment", "arm", "shard", "day")))
    op.create_table(
        TABLE,
        *(sa.Column(name, kind, primary_key=True, autoincrement=False) for name, kind in keys),
        sa.Column("assigned", sa.BigInteger, nullable=False),
        sa.Column("rewarded", sa.BigInteger, nullable=False),
        sa.Column("sums", sa.Text, nullable=False),
        sa.Column("squares", sa.Text, nullable=False),
        sa.Column("last", sa.BigInteger, nullable=True),
        _count("waited"),
        _count("late"),
    )
    old = _tallies(BEFORE)
    rows = sa.select(*(old.c[name] for name in KEPT), _day(old))
    op.execute(sa.insert(_tallies(TABLE, "day")).from_select([*KEPT, "day"], rows))
    op.drop_table(BEFORE)
