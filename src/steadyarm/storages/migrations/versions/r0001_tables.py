"""All tables.

There is no release yet, so this revision makes the tables as `schema` has them now. Its statements
are written out, and further revisions follow, with the first release.
"""

from alembic import op

from steadyarm.storages.schema import create_tables

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    create_tables(op.get_bind())
