"""Cells are run once, journalled, and found again after a crash."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.paper import FIGURES, figure_named, tasks_of
from steadyarm.simulation.compare import Work, run_tasks
from steadyarm.simulation.journal import Journal
from tests.simulation.own import counted

SOARE = figure_named("soare_stationary")
TASKS = tasks_of(
    (
        (SOARE, value, policy, trials)
        for value in (10, 1010)
        for policy, trials in (("G-BAI", 1500), ("P1-RAGE", 300), ("Peace", 2100))
    ),
    seed=5,
)
RESULT = counted("malicious", "", None, "Peace", 10, 3, 0.1, 0.5)


def counts(results: list[sa.Results]) -> list[tuple[object, ...]]:
    return [(r.world, r.value, r.policy, r.trials, r.errors) for r in results]


def test_a_cell_is_its_simulation() -> None:
    (result,) = run_tasks(TASKS[:1], Journal(None), jobs=1)
    world = SOARE.world(10)
    alone = sa.simulate(sa.GBAI.published(), world, trials=1500, seed=TASKS[0].stream)
    assert result.errors == alone.errors
    assert result.gap == world.gap
    assert result.parameter == "budget"


def test_a_finished_cell_is_never_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    first = run_tasks(TASKS[:2], Journal(path), jobs=2)
    done: list[Work] = []
    again = run_tasks(TASKS[:3], Journal(path), progress=done.append)
    assert again[:2] == first  # seconds and all
    assert done[-1].rounds - done[0].rounds == TASKS[2].trials * 10
    assert (done[0].text, done[-1].text) == ("2 of 3 cells", "3 of 3 cells")
    journal = Journal(path)
    journal.drop([task.key for task in TASKS[:2]])
    assert Journal(path).get(TASKS[2].key) == again[2]
    fresh = run_tasks(TASKS[:2], journal, jobs=1)
    assert counts(fresh) == counts(first)


def test_streams_differ_from_cell_to_cell() -> None:
    named = [figure for figure in FIGURES.values() if figure.by_default]
    points = [(figure, value) for figure in named for value in figure.values]
    runs = [(*point, policy, 1) for point, policy in product(points, ("Peace", "G-BAI"))]
    tasks = [*tasks_of(runs), *tasks_of(runs, seed=1)]
    assert len({task.stream for task in tasks}) == len({task.key for task in tasks}) == len(tasks)


def test_a_half_written_line_is_never_a_result(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    journal = Journal(path)
    journal.add("a", RESULT)
    whole = path.read_bytes()
    journal.add("b", RESULT)
    both = path.read_bytes()
    assert Journal(path).get("b") == RESULT
    for cut in range(len(whole) + 1, len(both)):
        path.write_bytes(both[:cut])
        found = Journal(path)
        assert found.get("a") == RESULT
        assert found.get("b") is None
        found.add("c", RESULT)  # goes on after the cut
        assert Journal(path).get("c") == RESULT


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n3,4", '{"my": "settings"}\n', '{"key": 3}\n{"key": "', "[1]\n"]
)
def test_a_file_that_is_no_journal_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "precious.csv"
    path.write_text(text)
    with pytest.raises(sa.InvalidInputError, match=r"line 1 of .*precious.csv is not a result"):
        Journal(path)
    assert path.read_text() == text


def test_unknown_figures_are_named() -> None:
    with pytest.raises(sa.InvalidInputError, match="no figure 'soare'; the figures are soare_st"):
        figure_named("soare")
