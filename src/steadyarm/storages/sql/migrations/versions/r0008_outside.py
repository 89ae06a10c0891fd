"""What experiments show outside of their tests. NULL: nothing was said of it yet."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column."""
    op.add_column("steadyarm_experiments", sa.Column("outside", sa.Text, nullable=True))
