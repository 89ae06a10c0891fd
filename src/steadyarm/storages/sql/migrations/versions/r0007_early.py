"""Rewards so far of earlier segments, on which a segment's allocation rests. NULL: on none."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column."""
    op.add_column("steadyarm_segments", sa.Column("early", sa.Text, nullable=True))
