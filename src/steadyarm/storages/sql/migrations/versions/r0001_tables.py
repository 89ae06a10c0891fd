"""All tables.

There is no release yet, so this revision makes the tables as `schema` has them now. Its statements
are written out, and further revisions follow, with the first release.
"""

from alembic import op

from steadyarm.storages.sql.schema import audit, metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables, and let the database refuse changes of the audit log."""
    metadata.create_all(op.get_bind())
    if op.get_bind().dialect.name == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {audit.name}_{what.lower()} BEFORE {what} ON {audit.name} "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {audit.name}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {audit.name}_keep BEFORE UPDATE OR DELETE ON {audit.name} "
        f"FOR EACH ROW EXECUTE FUNCTION {audit.name}_refuse()"
    )
