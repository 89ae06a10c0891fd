"""Segments of large sets of arms: which ones they play. NULL, as for all older ones: all."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column."""
    op.add_column("steadyarm_segments", sa.Column("arms", sa.Text, nullable=True))
