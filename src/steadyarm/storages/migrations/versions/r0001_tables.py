"""All tables of release 1.0.0, as `schema` defines them.

Before the next revision, write the statements of this one out, so that `schema` can change.
"""

from alembic import op

from steadyarm.storages.schema import create_tables

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    create_tables(op.get_bind())
