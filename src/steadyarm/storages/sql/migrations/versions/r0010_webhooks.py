"""Webhooks: endpoints, what was noticed of experiments, and messages on their way."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def _serial() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables."""
    whole, words = sa.BigInteger, sa.Text
    op.create_table(
        "steadyarm_webhooks",
        sa.Column("id", words, primary_key=True),
        sa.Column("url", words, nullable=False),
        sa.Column("secrets", words, nullable=False),
        sa.Column("events", words, nullable=False),
        sa.Column("experiments", words, nullable=False),
        sa.Column("format", words, nullable=False),
        sa.Column("private", sa.Boolean, nullable=False),
        sa.Column("created", whole, nullable=False),
        sa.Column("disabled", whole, nullable=True),
        sa.Column("note", words, nullable=False),
    )
    op.create_table(
        "steadyarm_notices",
        sa.Column("key", whole, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", words, nullable=False),
    )
    op.create_table(
        "steadyarm_deliveries",
        sa.Column("id", _serial(), primary_key=True),
        sa.Column("webhook", words, nullable=False),
        sa.Column("message", words, nullable=False),
        sa.Column("type", words, nullable=False),
        sa.Column("experiment", words, nullable=True),
        sa.Column("body", words, nullable=False),
        sa.Column("created", whole, nullable=False),
        sa.Column("state", words, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", whole, nullable=False),
        sa.Column("leased", whole, nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("note", words, nullable=False),
        sa.Column("ended", whole, nullable=True),
        sa.Column("began", whole, nullable=False),
        sqlite_autoincrement=True,
    )
    waiting = sa.column("state") == "waiting"
    op.create_index(
        "steadyarm_deliveries_waiting",
        "steadyarm_deliveries",
        ["due"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    op.create_index("steadyarm_deliveries_webhook", "steadyarm_deliveries", ["webhook", "id"])
