"""Sweeps over objects: the same counts wherever they run, and what comes out of them."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars
import pytest

import steadyarm as sa
from steadyarm.plot import sweeps
from steadyarm.policies import named_policies
from steadyarm.policies.ips import IPSState
from steadyarm.simulation.compare import COLUMNS, stream_of
from steadyarm.simulation.simulate import DrawnWorlds
from tests.simulation import own

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> sa.Comparison:
    return own.sweep()


def test_a_cell_is_its_simulation(found: sa.Comparison) -> None:
    cell = found.cell("own", "still", 120)
    alone = sa.simulate(own.Greedy(), own.still(120), 300, stream_of(4, "still", 120, "own"))
    assert (cell.errors, cell.trials) == (alone.errors, alone.trials)
    assert cell.regret == pytest.approx(alone.regret)
    assert cell.regret_error == pytest.approx(alone.regret_error)
    assert cell.good_rate(0.25) == alone.good_rate(0.25) > 1 - alone.error_rate
    assert (cell.budget, cell.arms, cell.features) == (120, 4, 4)
    assert cell.gap == pytest.approx(0.2)


def test_counts_do_not_depend_on_what_else_is_compared(found: sa.Comparison) -> None:
    alone = sa.compare({"own": own.Greedy()}, {"money": own.money}, 120, 300, seed=4, jobs=1)
    assert alone.cells[0].errors == found.cell("own", "money", 120).errors


@pytest.mark.parametrize("backend", ["processes", "dask"])
def test_other_workers_give_the_same_counts(found: sa.Comparison, backend: str) -> None:
    if backend == "processes":
        again = own.sweep(workers="processes", jobs=2)
    else:
        from distributed import Client

        local: Any = {"processes": False, "n_workers": 1, "dashboard_address": None}
        with (
            Client(**local),  # type: ignore[no-untyped-call,unused-ignore]
            joblib.parallel_config(backend="dask"),
        ):
            again = own.sweep()
    assert own.counts(again) == own.counts(found)
    assert sum(cell.errors for cell in found.cells) > 50


def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    journal, trials = tmp_path / "sweep.jsonl", 4000  # long enough to be killed in the middle
    command = [sys.executable, "-m", "tests.simulation.own", str(journal), str(trials)]

    def lines() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    while lines() < 4 and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert 4 <= lines() < 18
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert lines() == 18
    straight = own.sweep(trials=trials)
    assert json.loads(printed) == json.loads(json.dumps(own.counts(straight)))


def test_a_journal_knows_results_by_settings(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"

    def lines(policy: Any = "g-bai", world: Any = own.still, **options: Any) -> int:
        sa.compare([policy], {"w": world}, 60, **{"trials": 10} | options, journal=path)
        return path.read_bytes().count(b"\n")

    assert [lines(), lines()] == [1, 1]
    assert lines(sa.GBAI(ties="first")) == 2
    assert lines(world=own.money) == 3
    assert [lines(trials=11), lines(seed=1)] == [4, 5]


def test_a_finished_sweep_computes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "sweep.jsonl")
    first = own.sweep(path)
    done: list[tuple[int, int]] = []
    again = sa.compare(
        own.POLICIES, own.WORLDS, own.BUDGETS, 300, seed=4, journal=path,
        progress=lambda now, total: done.append((now, total)),
    )  # fmt: skip  # a table reads better so
    assert again.cells == first.cells  # with times, so they were read
    assert done == []


def test_frames_and_csv_have_a_row_for_each_cell(found: sa.Comparison, tmp_path: Path) -> None:
    frame = found.to_frame("polars", epsilon=0.25)
    assert isinstance(frame, polars.DataFrame)
    assert frame.columns == [*COLUMNS, "good_rate"]
    assert frame.height == 18
    assert found.to_frame().shape == (18, len(COLUMNS))
    path = tmp_path / "found.csv"
    text = found.to_csv(path)
    assert path.read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    cell = found.cells[5]
    assert (rows[5]["world"], rows[5]["policy"]) == (cell.world, cell.policy)
    assert float(rows[5]["low"]) == cell.interval()[0]


def test_results_as_a_frame() -> None:
    results = sa.simulate(sa.Steady(), own.still(60), trials=40, seed=2)
    frame = results.to_frame("polars")
    assert frame.filter(polars.col("wrong"))["trials"].sum() == results.errors
    total = (frame["regret"] * frame["trials"]).sum()
    assert results.regret == pytest.approx(total / 40)
    assert results.plays is not None
    assert results.plays.sum() == pytest.approx(60)
    assert 0 < results.seconds < 40
    assert results.settings["seed"] == 2


def made(errors: dict[str, int], trials: int = 1000, world: str = "w_1") -> sa.Comparison:
    cells = [
        own.counted(world, "budget", 100, name, trials, wrong, budget=100, arms=2)
        for name, wrong in errors.items()
    ]
    return sa.Comparison(tuple(cells))


def drawn(budget: int, rng: np.random.Generator) -> sa.Environment:
    """Four arms with random means."""
    return sa.Environment.from_parameters(own.still(budget).arms, rng.normal(size=4), budget=budget)


def test_worlds_are_drawn_anew_in_each_trial() -> None:
    """Error and regrets are the means over the worlds, which are the same for every policy."""
    found = sa.compare([sa.Uniform(), sa.Steady()], {"drawn": drawn}, [20, 40], 300, seed=2)
    cell = found.cell("Uniform", budget=40)
    worlds = DrawnWorlds(partial(drawn, 40), stream_of(2, "drawn"))
    means = np.array([worlds.world(i).average for i in range(300)])
    gaps = means.max(axis=1) - means.mean(axis=1)
    assert cell.cumulative_regret == pytest.approx(40 * gaps.mean(), rel=0.05)
    assert cell.trials == 300
    assert cell.regret is not None
    assert 0 < cell.regret < gaps.mean() / 2
    assert cell.good_rate(0.1) > 1 - cell.error_rate
    # errors of a random world: averages over instances of their own error rates
    fixed = [sa.simulate(sa.Uniform(), worlds.world(i), 20, i, 1).error_rate for i in range(300)]
    off = np.sqrt(0.25 / 300)
    assert abs(cell.error_rate - np.mean(fixed)) < 4 * off
    alone = sa.simulate(sa.Uniform(), partial(drawn, 40), 300, seed=2)
    assert alone.arms == 4


def test_all_worlds_together_and_as_latex(found: sa.Comparison) -> None:
    pooled = found.pooled()
    for policy in found.policies:
        cells = [cell for cell in found.cells if cell.policy == policy]
        assert pooled[policy].errors == sum(cell.errors for cell in cells)
    assert f"{pooled['own'].error_rate:.4f}" in str(found).splitlines()[-1]
    text = found.to_latex("Three worlds.", "tab:worlds")
    assert r"\caption{Three worlds. Wrong recommendations in \%, 300 trials per number." in text
    assert r"\label{tab:worlds}" in text
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert len(rows) == 2 + len(found.settings_compared)
    assert all(row.count("&") == 1 + len(found.policies) for row in rows)
    best = found.best(*found.settings_compared[0])
    assert rows[1].count("textbf") == len(best)


def test_cumulative_regret_of_an_equal_split() -> None:
    world = own.still(120)
    results = sa.simulate(sa.Uniform(), world, trials=400, seed=1)
    gaps = world.average.max() - world.average
    assert results.cumulative_regret == pytest.approx(120 * gaps.mean(), rel=0.02)


def test_profiles_count_settings_within_a_factor() -> None:
    first, second = made({"A": 10, "B": 20}), made({"A": 0, "B": 3}, world="w_2")
    factors, shares = replace(first, cells=first.cells + second.cells).profile()
    assert factors.tolist() == [1.0, 2.0, 6.0]  # no errors count as half of one
    assert shares["A"].tolist() == [1.0, 1.0, 1.0]
    assert shares["B"].tolist() == [0.0, 0.5, 1.0]


def test_charts_say_where_it_is(found: sa.Comparison) -> None:
    rows = sweeps.error_against_budget(found)["data"]["values"]
    assert list(dict.fromkeys(row["world"] for row in rows)) == ["money", "still"]
    assert "K = 4, d = 4, Gaussian noise of sd 0.7" in rows[-1]["setting"]
    with pytest.raises(sa.InvalidInputError, match=r"pass the result of sa.compare"):
        sweeps.error_against_budget([])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Unknowing:
    """A world of a user that knows no means."""

    arms = own.ARMS
    budget: int = 60
    best_arm: int = 1
    direction = "maximize"

    def play(self, segment: Any, start: Any, rng: Any, squares: bool = False) -> Any:
        return own.still(60).play(segment, start, rng, squares)


def test_a_world_without_means_has_no_regret() -> None:
    results = sa.simulate(sa.GBAI(), Unknowing(), trials=50)  # type: ignore[arg-type]
    assert results.regret is results.regret_error is None
    with pytest.raises(sa.InvalidInputError, match=r"give it a method regret\(arms\)"):
        results.good_rate(0.1)
    found = sa.compare(["g-bai"], {"w": Unknowing()}, trials=50)  # type: ignore[dict-item]
    assert found.cells[0].regret is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policies": []}, "no policy to compare"),
        ({"policies": [sa.GBAI(), "g-bai"]}, "several policies are called 'G-BAI'; give names: {"),
        ({"policies": [sa.GBAI]}, "GBAI is a class; give an instance"),
        ({"policies": ["no.module:Mine"]}, "cannot be imported"),
        ({"policies": ["json:dumps"]}, "the module and name of a policy's class"),
        ({"worlds": {}}, "no world to compare in"),
        ({"worlds": ["soare"]}, "no family of worlds 'soare'"),
        ({"worlds": [own.still]}, "a mapping with a name for each"),
        ({"budgets": None}, "say for which: budgets"),
        ({"budgets": [0]}, "a budget is 0"),
        ({"budgets": []}, "budgets has no entry"),
        ({"budgets": "100"}, "budgets is '100'; expected a whole number"),
        ({"worlds": {0.1: own.still}}, "the name of a world is 0.1; expected a text"),
        ({"policies": {3: "steady"}}, "the name of a policy is 3; expected a text"),
        ({"worlds": {"x": lambda: own.still(50)}}, "cannot be called with a budget (too many"),
        ({"worlds": {"w": own.still(60)}, "budgets": [50]}, "has a budget of 60"),
        ({"worlds": {"w": lambda T: own.still(60)}, "budgets": [50]}, "a world with one of 60"),
        ({"trials": 0}, "trials is 0"),
        ({"jobs": 0}, "jobs is 0"),
        ({"workers": "cloud"}, "workers is 'cloud'"),
    ],
)
def test_bad_input_is_named(given: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {"policies": ["steady"], "worlds": {"w": own.still}, "budgets": [50]}
    with pytest.raises(sa.InvalidInputError, match=re.escape(message)):
        sa.compare(**usual | {"trials": 10} | given)


class Raising(own.Greedy):
    """Fails in the middle."""

    def segment_end(self, state: IPSState) -> Any:
        if state.played.any():
            raise ZeroDivisionError("no luck")
        return super().segment_end(state)


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_what_a_policy_raises_says_where_it_was(workers: Any) -> None:
    with pytest.raises(ZeroDivisionError, match="no luck") as raised:
        sa.compare({"mine": Raising()}, {"w": own.still}, 50, 10, workers=workers, jobs=1)
    assert "in the policy 'mine', world 'w', budget 50" in raised.value.__notes__


def test_own_policies_by_module_and_class() -> None:
    found = sa.compare(["tests.simulation.own:Greedy", "p1rage"], ["soare_oscillating"], 50, 20)
    assert found.policies == ("Greedy half", "P1-RAGE")


def test_variants_are_told_apart_by_name_in_a_list() -> None:
    policies: list[Any] = ["steady", "g-bai-blocks", "steady iid", sa.GBAI()]
    policies.append(sa.Steady(robustness=1.0))
    found = sa.compare(policies, ["soare_oscillating"], 50, 20)
    assert found.policies == ("Steady", "G-BAI blocks", "Steady iid", "G-BAI", "Steady fixed")
    assert found.settings["policies"]["G-BAI blocks"]["order"] == "blocks"
    several = [sa.Steady(), sa.Steady(robustness=0.5), sa.Steady(robustness=0.5, updates=5)]
    names = list(named_policies(several))
    assert names == ["Steady", "Steady (robustness=0.5)", "Steady (robustness=0.5, updates=5)"]


def test_a_missing_cell_is_named(found: sa.Comparison) -> None:
    with pytest.raises(sa.InvalidInputError, match="6 results fit policy='own'"):
        found.cell("own")
    with pytest.raises(sa.InvalidInputError, match="'still' was not compared at budget=7; give"):
        found.best("still", 7)


def test_the_guide_runs_from_a_clean_folder_in_at_most_forty_lines(tmp_path: Path) -> None:
    text = (ROOT / "docs/research/compare.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 40
    (tmp_path / "sweep.py").write_text(code)
    run = subprocess.run(
        [sys.executable, "-I", "sweep.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.py", "errors.pdf", "errors.csv"}
    assert (tmp_path / "errors.pdf").read_bytes().startswith(b"%PDF")
    table = (tmp_path / "errors.csv").read_text()
    assert len(table.splitlines()) == 1 + 4 * 3 * 5
