"""An erased unit is gone from every table, and from the file that SQLite keeps."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import create_engine, inspect, text

import steadyarm as sa


def _everywhere(url: str, words: str) -> list[str]:
    """Tables and columns with that text in them."""
    engine = create_engine(url)
    found = []
    with engine.connect() as connection:
        for table in inspect(engine).get_table_names():
            for row in connection.execute(text(f'SELECT * FROM "{table}"')).mappings():
                found += [f"{table}.{name}" for name, value in row.items() if words in str(value)]
    engine.dispose()
    return found


def test_an_erased_unit_leaves_no_trace(url: str) -> None:
    who = "Émilie du Châtelet"
    live = sa.create_experiment("test", ["A", "B"], sa.Steady(), 4000, url, missing="drop")
    live.ask_many([f"somebody-{i}" for i in range(700)])
    first = live.ask(who)
    live.ask_many([f"somebody else-{i}" for i in range(700)])
    live.exclude(unit=who, reason="a monitor", by="ada")
    assert _everywhere(url, who) == ["steadyarm_assignments.unit"]
    done = live.erase(who, by="ada")
    assert done.assignments == 1
    assert _everywhere(url, who) == []
    live.tell(first.id, 1.0)
    assert live.replay().agrees
    assert live.ask(who).id != first.id
    live.erase(who)
    live.close()
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        for file in path.parent.glob(f"{path.name}*"):
            assert who.encode() not in file.read_bytes()
