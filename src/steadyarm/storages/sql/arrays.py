"""Many rows in one statement of PostgreSQL: an array for each column.

A statement is the same for any number of rows, so it is read and planned once. And it is planned
well while the tables grow: with a list of values the server may settle for reading all of a table
that it thinks is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, bindparam, column, func, select, true
from sqlalchemy.dialects import postgresql

from steadyarm.storages.sql.schema import assignments, rewards

__all__ = ["columns", "insert_new", "lookup"]


def insert_new(table: Table, returned: Column[Any]) -> Any:
    """Insert rows that are not there yet, in the order given; gives a column of those that were."""
    arrays = [bindparam(c.name, type_=postgresql.ARRAY(c.type)) for c in table.c]
    names = (column(c.name, c.type) for c in table.c)
    rows = func.unnest(*arrays).table_valued(*names).render_derived()
    statement = postgresql.insert(table).from_select([c.name for c in table.c], select(*rows.c))
    return statement.on_conflict_do_nothing().returning(returned)


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as `insert_new` takes them."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def lookup(by: Column[Any], *conditions: ColumnElement[bool]) -> Any:
    """Assignments with their rewards, by an array "values" of numbers or units."""
    array = bindparam("values", type_=postgresql.ARRAY(by.type))
    value = column("value", by.type)
    wanted = func.unnest(array).table_valued(value, name="wanted").render_derived()
    # The limits, beyond which there is nothing, make the server look up one after the other.
    found = (
        select(assignments)
        .where(assignments.c.key == bindparam("key"), by == wanted.c.value, *conditions)
        .limit(1)
        .lateral("found")
    )
    told = (
        select(rewards)
        .where(rewards.c.key == found.c.key, rewards.c.number == found.c.number)
        .limit(1)
        .lateral("told")
    )
    return select(
        found.c.number,
        found.c.unit,
        found.c.arm,
        found.c.probability,
        found.c.created,
        told.c.reward,
        told.c.created.label("rewarded"),
    ).select_from(wanted.join(found, true()).outerjoin(told, true()))
