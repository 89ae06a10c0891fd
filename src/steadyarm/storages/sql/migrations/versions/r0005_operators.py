"""What operators need: when rewards happened, corrections, an audit log, sessions, marks.

A storage that has a token now is marked as closed: it stays so when its tokens are removed.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

AUDIT = "steadyarm_audit"


def _serial() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add columns and tables."""
    whole, words = sa.BigInteger, sa.Text
    op.add_column("steadyarm_rewards", sa.Column("at", whole, nullable=True))
    op.add_column("steadyarm_assignments", sa.Column("excluded", whole, nullable=True))
    op.add_column(
        "steadyarm_tallies", sa.Column("excluded", whole, nullable=False, server_default="0")
    )
    op.create_table(
        "steadyarm_marks",
        sa.Column("name", words, primary_key=True),
        sa.Column("value", whole, nullable=False),
        sa.Column("note", words, nullable=True),
    )
    op.create_table(
        "steadyarm_sessions",
        sa.Column("id", words, primary_key=True),
        sa.Column("token", words, nullable=False),
        sa.Column("created", whole, nullable=False),
        sa.Column("expires", whole, nullable=False),
    )
    op.create_table(
        AUDIT,
        sa.Column("id", _serial(), primary_key=True),
        sa.Column("created", whole, nullable=False),
        sa.Column("author", words, nullable=False),
        sa.Column("action", words, nullable=False),
        sa.Column("experiment", words, nullable=True),
        sa.Column("detail", words, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "steadyarm_corrections",
        sa.Column("key", whole, primary_key=True, autoincrement=False),
        sa.Column("entry", whole, primary_key=True, autoincrement=False),
        sa.Column("number", whole, primary_key=True, autoincrement=False),
        sa.Column("kind", words, nullable=False),
        sa.Column("metric", words, nullable=False, server_default="reward"),
        sa.Column("before", sa.Double, nullable=True),
        sa.Column("after", sa.Double, nullable=True),
        sa.Column("closed", sa.Boolean, nullable=False),
    )
    _only_append()
    op.execute(
        "INSERT INTO steadyarm_marks (name, value) SELECT 'closed', min(created) "
        "FROM steadyarm_tokens HAVING count(*) > 0"
    )


def _only_append() -> None:
    """Let the database itself refuse to change the audit log."""
    if op.get_bind().dialect.name == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {AUDIT}_{what.lower()} BEFORE {what} ON {AUDIT} "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {AUDIT}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {AUDIT}_keep BEFORE UPDATE OR DELETE ON {AUDIT} "
        f"FOR EACH ROW EXECUTE FUNCTION {AUDIT}_refuse()"
    )
