"""Metrics beside the reward: their events, and the sums of each."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def _key(name: str, kind: Any = sa.BigInteger) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "steadyarm_events",
        _key("key"),
        _key("number"),
        _key("metric", sa.Text),
        _key("event", sa.Text),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "steadyarm_series",
        _key("key"),
        _key("segment", sa.Integer),
        _key("arm", sa.Integer),
        _key("shard", sa.Integer),
        _key("day", sa.Integer),
        _key("series", sa.Text),
        sa.Column("rewarded", sa.BigInteger, nullable=False),
        sa.Column("sums", sa.Text, nullable=False),
        sa.Column("squares", sa.Text, nullable=False),
        sa.Column("late", sa.BigInteger, nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False),
    )
