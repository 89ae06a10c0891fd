"""Experiments, their segments, assignments and rewards."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _key(name: str, kind: Any = sa.BigInteger) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _column(name: str, kind: Any, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=null)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "steadyarm_experiments",
        sa.Column("key", SERIAL, primary_key=True),
        _column("name", sa.Text),
        _column("tag", sa.Text),
        _column("state", sa.Text),
        _column("config", sa.Text),
        _column("policy_state", sa.Text),
        _column("created", sa.BigInteger),
        _column("version", sa.Integer),
        _column("observed", sa.Integer),
        sa.UniqueConstraint("name", name="steadyarm_experiments_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "steadyarm_segments",
        _key("key"),
        _key("index", sa.Integer),
        _column("weights", sa.Text),
        _column("rounds", sa.BigInteger),
        _column("order", sa.Text),
        _column("block", sa.BigInteger),
        _column("reference", sa.Text, null=True),
        _column("carried_on", sa.Boolean),
        _column("superseded", sa.Boolean),
        _column("policy_version", sa.Integer),
        _column("opened", sa.BigInteger),
        _column("handed", sa.BigInteger),
        _column("closed", sa.Integer, null=True),
        _column("closed_at", sa.BigInteger, null=True),
    )
    op.create_table(
        "steadyarm_tallies",
        _key("key"),
        _key("segment", sa.Integer),
        _key("arm", sa.Integer),
        _key("shard", sa.Integer),
        _column("assigned", sa.BigInteger),
        _column("rewarded", sa.BigInteger),
        _column("sums", sa.Text),
        _column("squares", sa.Text),
        _column("last", sa.BigInteger, null=True),
    )
    op.create_table(
        "steadyarm_assignments",
        _key("key"),
        _key("number"),
        _column("unit", sa.Text),
        _column("repeat", sa.BigInteger),
        _column("arm", sa.Integer),
        _column("probability", sa.Double),
        _column("created", sa.BigInteger),
        sa.UniqueConstraint("key", "unit", "repeat", name="steadyarm_assignments_unit"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "steadyarm_rewards",
        _key("key"),
        _key("number"),
        _column("reward", sa.Double),
        _column("created", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "steadyarm_leases",
        sa.Column("id", SERIAL, primary_key=True),
        _column("key", sa.BigInteger),
        _column("segment", sa.Integer),
        _column("start", sa.BigInteger),
        _column("stop", sa.BigInteger),
        _column("expires", sa.BigInteger),
        _column("holes", sa.Boolean),
        sqlite_autoincrement=True,
    )
