"""Publishable keys: tokens for named experiments, from declared pages, at a limited rate."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns."""
    for name, kind in (
        ("experiments", sa.Text),
        ("origins", sa.Text),
        ("rate", sa.Integer),
        ("signing", sa.Text),
    ):
        op.add_column("steadyarm_tokens", sa.Column(name, kind, nullable=True))
