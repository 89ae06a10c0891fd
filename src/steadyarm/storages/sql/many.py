"""Inserts that stop at what is there; and many rows in one statement of PostgreSQL, as JSON.

A statement is the same for any number of rows, so it is read and planned once. And it is planned
well while the tables grow: with a list of values the server may settle for reading all of a table
that it thinks is small. JSON is written faster than the driver writes arrays; numbers keep all
their digits in it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Table,
    Text,
    bindparam,
    case,
    cast,
    column,
    func,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite

from steadyarm.storages.sql.schema import assignments, rewards

__all__ = ["if_free", "insert_new", "insert_rows", "lookup"]


def if_free(table: Table, returned: Column[Any]) -> dict[str, Any]:
    """By dialect, inserts that give nothing back if a name is taken, whoever took it."""
    return {
        name: dialect.insert(table).on_conflict_do_nothing().returning(returned)
        for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
    }


def insert_rows(table: Table) -> postgresql.Insert:
    """Insert "rows" in their order."""
    names = (column(c.name, c.type) for c in table.c)
    rows = func.json_to_recordset(_json("rows")).table_valued(*names)
    chosen = select(*rows.render_derived(with_types=True).c)
    return postgresql.insert(table).from_select([c.name for c in table.c], chosen)


def insert_new(table: Table, *returned: ColumnElement[Any]) -> Any:
    """Insert "rows" that are not there yet; gives columns of those that were not."""
    return insert_rows(table).on_conflict_do_nothing().returning(*returned)


def lookup(by: Column[Any], *conditions: ColumnElement[bool]) -> Any:
    """Assignments with their rewards, by "values", which are numbers or units."""
    value = column("value", Text)
    elements = func.json_array_elements_text(_json("values"))
    wanted = elements.table_valued(value, name="wanted").render_derived()
    # The limits, beyond which there is nothing, make the server look up one after the other.
    found = (
        select(assignments)
        .where(
            assignments.c.key == bindparam("key"),
            by == cast(wanted.c.value, by.type),
            *conditions,
        )
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
        func.coalesce(told.c.at, told.c.created).label("rewarded"),
        case((told.c.at.is_not(None), told.c.created)).label("received"),
        found.c.excluded,
    ).select_from(wanted.join(found, true()).outerjoin(told, true()))


def _json(name: str) -> ColumnElement[Any]:
    return cast(bindparam(name, type_=Text), postgresql.JSON)
