"""Replay finds what was changed in the tables; exports have all that is stored."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.analysis.source import Columns, open_log
from steadyarm.live.export import read_export
from steadyarm.storages.records import SegmentRecord, number_of
from tests.live.tampering import tamper, tamper_with_segment, tamper_with_state
from tests.live.worlds import Clock, check_segments, create


def played(budget: int = 120, rewards: float = 0.9, **settings: Any) -> sa.Experiment:
    """A test in full swing, with some rewards still missing."""
    live = create(budget=budget, **settings)
    rng = np.random.default_rng(2)
    for i in range(budget * 3 // 4):
        answer = live.ask(f"u{i}")
        if rng.random() < rewards:
            live.tell(answer, float(rng.standard_normal()))
    return live


METRICS = [
    {"name": "clicked"},
    {"name": "spent", "several": "sum", "cap": 3.0, "window": "1d"},
    {"name": "per click", "ratio": ["spent", "clicked"]},
]


def measured() -> sa.Experiment:
    """The same with further metrics, every reward and no reward missing."""
    live = played(60, 1.0, metrics=METRICS)
    rng = np.random.default_rng(3)
    for i in range(45):
        for order in range(rng.integers(0, 4)):
            live.tell(f"u{i}", {"spent": float(rng.standard_normal())}, event=f"order {order}")
        if i % 3 == 0:
            live.tell(f"u{i}", {"clicked": 1.0})
    return live


REWARDED = "(SELECT min(number) FROM steadyarm_rewards WHERE key = :key AND number < 4294967296)"
EVENT = "(SELECT max(number) FROM steadyarm_events WHERE metric = 'spent') AND metric = 'spent'"
PLACE = f"WHERE number = {number_of(1, 3)}"
ARM = f"(SELECT arm FROM steadyarm_assignments WHERE key = :key AND number = {REWARDED})"
STATEMENTS = {
    f"UPDATE steadyarm_assignments SET arm = (arm + 1) % 3 {PLACE}": "the draw is",
    f"UPDATE steadyarm_assignments SET probability = probability + 1e-9 {PLACE}": "the draw is",
    "UPDATE steadyarm_assignments SET repeat = 1, unit = 'u0' WHERE unit = 'u1'": "two assignments",
    f"UPDATE steadyarm_rewards SET reward = reward + 1e-6 WHERE number = {REWARDED}": "rows give",
    "UPDATE steadyarm_tallies SET sums = sums + 1 WHERE segment = 0 AND arm = 0": "rows give",
    f"UPDATE steadyarm_events SET value = value + 1e-6 WHERE number = {EVENT}": "rows give",
    f"DELETE FROM steadyarm_events WHERE number = {EVENT}": "rows give",
    f"UPDATE steadyarm_events SET metric = 'unheard-of' WHERE number = {EVENT}": "no metric 'unh",
    "UPDATE steadyarm_series SET sums = sums + 1 WHERE series = 'spent'": "rows give",
    "DELETE FROM steadyarm_series WHERE series = 'spent*clicked'": "'spent*clicked' of day",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_replay_finds_changed_rows(statement: str) -> None:
    live = measured()
    replayed = live.replay()
    assert replayed.agrees, str(replayed)
    assert replayed.events == sum(len(row.events) for row in live.storage.log(live.key)) > 40
    tamper(live, statement)
    found = live.replay()
    assert not found.agrees
    assert any(STATEMENTS[statement] in difference for difference in found.differences), found
    assert "do not agree" in str(found)


def lose_reward(live: sa.Experiment) -> None:
    one_less = "UPDATE steadyarm_tallies SET rewarded = rewarded - 1 WHERE segment = 0 AND arm ="
    tamper(live, f"{one_less} {ARM}")
    tamper(live, f"DELETE FROM steadyarm_rewards WHERE key = :key AND number = {REWARDED}")


def change_segment(live: sa.Experiment, **more: Any) -> None:
    """Add to arrays of the last segment."""

    def change(record: SegmentRecord) -> SegmentRecord:
        arrays = {name: np.add(getattr(record.segment, name), by) for name, by in more.items()}
        return replace(record, segment=replace(record.segment, **arrays))

    tamper_with_segment(live, live.storage.snapshot(live.key).segments[-1][0].index, change)


def change_state(live: sa.Experiment) -> None:
    def change(state: Any) -> None:
        state["state"]["scores"]["values"][0][0] += 1e-6

    tamper_with_state(live, change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lose_reward, "before it was over"),
        (partial(change_segment, weights=[[1e-6, -1e-6, 0.0]]), "differs in its weights"),
        (partial(change_segment, reference=1e-6), "differs in its reference"),
        (change_state, "state does not follow"),
    ],
)
def test_replay_finds_changed_decisions(change: Callable[[Any], None], words: str) -> None:
    live = played(rewards=1.0)
    change(live)
    assert words in str(live.replay())


@pytest.mark.parametrize("rewards", [0.0, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1(), sa.TopTwoThompson()], ids=repr)
def test_replay_agrees_whatever_is_missing(policy: sa.Policy[Any], rewards: float) -> None:
    found = played(policy=policy, rewards=rewards, control={"A": 0.2}).replay()
    assert found.agrees, found
    assert "all agree" in str(found)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_export_has_what_is_stored(tmp_path: Path, suffix: str) -> None:
    clock = Clock()
    rules: dict[str, Any] = {"clock": clock, "reward_window": "1h", "reward_grace": 0}
    metrics = [{"name": "clicked"}]
    live = played(
        arms=["plain", 'comma, "quote"', "Ü 試"], seed=2**60 + 7, metrics=metrics, **rules
    )
    live.tell("u0", {"clicked": 1.0}, event="first")
    clock.pass_(7200)
    live.void("u3", reason="a mistake", by="ada")
    live.exclude(unit="u5", reason="a bot", by="ada")
    test = read_export(live.export(tmp_path / f"log{suffix}"))
    whole = live.storage.snapshot(live.key, everything=True)
    assert test.snapshot.experiment == replace(whole.experiment, key=0)
    assert test.snapshot.corrected == whole.corrected
    check_segments(test.snapshot, whole)
    assert test.days == live.storage.days(live.key)
    assert test.series == live.storage.series(live.key)
    assert test.trace == live.storage.trace(live.key, live.name)
    assert test.exported == live.now()


def test_no_cell_of_an_export_is_a_formula_and_all_come_back(tmp_path: Path) -> None:
    arms = ["=1+1", "-B", "'C"]
    live = create(arms=sa.ArmSet.one_hot(arms), budget=60)
    evil = ["=cmd|' /C calc'!A0", "+x", "-1", "@SUM(A1)", "\tt", "\rr", "'=quoted", "''", "'plain"]
    for i, unit in enumerate([*evil, *(f"u{i}" for i in range(51))]):
        live.tell(live.ask(unit), -0.5 * (i % 3))
    path = live.export(tmp_path / "log.csv")
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    numbers = [header.index(name) for name in ("probability", "reward")]
    for row in rows:
        assert not any(
            cell[:1] and cell[0] in "=+-@\t\r"
            for column, cell in enumerate(row)
            if column not in numbers
        )
        assert float(row[header.index("reward")]) <= 0  # numbers are not touched
    log = open_log(path, None, Columns(), {})
    found = log.fetch(log.table.select("unit", "arm"))
    assert {row["unit"] for row in found} == {row.unit for row in live.storage.log(live.key)}
    assert {row["arm"] for row in found} == set(arms)
    log.close()


def test_a_damaged_export_is_refused(tmp_path: Path) -> None:
    path = played().export(tmp_path / "log.csv")
    path.write_text(path.read_text().replace("u4", "u5"))
    with pytest.raises(sa.InvalidInputError, match="was changed after"):
        read_export(path)
    path.with_name("log.csv.experiment.json").write_text("{}")
    with pytest.raises(sa.InvalidInputError, match="not the description"):
        read_export(path)
    path.with_name("log.csv.experiment.json").unlink()
    with pytest.raises(sa.InvalidInputError, match="keep it beside the log"):
        read_export(path)
    with pytest.raises(sa.InvalidInputError, match=r"expected \.csv or \.parquet"):
        played().export(tmp_path / "log.txt")


def test_a_segment_that_was_superseded_before_its_first_position_still_ends() -> None:
    live = create(budget=480)
    given: list[sa.LiveAssignment] = []
    while not live.storage.progress(live.key):
        given.append(live.ask(f"u{len(given)}"))
    # Another process opens the next one, and has no position yet.
    live._open_segment()
    for answer in given:
        live.tell(answer, 1.0)
    carried = live.storage.snapshot(live.key).segments[-1][0]
    assert carried.superseded
    assert carried.rounds == carried.segment.block
    for i in range(480 - len(given)):
        live.tell(live.ask(f"v{i}"), 1.0)
    status = live.status()
    assert status.observed == status.segments
    assert live.replay().agrees
