"""Cells are run once, journalled, and found again after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.engines import LocalEngine
from steadyarm.paper import FIGURES, Cell, CellResult, Journal, figure_named, run_cells
from steadyarm.paper.run import task_of
from steadyarm.sweeps import Work, run_unit, work_of

CELLS = [
    Cell("soare_stationary", value, policy, trials, seed=5)
    for value in (10, 1010)
    for policy, trials in (("G-BAI", 1500), ("P1-RAGE", 300), ("Peace", 2100))
]
RESULT = CellResult("malicious", "", None, "Peace", 10, 3, 0.1, 0.5)


def counts(results: list[CellResult]) -> list[tuple[object, ...]]:
    return [(r.world, r.value, r.policy, r.trials, r.errors) for r in results]


def test_a_cell_is_its_simulation(tmp_path: Path) -> None:
    cell = CELLS[0]
    (result,) = run_cells([cell], LocalEngine(1), Journal(tmp_path / "cells.jsonl"))
    world = figure_named(cell.figure).world(cell.value)
    alone = sa.simulate(sa.GBAI.published(), world, trials=cell.trials, seed=cell.stream)
    assert result.errors == alone.errors
    assert result.min_gap == world.gap
    assert result.parameter == "budget"


def test_the_number_of_jobs_changes_no_counts(tmp_path: Path) -> None:
    one = run_cells(CELLS, LocalEngine(1), Journal(tmp_path / "one.jsonl"))
    two = run_cells(CELLS, LocalEngine(2), Journal(tmp_path / "two.jsonl"))
    assert counts(one) == counts(two)
    assert sum(r.errors for r in one) > 0


def test_a_finished_cell_is_never_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    first = run_cells(CELLS[:2], LocalEngine(2), Journal(path))
    done: list[Work] = []
    again = run_cells(CELLS[:3], LocalEngine(2), Journal(path), done.append)
    assert again[:2] == first  # seconds and all
    assert done[-1].rounds - done[0].rounds == CELLS[2].trials * 10
    assert (done[0].text, done[-1].text) == ("2 of 3 cells", "3 of 3 cells")
    tasks = [task_of(cell) for cell in CELLS[:3]]
    assert work_of(tasks, Journal(path)) == done[-1]
    journal = Journal(path)
    journal.drop([task.key for task in tasks[:2]])
    assert work_of(tasks, Journal(path)).rounds == CELLS[2].trials * 10  # the third cell stays
    fresh = run_cells(CELLS[:2], LocalEngine(2), journal)
    assert counts(fresh) == counts(first)


def test_other_settings_are_other_cells() -> None:
    cell = CELLS[0]
    others = [
        replace(cell, value=2010),
        replace(cell, trials=cell.trials + 1),
        replace(cell, seed=cell.seed + 1),
        replace(cell, policy="Peace"),
    ]
    assert len({task_of(one).key for one in (cell, *others)}) == 5


def test_streams_differ_from_cell_to_cell() -> None:
    points = [(figure.name, value) for figure in FIGURES.values() for value in figure.values]
    runs = product(points, ("Peace", "G-BAI"), (0, 1))
    cells = [Cell(name, value, policy, 1, seed) for (name, value), policy, seed in runs]
    assert len({cell.stream for cell in cells}) == len(cells)


def test_a_half_written_line_is_never_a_result(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    journal = Journal(path)
    journal.add(("a", RESULT))
    whole = path.read_bytes()
    journal.add(("b", RESULT))
    both = path.read_bytes()
    assert Journal(path).get("b") == RESULT
    for cut in range(len(whole) + 1, len(both)):
        path.write_bytes(both[:cut])
        found = Journal(path)
        assert found.get("a") == RESULT
        assert found.get("b") is None
        found.add(("c", RESULT))  # goes on after the cut
        assert Journal(path).get("c") == RESULT


@pytest.mark.parametrize("damage", ["nonsense", '"errors": "7"', '"errors": 999'])
def test_a_damaged_journal_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cells.jsonl"
    Journal(path).add(("a", RESULT))
    line = path.read_text().replace('"errors": 3', damage)
    path.write_text(line)
    with pytest.raises(sa.InvalidInputError, match=r"line 1 of .*cells.jsonl"):
        Journal(path)


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n3,4", "my notes", '{"my": "settings"}', '{"key": 3}\n{"key": "', "[1]\n"]
)
def test_a_file_that_is_no_journal_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "precious.csv"
    path.write_text(text)
    with pytest.raises(sa.InvalidInputError, match=r"line 1 of .*precious.csv is not a result"):
        Journal(path)
    assert path.read_text() == text


def test_a_journal_is_a_file(tmp_path: Path) -> None:
    for folder in (tmp_path, Path("")):
        with pytest.raises(sa.InvalidInputError, match="expected the name of a file, no folder"):
            Journal(folder)
    (tmp_path / "file").touch()
    with pytest.raises(sa.InvalidInputError, match="cannot be read or written"):
        Journal(tmp_path / "file" / "sweep.jsonl")


def test_a_worker_with_another_world_or_version_does_not_answer() -> None:
    task = task_of(CELLS[0])
    assert run_unit(task, 0).errors > 0
    with pytest.raises(sa.InvalidInputError, match="give all workers the same data and code"):
        run_unit(replace(task, fingerprint="other"), 0)
    with pytest.raises(sa.InvalidInputError, match="give all workers the same data and code"):
        run_unit(task, 0, version="0.0.1")


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """kill -9 in the middle, several times, then to the end: same counts as undisturbed."""
    command = [sys.executable, "-m", "steadyarm.cli.main", "reproduce", "soare_scale"]
    command += ["--trials", "500", "--policies", "peace,g-bai", "--out", str(tmp_path / "killed")]
    journal = tmp_path / "killed" / "cells.jsonl"

    def lines() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    for goal in (3, 9):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while lines() < goal and process.poll() is None:
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert 9 <= lines() < 20
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert lines() == 20
    cells = [
        Cell("soare_scale", value, policy, 500, 0)
        for value, policy in figure_named("soare_scale").points(["Peace", "G-BAI"])
    ]
    resumed = run_cells(cells, LocalEngine(1), Journal(journal))
    straight = run_cells(cells, LocalEngine(2), Journal(tmp_path / "straight.jsonl"))
    assert counts(resumed) == counts(straight)


def test_a_unit_is_small_to_send() -> None:
    import pickle

    assert len(pickle.dumps((run_unit, (task_of(CELLS[0]), 0, "0.1")))) < 1500


def test_unknown_figures_are_named() -> None:
    with pytest.raises(sa.InvalidInputError, match="no figure 'soare'; the figures are soare_st"):
        figure_named("soare")
