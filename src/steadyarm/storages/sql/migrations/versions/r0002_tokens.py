"""Tokens of the service; indices by which released positions and open segments are found."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table and the indices."""
    op.create_table(
        "steadyarm_tokens",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("hash", name="steadyarm_tokens_hash"),
    )
    op.create_index("steadyarm_leases_expires", "steadyarm_leases", ["key", "expires"])
    still_open = sa.column("closed").is_(None)
    op.create_index(
        "steadyarm_segments_open",
        "steadyarm_segments",
        ["key", "index"],
        sqlite_where=still_open,
        postgresql_where=still_open,
    )
