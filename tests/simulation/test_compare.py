"""Sweeps over objects: the same counts wherever they run, and what comes out of them."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from numpy.typing import NDArray
from scipy.stats import fisher_exact

import steadyarm as sa
from steadyarm.comparison import COLUMNS
from steadyarm.engines import DaskEngine, ProcessEngine, engine_named
from steadyarm.fingerprints import content_of
from steadyarm.plot import charts
from steadyarm.policies.ips import IPSState
from steadyarm.policies.named import named_policies
from steadyarm.sweeps import CellResult, Journal, key_of, stream_of
from tests.simulation import own

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> sa.Comparison:
    return own.sweep("threads")


def script(*given: object) -> list[str]:
    return [sys.executable, "-m", "tests.simulation.own", *map(str, given)]


def last_line(printed: str) -> Any:
    return json.loads(printed.splitlines()[-1])


def test_a_cell_is_its_simulation(found: sa.Comparison) -> None:
    cell = found.cell("own", "still", 120)
    alone = sa.simulate(own.Greedy(), own.still(120), 300, stream_of(4, "still", 120, "own"))
    assert (cell.errors, cell.trials) == (alone.errors, alone.trials)
    assert cell.regret == pytest.approx(alone.regret)
    assert cell.regret_error == pytest.approx(alone.regret_error)
    assert cell.good_rate(0.25) == alone.good_rate(0.25) > 1 - alone.error_rate
    assert (cell.budget, cell.arms, cell.features) == (120, 4, 4)
    assert cell.min_gap == pytest.approx(0.2)


def test_counts_do_not_depend_on_what_else_is_compared(found: sa.Comparison) -> None:
    alone = sa.compare({"own": own.Greedy()}, {"money": own.money}, 120, 300, seed=4, jobs=1)
    assert alone.cells[0].errors == found.cell("own", "money", 120).errors


def test_threads_processes_and_dask_give_the_same_counts(
    found: sa.Comparison, tmp_path: Path
) -> None:
    expected = json.loads(json.dumps(own.counts(found)))
    for engine in ("processes", "dask"):
        command = script(engine, tmp_path / f"{engine}.jsonl", 300)
        printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        assert last_line(printed.stdout) == expected
    assert sum(cell.errors for cell in found.cells) > 50


def on_a_cluster(scenario: str, *given: object) -> Any:
    """What a scenario of `dask_scenarios` printed."""
    command = [sys.executable, "-m", "tests.simulation.dask_scenarios", scenario, *map(str, given)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return last_line(run.stdout)


def test_a_sweep_runs_on_jobs_of_a_queue(found: sa.Comparison, tmp_path: Path) -> None:
    expected = json.loads(json.dumps(own.counts(found)))
    assert on_a_cluster("jobs", tmp_path, 300) == expected


def test_the_recipe_for_slurm_submits_workers(tmp_path: Path) -> None:
    submitted = on_a_cluster("slurm", tmp_path)
    for line in ("#SBATCH -p normal", "#SBATCH --cpus-per-task=8", "#SBATCH -t 01:00:00"):
        assert line in submitted.splitlines()
    assert re.search(r"-m distributed\.cli\.dask_worker tcp://.* --nworkers 8 ", submitted)


def test_a_sweep_outlives_a_killed_worker_of_its_cluster(tmp_path: Path) -> None:
    trials = 6000
    printed = on_a_cluster("sweep", tmp_path, trials)
    assert 1 <= printed["finished"] < 18  # so it died in the middle
    with pytest.raises(ProcessLookupError):
        os.kill(printed["killed"], 0)
    straight = own.sweep("threads", trials=trials)
    assert printed["counts"] == json.loads(json.dumps(own.counts(straight)))


def processes_of(parent: int) -> list[int]:
    """Those that a process has started, which are alive."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True)
    return [int(pid) for pid in found.stdout.split()]


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_sweep_that_is_killed_twice_goes_on_where_it_was(tmp_path: Path) -> None:
    """On processes; tests of `reproduce` do the same to one on threads."""
    journal = tmp_path / "sweep.jsonl"
    trials = 20_000  # long enough to be killed in the middle
    command = script("processes", journal, trials)

    def lines() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    for goal in (2, 6):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        while lines() < goal and process.poll() is None:
            time.sleep(0.002)
        children = processes_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert children
        deadline = time.monotonic() + 20
        while any(map(alive, children)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(alive, children))  # none is left behind
    before = lines()
    assert 6 <= before < 18
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert lines() == 18
    straight = own.sweep("threads", trials=trials)
    assert last_line(printed) == json.loads(json.dumps(own.counts(straight)))


def test_a_finished_sweep_computes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "sweep.jsonl")
    first = own.sweep("threads", path)
    done: list[tuple[int, int]] = []
    again = sa.compare(
        own.POLICIES, own.WORLDS, own.BUDGETS, 300, seed=4, journal=path,
        progress=lambda now, total: done.append((now, total)),
    )  # fmt: skip  # a table reads better so
    assert again.cells == first.cells  # with times, so they were read
    assert done == []


def test_a_bar_shows_how_far_it_is_on_a_terminal_alone(tmp_path: Path) -> None:
    """The sweep of a script below a real terminal, and without one."""
    command = script("threads", tmp_path / "sweep.jsonl", 3000)
    terminal, behind = pty.openpty()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=behind)
    os.close(behind)
    shown = b""
    with contextlib.suppress(OSError):  # at its end, on Linux
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    assert process.wait() == 0
    pictures = re.findall(r"([█·]{30}) +(\d+) %  (\d+) of 18 cells(, [^\r]* left)?", shown.decode())
    assert pictures[0][:3] == ("·" * 30, "0", "0")
    assert len(pictures) > 2
    assert pictures[-1][3]
    assert shown.endswith(b"\r\x1b[K")  # the bar is gone at the end
    again = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert again.stderr == b""


def test_progress_can_be_followed_or_left_out() -> None:
    seen: list[tuple[int, int]] = []
    sa.compare(["g-bai"], {"w": own.still}, [50, 60], 300, progress=lambda *now: seen.append(now))
    assert seen[0] == (0, 33_000)
    assert seen[-1] == (33_000, 33_000)
    assert seen == sorted(seen)


def from_factory(sd: float) -> Any:
    return lambda arms, rounds, rng: own.scaled(sd, arms, rounds, rng)


def spoiling(by: float) -> Any:
    def spoil(rounds: Any, plays: Any) -> Any:
        return own.MEANS - by * (plays == plays.max(axis=1, keepdims=True))

    return spoil


class Fixed:
    """A world of a user, which says nothing of what it holds."""

    direction = "maximize"
    arms = own.ARMS
    budget = 60

    def __init__(self, sd: float) -> None:
        self.world = sa.Environment.from_means(self.arms, own.MEANS, sa.GaussianNoise(sd), 60)
        self.best_arm = 1

    def play(self, segment: Any, start: Any, rng: Any, squares: bool = False) -> Any:
        return self.world.play(segment, start, rng, squares)


SIMILAR: dict[str, Any] = {
    "functions": lambda sd: sa.Environment.from_callable(own.ARMS, from_factory(sd), 60, own.MEANS),
    "partial functions": lambda sd: own.of_function(sd, "partial", 60),
    "callable objects": lambda sd: own.of_function(sd, "object", 60),
    "adversaries": lambda sd: sa.AdaptiveAdversary(own.ARMS, spoiling(sd), 60),
    "objects": Fixed,
}


@pytest.mark.parametrize("kind", SIMILAR)
def test_worlds_of_the_same_text_are_not_mixed_up(kind: str, tmp_path: Path) -> None:
    worlds = {f"sd {sd}": SIMILAR[kind](sd) for sd in (0.1, 1.0, 3.0)}
    alone = {
        name: sa.simulate(sa.GBAI(), world, 200, stream_of(0, name, 60, "G-BAI"))
        for name, world in worlds.items()
    }
    path = tmp_path / "sweep.jsonl"
    found = sa.compare(["g-bai"], worlds, trials=200, journal=path)
    assert [cell.errors for cell in found.cells] == [one.errors for one in alone.values()]
    assert len({cell.errors for cell in found.cells}) == 3
    for name, sd in (("sd 0.1", 3.0), ("sd 0.1", 0.1)):  # one name for another world, and again
        swapped = sa.compare(["g-bai"], {name: SIMILAR[kind](sd)}, trials=200, journal=path)
        same = sa.simulate(sa.GBAI(), SIMILAR[kind](sd), 200, stream_of(0, name, 60, "G-BAI"))
        assert swapped.cells[0].errors == same.errors
        assert path.read_bytes().count(b"\n") == 4  # the first is new, the second known


def test_makers_of_the_same_text_are_not_mixed_up() -> None:
    makers = {
        f"sd {sd}": lambda T, sd=sd: own.of_function(sd, "partial", T) for sd in (0.1, 1.0, 3.0)
    }
    found = sa.compare(["g-bai"], makers, [60, 120], trials=200)
    errors = [[found.cell("G-BAI", name, T).errors for name in makers] for T in (60, 120)]
    assert all(len(set(row)) == 3 for row in errors)


def test_partial_functions_and_objects_run_on_processes_and_resume(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    worlds = {kind: partial(own.of_function, 1.0, kind) for kind in ("partial", "object")}
    there = sa.compare(["g-bai"], worlds, 60, 50, engine="processes", jobs=1, journal=path)
    here = sa.compare(["g-bai"], worlds, 60, 50, journal=path)
    assert here.cells == there.cells  # with times, so they were read
    code = (
        "import steadyarm as sa; from functools import partial; from tests.simulation import own\n"
        "worlds = {k: partial(own.of_function, 1.0, k) for k in ('partial', 'object')}\n"
        f"sa.compare(['g-bai'], worlds, 60, 50, journal={str(path)!r})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert path.read_bytes().count(b"\n") == 2  # nothing was computed again


def test_what_cannot_be_compared_gets_no_journal(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(arms: Any, rounds: Any, rng: Any) -> Any:
        with lock:
            return own.scaled(1.0, arms, rounds, rng)

    world = sa.Environment.from_callable(own.ARMS, locked, 60, own.MEANS)
    assert world.fingerprint == ""
    found = sa.compare(["g-bai"], {"locked": world}, trials=50)
    assert found.cells[0].errors > 0
    message = "the world 'locked' holds an object of the type _thread.lock, whose content cannot"
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.compare(["g-bai"], {"locked": world}, trials=50, journal=tmp_path / "sweep.jsonl")

    @dataclass(frozen=True)
    class Locked(own.Greedy):
        guard: Any = lock

        def to_dict(self) -> dict[str, Any]:
            return {"name": self.name}

    assert sa.compare([Locked()], {"still": own.still}, 60, 10).cells
    with pytest.raises(sa.InvalidInputError, match="the policy 'Greedy half' holds an object"):
        sa.compare([Locked()], {"still": own.still}, 60, 10, journal=tmp_path / "sweep.jsonl")


def test_a_policy_may_have_a_table_among_its_settings(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Prior(own.Greedy):
        prior: Any = None

    path = tmp_path / "sweep.jsonl"
    for prior in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]):
        sa.compare([Prior(prior=np.array(prior))], {"w": own.still}, 60, 10, journal=path)
    assert path.read_bytes().count(b"\n") == 2


def test_an_edited_policy_is_another_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    keys = []
    for number, share in enumerate((0.5, 0.4)):
        name = f"edited{number}"
        (tmp_path / f"{name}.py").write_text(
            "from tests.simulation.own import Greedy\n"
            "class Mine(Greedy):\n"
            "    def allocation(self, state):\n"
            f"        return super().allocation(state)  # {share}\n"
        )
        module = __import__(name)
        keys.append(key_of(module.Mine(), "world", 10, 1))
    assert keys[0] != keys[1]
    assert content_of(sa.Steady()).sources == ""


def test_engines_by_name() -> None:
    assert engine_named("processes", 3) == ProcessEngine(3)
    assert engine_named(DaskEngine("tcp://127.0.0.1:9")).workers == 64
    with pytest.raises(sa.InvalidInputError, match="engine is 'cloud'"):
        engine_named("cloud")
    with pytest.raises(sa.InvalidInputError, match="one of threads, processes, dask"):
        engine_named(3)  # type: ignore[arg-type]


def _die_once(marker: str, x: int) -> int:
    if x == 3 and not Path(marker).exists():
        Path(marker).write_text("dead")
        os.kill(os.getpid(), signal.SIGKILL)
    return x * x


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    marker = str(tmp_path / "killed")
    results = ProcessEngine(2).run(_die_once, [(marker, i) for i in range(20)])
    assert sorted(results) == [(i, i * i) for i in range(20)]
    assert Path(marker).exists()


def test_lambdas_cannot_be_sent_to_processes() -> None:
    with pytest.raises(sa.InvalidInputError, match="define policies and worlds in a module"):
        sa.compare(["steady"], {"w": lambda T: own.still(T)}, 60, engine="processes")


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
    assert frame["wrong"].sum() == results.errors
    assert frame["regret"].mean() == pytest.approx(results.regret)
    assert results.plays is not None
    assert results.plays.sum() == pytest.approx(60)
    assert 0 < results.seconds < 1
    assert results.settings["seed"] == 2


def made(errors: dict[str, int], trials: int = 1000, world: str = "w_1") -> sa.Comparison:
    cells = [
        CellResult(world, "budget", 100, name, trials, wrong, 0.1, 1.0, budget=100, arms=2)
        for name, wrong in errors.items()
    ]
    return sa.Comparison(tuple(cells))


def latex_row(found: sa.Comparison) -> str:
    (row,) = [line for line in found.to_latex().splitlines() if line.startswith("w")]
    return row


def test_latex_is_bold_where_no_policy_is_significantly_better() -> None:
    found = made({"A": 50, "B & C": 60, "D": 100})
    assert fisher_exact(np.array([[50, 950], [60, 940]])).pvalue > 0.05
    assert fisher_exact(np.array([[50, 950], [100, 900]])).pvalue < 0.05
    row, text = latex_row(found), found.to_latex()
    assert row.startswith(r"w\_1 & $\mathbf{5.0}$ {\scriptsize$[3.7, 6.5]$} & $\mathbf{6.0}$")
    assert row.count("mathbf") == 2
    assert r"World & A & B \& C & D \\" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_latex_has_no_bold_where_nothing_differs() -> None:
    assert "mathbf" not in latex_row(made({"A": 50, "B": 51}))
    assert "mathbf" not in latex_row(made({"A": 50}))


@pytest.mark.parametrize(
    ("errors", "trials", "printed"),
    [
        (0, 100, r"$0.0$ {\scriptsize$[0.0, 3.6]$}"),
        (100, 100, r"$100.0$ {\scriptsize$[96.4, 100.0]$}"),
        (3, 1_000_000, r"$0.00030$ {\scriptsize$[0.00006, 0.00088]$}"),
        (1, 2, r"$50.0$ {\scriptsize$[1.3, 98.7]$}"),
    ],
)
def test_latex_prints_exact_limits(errors: int, trials: int, printed: str) -> None:
    assert printed in latex_row(made({"A": errors}, trials))


def test_latex_escapes_everything() -> None:
    text = made({'[<a|b>] "c" 5% $x_1^2$ ~{#}\\&': 1}, world="w").to_latex()
    (head,) = [line for line in text.splitlines() if line.startswith("World")]
    assert head == (
        r"World & {[}\textless{}a\textbar{}b\textgreater{}{]} \textquotedbl{}c\textquotedbl{} 5\% "
        r"\$x\_1\textasciicircum{}2\$ \textasciitilde{}\{\#\}\textbackslash{}\& \\"
    )


def test_profiles_count_settings_within_a_factor() -> None:
    first, second = made({"A": 10, "B": 20}), made({"A": 0, "B": 3}, world="w_2")
    factors, shares = replace(first, cells=first.cells + second.cells).profile()
    assert factors.tolist() == [1.0, 2.0, 6.0]  # no errors count as half of one
    assert shares["A"].tolist() == [1.0, 1.0, 1.0]
    assert shares["B"].tolist() == [0.0, 0.5, 1.0]
    assert first.ratios("B", "A").tolist() == [2.0]


def test_charts_say_where_it_is(found: sa.Comparison) -> None:
    chart = charts.error_against_budget(found)
    assert [panel.title.partition(" (")[0] for panel in chart.panels] == ["money", "still"]
    assert "K = 4, d = 4, Gaussian noise of sd 0.7" in chart.panels[1].title
    cell = found.cell("Steady", "still", 240)
    (series,) = [s for s in chart.panels[1].series if s.name == "Steady"]
    assert series.y[-1] == cell.error_rate
    assert series.high is not None
    assert series.high[-1] == cell.interval()[1]
    assert charts.regret(found).panels[0].y.title == "simple regret"
    flat = replace(found.cells[0], regret=0.0, regret_error=0.0)
    chart = charts.regret(sa.Comparison((flat, found.cells[3])))
    assert chart.panels[0].series[0].high is not None
    assert np.isnan(chart.panels[0].series[0].high).tolist() == [True, False]
    assert "which has no such interval" in chart.note
    assert "K = 4, d = 4, rewards of an own distribution" in chart.panels[0].title
    assert len(charts.profile(found).panels[0].series) == 3
    assert "T = 60 to 240, K = 4, d = 4" in charts.profile(found).note
    with pytest.raises(sa.InvalidInputError, match=r"give what sa.compare\(\) returned"):
        charts.profile([])  # type: ignore[arg-type]


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
    assert np.isnan(results.regret)
    with pytest.raises(sa.InvalidInputError, match=r"give it a method regret\(arms\)"):
        results.good_rate(0.1)
    found = sa.compare(["g-bai"], {"w": Unknowing()}, trials=50)  # type: ignore[dict-item]
    assert found.cells[0].regret is None
    with pytest.raises(sa.InvalidInputError, match="no regret to draw"):
        charts.regret(found)


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
    ],
)
def test_bad_input_is_named(given: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {"policies": ["steady"], "worlds": {"w": own.still}, "budgets": [50]}
    with pytest.raises(sa.InvalidInputError, match=re.escape(message)):
        sa.compare(**usual | {"trials": 10} | given)


def test_a_budget_may_be_a_number_of_numpy() -> None:
    found = sa.compare(["g-bai"], {"w": own.still}, np.int64(50), 10)  # type: ignore[arg-type]
    assert found.cells[0].budget == 50


class Raising(own.Greedy):
    """Fails in the middle."""

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        if state.played.any():
            raise ZeroDivisionError("no luck")
        return super().allocation(state)


def test_what_a_policy_raises_says_where_it_was() -> None:
    for engine in ("threads", "processes"):
        with pytest.raises(ZeroDivisionError, match="no luck") as raised:
            sa.compare({"mine": Raising()}, {"w": own.still}, 50, 10, engine=engine, jobs=1)
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


def test_a_journal_in_memory_keeps_results() -> None:
    journal = Journal(None)
    journal.add(("a", found_cell := CellResult("w", "", None, "P", 10, 1, 0.1, 1.0)))
    assert journal.get("a") == found_cell
    journal.drop(["a"])
    assert journal.get("a") is None


def test_a_journal_has_every_line_at_once_and_waits_for_the_disk_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr("steadyarm.sweeps.os.fsync", waited.append)
    now = [100.0]
    monkeypatch.setattr("steadyarm.sweeps.time.monotonic", lambda: now[0])
    journal = Journal(tmp_path / "sweep.jsonl")
    for i in range(100):
        now[0] += 0.01  # a second in all
        journal.add((str(i), CellResult("w", "", None, "P", 10, 1, 0.1, 1.0)))
        assert len((tmp_path / "sweep.jsonl").read_bytes().splitlines()) == i + 1
    assert len(waited) in (1, 2)
    journal.sync()
    assert len(waited) in (2, 3)
    assert Journal(tmp_path / "sweep.jsonl").get("99") == journal.get("99")


def test_the_guide_runs_from_a_clean_folder_in_at_most_forty_lines(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guides" / "compare_policies.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 40
    (tmp_path / "sweep.py").write_text(code)
    run = subprocess.run(
        [sys.executable, "-I", "sweep.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.py", "errors.pdf", "errors.tex"}
    assert (tmp_path / "errors.pdf").read_bytes().startswith(b"%PDF")
    table = (tmp_path / "errors.tex").read_text()
    assert table.count(r" \\") == 1 + 4 * 6  # a heading, and a row for each world and budget
    assert "World & $T$ & Two-Leaders & Steady & P1-RAGE & G-BAI blocks & Peace" in table
