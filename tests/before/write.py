"""Writes the files of this folder: what SteadyArm left on disk before its layout was rebuilt.

This is not a test. It was run once, at commit 3811ca1, from the root of the repository::

    python -m tests.before.write

Do not run it again: the files stand for those of users, and must stay as they are. (Experiments
have random tags, so it would write others each time.) All of them are packed by gzip:

``session-*.json``
    sessions in the middle of a test, as `Session.to_json` wrote them
``database.db``
    an SQLite database with an experiment of each kind
``older-0002.db``, ``older-0004.db``
    databases at older revisions, written by the code of that time. With ``src`` of commit c95bd59,
    and then of 8da06c4, on PYTHONPATH: ``python tests/before/write.py older FILE``
``exported.csv``, ``exported.csv.experiment.json``
    an experiment as `Experiment.export` wrote it
``openapi.json``
    the OpenAPI document of the service with the dashboard
``expected.json``
    what happens when all of these are read and carried on, as `play` does it
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import steadyarm as sa

if __name__ == "__main__" and not __package__:  # older code runs the file, not the module
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.before import play
from tests.before.play import FOLDER, Clock, reward

FACTORS = {"colour": ["red", "blue"], "text": ["short", "long", "none"], "picture": ["no", "yes"]}
SLOTS = {f"slot {i}": ["off", "on"] for i in range(15)}
WHY = "recorded for the tests"
Make = Callable[[str, Clock], dict[str, Any]]


def factorial() -> sa.ArmSet:
    """Twelve variants of three factors."""
    return sa.ArmSet.factorial(FACTORS)


def features() -> sa.ArmSet:
    """Eight variants, described by numbers of which some depend on others."""
    shares, years = np.random.default_rng(3).random((8, 2)), 2000.0 + np.arange(8.0)
    columns = [*shares.T, years, 1e6 * shares.sum(axis=1), years - shares[:, 0]]
    return sa.ArmSet.from_features(np.column_stack(columns))


def large() -> sa.ArmSet:
    """32,768 variants, of which a segment plays a few."""
    return sa.ArmSet.factorial(SLOTS, 1)


# Sessions


def sessions() -> dict[str, sa.Session]:
    """Sessions in the middle of a test; some rewards are pending or will never come.

    That of the large set stands in a long segment: the next assignments come from weights that are
    in the file, whatever solver computes those of later segments.
    """
    bundles = sa.ArmSet.bundles(["p", "q", "r", "s", "t"], size=2)
    return {
        "steady": _asked(sa.Session(sa.Steady(), factorial(), 300, 11), 140, {120, 137, 139}),
        "p1-rage": _asked(sa.Session(sa.P1RAGE(), bundles, 300, 12, "minimize"), 150, {140, 149}),
        "peace": _asked(sa.Session(sa.Peace(), factorial(), 300, 13), 130, {129}),
        "linear-thompson": _asked(sa.Session(sa.LinearThompson(), features(), 250, 14), 100, {99}),
        "large": _asked(sa.Session(sa.Steady(), large(), 6400, 15), 330, {320}),
    }


def _asked(session: sa.Session, visits: int, pending: set[int]) -> sa.Session:
    for t in range(visits):
        assignment = session.ask()
        if t == 50 and not session.policy.waits:
            session.forget(assignment)
        elif t not in pending:
            session.tell(assignment, reward(assignment.arm, t))
    return session


# The database


def running(url: str, clock: Clock) -> dict[str, Any]:
    """Rewards with a window: every fifth is missing, and the last ones may still come."""
    live = sa.create_experiment(
        "running",
        ["A", "B", "C", "D"],
        sa.Steady(),
        400,
        url,
        seed=21,
        reward_range=(0.0, 1.25),
        reward_window="30m",
        reward_grace="10m",
        clock=clock,
    )
    with live:
        _visit(live, clock, 170, missing=range(4, 170, 5))
    return {"again": ["visitor 0", "visitor 169"], "late": ["visitor 9", "visitor 164"]}


def stopped(url: str, clock: Clock) -> dict[str, Any]:
    """Stopped by hand with some rewards missing, which count as the mean of others."""
    live = _created("stopped", url, clock, sa.P1RAGE(), seed=22)
    with live:
        _visit(live, clock, 150, missing=(95, 120, 149))
        live.stop(by="someone")
    return {"again": ["visitor 3", "visitor 149"], "late": ["visitor 149"]}


def corrected(url: str, clock: Clock) -> dict[str, Any]:
    """Every kind of correction, in closed segments and in open ones."""
    live = _created("corrected", url, clock, sa.Steady(), seed=23)
    with live:
        _visit(live, clock, 90)
        live.void("visitor 4", reason=WHY, by="someone")
        live.void("visitor 89", reason=WHY)
        live.correct("visitor 5", 0.125, reason=WHY)
        live.exclude(unit="visitor 6", reason=WHY)
        since = int((play.START + 60 * 20) * 1e6)
        live.exclude(since=since, until=since + 300_000_000, reason=WHY, by="someone")
        undone = live.exclude(unit="visitor 80", reason=WHY)
        live.include(undone.entry, reason=WHY)
        live.erase("visitor 7", reason=WHY)
        _visit(live, clock, 40, first=90, missing=(125, 129))
        live.void("visitor 128", reason=WHY)
    back = ["visitor 4", "visitor 6", "visitor 7", "visitor 89"]
    late = ["visitor 4", "visitor 7", "visitor 125", "visitor 128", "visitor 129"]
    return {"again": back, "late": late}


def leased(url: str, clock: Clock) -> dict[str, Any]:
    """Some positions are on lease: a few were used and reported, the others not yet."""
    live = _created("leased", url, clock, sa.Steady(), seed=24)
    with live:
        _visit(live, clock, 50)
        (lease,) = live.lease(8, seconds=600.0)
        used = range(lease.start, lease.start + 3)
        when = int(clock() * 1e6)
        early = [f"early {position}" for position in used]
        live.report(lease.id, [*zip(used, early, [when] * 3, strict=True)])
        _visit(live, clock, 5, first=50)
        left = list(range(used.stop, lease.stop))[:3]
    return {"again": early, "late": early, "lease": {"id": lease.id, "positions": left}}


def many_visits(url: str, clock: Clock) -> dict[str, Any]:
    """Units that come back: each visit is drawn anew, and rewards are told by id."""
    live = _created("many-visits", url, clock, sa.P1RAGE(), seed=25, sticky="none")
    with live:
        _visit(live, clock, 98, units=17)
        ids = [live.ask(f"visitor {t}").id for t in (1, 1, 2)]
    return {"again": [], "late": [*ids, "visitor 1"]}


def units(url: str, clock: Clock) -> dict[str, Any]:
    """Units with all kinds of names keep their variants."""
    names = ["é", "名前", "a" * 512, "with space ", "1-2-3-abcdef", "'; --", "0"]
    live = _created("units", url, clock, sa.LinearThompson(), seed=26, direction="minimize")
    with live:
        _visit(live, clock, 80)
        for t, unit in enumerate(names):
            assignment = live.ask(unit)
            if t % 2 == 0:
                live.tell(unit, reward(assignment.arm, t))
    return {"again": names, "late": names}


def factorial_one(url: str, clock: Clock) -> dict[str, Any]:
    """Factors with a control that has a fixed share, and a least share for others."""
    live = sa.create_experiment(
        "factorial",
        factorial(),
        sa.Steady(),
        500,
        url,
        seed=27,
        reward_window="15m",
        missing="drop",
        control={"colour=red, text=short, picture=no": 0.2},
        min_share=0.01,
        clock=clock,
    )
    with live:
        _visit(live, clock, 200, missing=range(10, 200, 11))
    return {"again": ["visitor 10"], "late": ["visitor 10", "visitor 197"]}


def epochs(url: str, clock: Clock) -> dict[str, Any]:
    """A policy of epochs, in the second one."""
    live = _created("epochs", url, clock, sa.Peace(), seed=28)
    with live:
        _visit(live, clock, 130, missing=(128,))
    return {"again": ["visitor 128"], "late": ["visitor 128"]}


def of_many(url: str, clock: Clock) -> dict[str, Any]:
    """A large set in a long segment, so that no new design is needed for the next assignments."""
    live = sa.create_experiment(
        "large", large(), sa.Steady(), 6400, url, seed=29, missing="drop", clock=clock
    )
    with live:
        _visit(live, clock, 330, missing=(329,))
    return {"again": ["visitor 0"], "late": ["visitor 329"]}


def draft(url: str, clock: Clock) -> dict[str, Any]:
    """Created, and not started."""
    _created("draft", url, clock, sa.Steady(), seed=30, start=False).close()
    return {"again": [], "late": []}


def archived(url: str, clock: Clock) -> dict[str, Any]:
    """Over for good: neither assignments nor rewards."""
    live = _created("archived", url, clock, sa.GBAI(), seed=31)
    with live:
        _visit(live, clock, 60, missing=(39, 59))
        live.stop()
        live.archive()
    return {"again": ["visitor 9"], "late": ["visitor 59"]}


MAKERS: dict[str, Make] = {
    "running": running,
    "stopped": stopped,
    "corrected": corrected,
    "leased": leased,
    "many-visits": many_visits,
    "units": units,
    "factorial": factorial_one,
    "epochs": epochs,
    "large": of_many,
    "draft": draft,
    "archived": archived,
}


def _created(
    name: str, url: str, clock: Clock, policy: sa.Policy[Any], **given: Any
) -> sa.Experiment:
    arms = ["A", "B", "C", "D", "E"]
    settings: dict[str, Any] = {"missing": "drop", "clock": clock} | given
    return sa.create_experiment(name, arms, policy, 300, url, **settings)


def _visit(
    live: sa.Experiment,
    clock: Clock,
    visits: int,
    first: int = 0,
    missing: Collection[int] = (),
    units: int | None = None,
) -> None:
    """Visits a minute apart; some bring no reward."""
    for t in range(first, first + visits):
        clock.now += 60.0
        assignment = live.ask(f"visitor {t if units is None else t % units}")
        if t not in missing:
            live.tell(assignment, reward(assignment.arm, t))


def older(path: Path) -> None:
    """A database of the older code that is on PYTHONPATH.

    Numerical details have changed since revision 0002, so its experiments are of those kinds that
    today's code still computes to the same bit.
    """
    clock = Clock()
    many = ["A", "B", "C", "D"]
    made: list[tuple[str, sa.Policy[Any], Any]] = [
        ("steady", sa.Steady(), many),
        ("factorial", sa.P1RAGE(), factorial()),
    ]
    if "0002" in path.name:
        made = [
            ("p1-rage", sa.P1RAGE(), many),
            ("linear-thompson", sa.LinearThompson(), factorial()),
        ]
    for number, (name, policy, arms) in enumerate(made):
        settings: dict[str, Any] = {"seed": 40 + number, "missing": "drop", "clock": clock}
        live = sa.create_experiment(name, arms, policy, 200, play.url_of(path), **settings)
        with live:
            _visit(live, clock, 90, missing=(87,))
    pack(path, path.name)


# Writing


def pack(path: Path, name: str) -> None:
    """Write a database into this folder, without what only concerns this machine."""
    database = sqlite3.connect(path)
    has_marks = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'steadyarm_marks'")
    if has_marks.fetchone():
        database.execute("DELETE FROM steadyarm_marks WHERE name = 'clock'")
        database.commit()
    database.execute("PRAGMA journal_mode = DELETE")
    database.execute("VACUUM")
    database.close()
    store(name, path.read_bytes())


def store(name: str, content: bytes) -> None:
    """Write a file into this folder, packed by gzip."""
    (FOLDER / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))


def write_sessions() -> dict[str, Any]:
    """The files of sessions; what is expected of them."""
    found = {}
    for name, session in sessions().items():
        text = session.to_json()
        store(f"session-{name}.json", text.encode())
        found[name] = play.session_outcome(text, whole=name != "large")
    return found


def write_database(folder: Path) -> dict[str, Any]:
    """The database and the export; how each experiment is carried on, and what is expected."""
    path = folder / play.DATABASE
    how = {}
    for name, make in MAKERS.items():
        clock = Clock()
        given = make(play.url_of(path), clock)
        how[name] = {"now": clock.now, "lease": None} | given
    with sa.load_experiment("corrected", play.url_of(path)) as live:
        live.export(folder / play.EXPORT[0])
    for file in play.EXPORT:
        store(file, (folder / file).read_bytes())
    pack(path, play.DATABASE)
    return {
        name: {"how": given, "outcome": carried_on(folder, play.DATABASE, name, given)}
        for name, given in how.items()
    }


def carried_on(folder: Path, file: str, name: str, how: dict[str, Any]) -> dict[str, Any]:
    """What happens when an experiment of a packed database is carried on."""
    path = play.unpack(file, folder)
    outcome = play.live_outcome(name, play.url_of(path), **how)
    path.unlink()
    return outcome


def expected_of_older(folder: Path, file: str) -> dict[str, Any]:
    """What is expected of a packed database at an older revision, after its upgrade."""
    from steadyarm.storages import upgrade_storage

    path = play.unpack(file, folder)
    upgrade_storage(play.url_of(path))
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM steadyarm_experiments")]
    how: dict[str, Any] = {"now": None, "again": ["visitor 87"], "late": ["visitor 87"]}
    how["lease"] = None
    return {
        name: {"how": how, "outcome": play.live_outcome(name, play.url_of(path), **how)}
        for name in names
    }


def main() -> None:
    """Write everything; with ``older FILE`` only a database of older code."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if sys.argv[1:2] == ["older"]:
            older(folder / sys.argv[2])
            return
        expected = {
            "sessions": write_sessions(),
            "databases": {play.DATABASE: write_database(folder)}
            | {file: expected_of_older(folder, file) for file in play.OLDER},
            "export": play.export_outcome(folder),
        }
        store("expected.json", play.canonical(expected).encode())
        store("openapi.json", play.canonical(play.openapi()).encode())


if __name__ == "__main__":
    main()
