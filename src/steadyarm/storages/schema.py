"""The tables.

JSON is stored as text, because Python reads back the floats that it writes bit for bit. There are
no foreign keys, because they take locks. Each change of the tables is also a revision in
`migrations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    FromClause,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    case,
    column,
    func,
)

if TYPE_CHECKING:
    from sqlalchemy import Row

AnyRow: TypeAlias = "Row[*tuple[Any, ...]]"

PREFIX = "steadyarm_"
VERSION_TABLE = f"{PREFIX}version"
# Oldest first; listed here so that opening a storage needs no Alembic.
REVISIONS = ("0001",)

metadata = MetaData()
# Alembic's own table.
version_table = Table(
    VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True)
)
serial = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only INTEGER columns


def _column(name: str, kind: Any, null: bool = False) -> Column[Any]:
    return Column(name, kind, nullable=null)


def _key(name: str, kind: Any = BigInteger) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _count(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False, server_default="0")


experiments = Table(
    f"{PREFIX}experiments",
    metadata,
    Column("key", serial, primary_key=True),
    _column("name", Text),
    _column("tag", Text),
    _column("state", Text),
    _column("config", Text),
    _column("policy_state", Text),
    _column("created", BigInteger),
    _column("version", Integer),
    _column("observed", Integer),
    _column("outside", Text, null=True),  # what is shown outside of the test; NULL for nothing
    _column("layer", Text, null=True),  # of tests that share no unit; NULL for none
    _column("place", Double, null=True),  # where its share of the layer begins, from 0 to 1
    _column("reopened", Integer, null=True),  # see `ExperimentHead`; NULL if it never was
    UniqueConstraint("name", name=f"{PREFIX}experiments_name"),
    sqlite_autoincrement=True,
)

segments = Table(
    f"{PREFIX}segments",
    metadata,
    _key("key"),
    _key("index", Integer),
    _column("weights", Text),
    _column("rounds", BigInteger),
    _column("order", Text),
    _column("block", BigInteger),
    _column("reference", Text, null=True),
    _column("carried_on", Boolean),
    _column("superseded", Boolean),
    _column("policy_version", Integer),
    _column("opened", BigInteger),
    _column("used", BigInteger),
    _column("closed", Integer, null=True),
    _column("closed_at", BigInteger, null=True),
    _column("arms", Text, null=True),  # the arms of the weights; NULL for all arms
    _column("early", Text, null=True),  # `SegmentRecord.early`; NULL for none
    # Only a few of many segments are open.
    Index(
        f"{PREFIX}segments_open",
        "key",
        "index",
        sqlite_where=column("closed").is_(None),
        postgresql_where=column("closed").is_(None),
    ),
)

# Processes add to the rows of their own shard, so that they do not queue; readers sum all shards.
# `day` is that of the assignments, `waited` and `late` are as in `DaySums`;
# the `excluded` ones among the assigned count nowhere else.
tallies = Table(
    f"{PREFIX}tallies",
    metadata,
    _key("key"),
    _key("segment", Integer),
    _key("arm", Integer),
    _key("shard", Integer),
    _key("day", Integer),
    _column("assigned", BigInteger),
    _column("rewarded", BigInteger),
    _column("sums", Double),
    _column("squares", Double),
    _column("last", BigInteger, null=True),
    _count("waited"),
    _count("late"),
    _count("excluded"),
)

ASSIGNMENTS_UNIT = f"{PREFIX}assignments_unit"
# `repeat` is 0 if units are sticky and number + 1 if not: one unique index serves both.
assignments = Table(
    f"{PREFIX}assignments",
    metadata,
    _key("key"),
    _key("number"),
    _column("unit", Text),
    _column("repeat", BigInteger),
    _column("arm", Integer),
    _column("probability", Double),
    _column("created", BigInteger),
    _column("excluded", BigInteger, null=True),  # by which entry of the audit log
    Index(ASSIGNMENTS_UNIT, "key", "unit", "repeat", unique=True),
    sqlite_with_rowid=False,
)

rewards = Table(
    f"{PREFIX}rewards",
    metadata,
    _key("key"),
    _key("number"),
    _column("reward", Double),
    _column("created", BigInteger),  # when it arrived
    _column("at", BigInteger, null=True),  # when it happened; NULL: when it arrived
    sqlite_with_rowid=False,
)

# Events of metrics, as they were reported; `rewards` has what those of the reward count as.
events = Table(
    f"{PREFIX}events",
    metadata,
    _key("key"),
    _key("number"),
    _key("metric", Text),
    _key("event", Text),
    _column("value", Double),
    _column("created", BigInteger),  # when it arrived
    _column("at", BigInteger, null=True),  # when it happened; NULL: when it arrived
    sqlite_with_rowid=False,
)

# The sums of metrics and of their products, as `tallies` has those of the reward; see `SeriesSums`.
# `events`: how many were recorded; of a reward that is made of events this is all there is.
series = Table(
    f"{PREFIX}series",
    metadata,
    _key("key"),
    _key("segment", Integer),
    _key("arm", Integer),
    _key("shard", Integer),
    _key("day", Integer),
    _key("series", Text),
    _column("rewarded", BigInteger),
    _column("sums", Double),
    _column("squares", Double),
    _column("late", BigInteger),
    _column("events", BigInteger),
)

tokens = Table(
    f"{PREFIX}tokens",
    metadata,
    Column("name", Text, primary_key=True),
    _column("hash", Text),
    _column("scope", Text),
    _column("created", BigInteger),
    _column("experiments", Text, null=True),
    _column("origins", Text, null=True),
    _column("rate", Integer, null=True),
    _column("signing", Text, null=True),
    _column("expires", BigInteger, null=True),
    _column("used", BigInteger, null=True),
    UniqueConstraint("hash", name=f"{PREFIX}tokens_hash"),
)

# People who are signed in to the dashboard: hashes of the cookie's id and of the token.
sessions = Table(
    f"{PREFIX}sessions",
    metadata,
    Column("id", Text, primary_key=True),
    _column("token", Text),
    _column("created", BigInteger),
    _column("expires", BigInteger),
)

# Single facts of the storage: "closed" (when its first token was made), "heartbeat", turns, and the
# latest events that were refused.
CLOSED = "closed"
REFUSED = "refused "
marks = Table(
    f"{PREFIX}marks",
    metadata,
    Column("name", Text, primary_key=True),
    _column("value", BigInteger),
    _column("note", Text, null=True),
)


def refusals_of(key: int | None = None) -> ColumnElement[bool]:
    """Whether a mark is about an event that was refused.

    key : by which experiment; 0 for events that none measures; None for all
    """
    return marks.c.name.startswith(REFUSED if key is None else f"{REFUSED}{key} ")


# Who did what, when; a trigger refuses to change or delete a row. It must name no units, because
# they are erased on request.
audit = Table(
    f"{PREFIX}audit",
    metadata,
    Column("id", serial, primary_key=True),
    _column("created", BigInteger),
    _column("author", Text),
    _column("action", Text),
    _column("experiment", Text, null=True),
    _column("detail", Text),
    sqlite_autoincrement=True,
)

# What an entry of the audit log changed, assignment by assignment. `closed`: the policy had
# observed the segment before.
corrections = Table(
    f"{PREFIX}corrections",
    metadata,
    _key("key"),
    _key("entry"),
    _key("number"),
    _column("kind", Text),
    Column("metric", Text, nullable=False, server_default="reward"),
    _column("before", Double, null=True),
    _column("closed", Boolean),
)


# Endpoints of webhooks; lists are JSON. A secret is stored as it is, since it has to sign.
webhooks = Table(
    f"{PREFIX}webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    _column("url", Text),
    _column("secret", Text),
    _column("events", Text),
    _column("experiments", Text),
    _column("format", Text),
    _column("private", Boolean),
    _column("created", BigInteger),
)

# What was noticed of an experiment so far; see `Notice`.
notices = Table(
    f"{PREFIX}notices",
    metadata,
    _key("key"),
    _column("version", Integer),
    _column("state", Text),
)

# Messages that wait until an endpoint accepts them; `due` is the time of the next attempt.
outbox = Table(
    f"{PREFIX}outbox",
    metadata,
    Column("id", serial, primary_key=True),
    _column("webhook", Text),
    _column("message", Text),
    _column("body", Text),
    _column("created", BigInteger),
    _column("due", BigInteger),
    Column("attempts", Integer, nullable=False, default=0),
    Column("note", Text, nullable=False, default=""),
    sqlite_autoincrement=True,
)


def create_tables(connection: Connection) -> None:
    """Create all tables; the database itself refuses changes of the audit log."""
    metadata.create_all(connection)
    if connection.dialect.name == "sqlite":
        for what in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER {audit.name}_{what.lower()} BEFORE {what} ON {audit.name} "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            )
        return
    connection.exec_driver_sql(
        f"CREATE FUNCTION {audit.name}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
    )
    connection.exec_driver_sql(
        f"CREATE TRIGGER {audit.name}_keep BEFORE UPDATE OR DELETE ON {audit.name} "
        f"FOR EACH ROW EXECUTE FUNCTION {audit.name}_refuse()"
    )


# The tables of an experiment, in the order in which its rows are deleted: what an interrupted
# deletion has left is found by the segments.
OWNED = (events, rewards, assignments, corrections, series, tallies, notices, segments)


# Parts of statements


def log_columns(assigned: FromClause, rewarded: FromClause) -> tuple[ColumnElement[Any], ...]:
    """The columns of a `LogRow` in the order of its fields, from the columns of two tables."""
    return (
        *(assigned.c[name] for name in ("number", "unit", "arm", "probability", "created")),
        rewarded.c.reward,
        func.coalesce(rewarded.c.at, rewarded.c.created),
        case((rewarded.c.at.is_not(None), rewarded.c.created)),
        assigned.c.excluded,
    )


def same_assignment(assigned: FromClause, of: FromClause = rewards) -> ColumnElement[bool]:
    """Whether a reward, or another row that names an assignment, belongs to that one."""
    return and_(of.c.key == assigned.c.key, of.c.number == assigned.c.number)
