"""The comparison with other tools is fair: same rewards for all, right counts, nothing missing."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_ind

from benchmarks.against_what_people_use import main
from benchmarks.peers.contest import RULES, TOOLS, Cell, Contest, contest, environment_of, play
from benchmarks.peers.equal_split import EqualSplit
from benchmarks.peers.interface import Player, Task, Tool
from benchmarks.peers.report import wilson
from benchmarks.peers.worlds import WORLDS, potential_rewards

HERE = ("steady", "p1-rage", "g-bai", "equal-split", "in-turn", "regression")
VISITS, SEED = 10, 3


class Scripted(Player):
    """Shows what a rule says, remembers what it saw, decides for one variant."""

    def __init__(self, rule: Callable[[int], int], answer: int, sure: bool | None) -> None:
        self.rule, self.answer, self.claim = rule, answer, sure
        self.seen: list[tuple[int, int, float]] = []
        self._t = 0

    def choose(self, t: int) -> int:
        self._t = t
        return self.rule(t)

    def learn(self, arm: int, reward: float) -> None:
        self.seen.append((self._t, arm, reward))

    def decide(self) -> int:
        return self.answer

    def sure(self) -> bool | None:
        return self.claim


def scripted(
    rule: Callable[[int], int], answer: int = 0, sure: bool | None = None, own_rule: bool = True
) -> tuple[Tool, list[Scripted]]:
    players: list[Scripted] = []

    def make(task: Task) -> Player:
        players.append(Scripted(rule, answer, sure))
        return players[-1]

    return Tool("scripted", "Scripted", "", make, own_rule=own_rule), players


@pytest.mark.parametrize("world", WORLDS)
def test_every_tool_sees_the_same_potential_rewards(world: str) -> None:
    environment = environment_of(world, VISITS)
    K = environment.arms.size
    for trial in (0, 7):
        table = potential_rewards(WORLDS[world], environment, SEED, trial)
        for rule in (lambda t: t % K, lambda t: K - 1, lambda t: (3 * t + 1) % K):
            tool, players = scripted(rule)
            play(tool, world, trial, VISITS, SEED)
            for t, arm, reward in players[0].seen:
                assert reward == table[t, arm]
            assert len(players[0].seen) == environment.budget == 14 * VISITS
    other = potential_rewards(WORLDS[world], environment, SEED, 8)
    assert (other != table).any()


@pytest.mark.parametrize("world", WORLDS)
def test_rewards_are_clicks_with_the_rates_of_the_world(world: str) -> None:
    environment = environment_of(world, VISITS)
    tables = [potential_rewards(WORLDS[world], environment, SEED, n) for n in range(300)]
    assert set(np.unique(tables)) == {0.0, 1.0}
    mean, rates = np.mean(tables, axis=0), environment.means
    wide = 6 * np.sqrt(rates * (1 - rates) / len(tables)) + 1e-12
    assert (np.abs(mean - rates) < wide).all()


def test_the_best_variant_is_the_one_of_the_story() -> None:
    averages = {
        "still": [0.10, 0.12, 0.11, 0.10, 0.155],
        "promotion": [0.10, 0.12, 0.11, (10 * 0.06 + 4 * 0.30) / 14, 0.165],
        "week": [0.9 / 7, 0.99 / 7, 0.95 / 7, 1.04 / 7, 1.3 / 7],
        "novelty": [0.16, 0.12, 0.11, 0.12, 0.20],
        "switch": [0.146, 0.12, 0.11, 0.12, 0.178],
    }
    for world, average in averages.items():
        environment = environment_of(world, VISITS)
        np.testing.assert_allclose(environment.means.mean(axis=0), average, atol=1e-12)
        assert environment.best_arm == 4
    layouts = environment_of("layouts", VISITS)
    names = "image=b, title=b, price=b, button=b"
    assert layouts.arms.names[layouts.best_arm] == names


def test_decisions_claims_and_rules_are_counted() -> None:
    best = environment_of("still", VISITS).best_arm
    right = play(scripted(lambda t: t % 5, answer=best, sure=True)[0], "still", 0, VISITS, SEED)
    assert (right.wrong[0], right.sure, right.sure_wrong) == (0, 1, 0)
    wrong = play(scripted(lambda t: t % 5, answer=0, sure=True)[0], "still", 0, VISITS, SEED)
    assert (wrong.wrong[0], wrong.sure, wrong.sure_wrong) == (1, 1, 1)
    silent = play(scripted(lambda t: t % 5, answer=0)[0], "still", 0, VISITS, SEED)
    assert (silent.sure, silent.sure_wrong) == (-1, -1)
    # Shown most is the best, but it is not what the tool answers.
    tool, _ = scripted(lambda t: best if t % 3 else 0, answer=0, own_rule=False)
    cell = play(tool, "still", 0, VISITS, SEED)
    assert (cell.wrong[0], cell.wrong[2]) == (1, 0)
    assert cell.errors(tool)[0] == 0
    assert cell.errors(replace(tool, own_rule=True)) == (1, RULES[0])


def test_cells_add_up() -> None:
    one = Cell(1, 10, (1, 0, 1), 1, 0, 0.5, 0.25)
    two = Cell(2, 20, (1, 1, 0), 2, 1, 1.0, 0.5)
    assert one + two == Cell(3, 30, (2, 1, 1), 3, 1, 1.5, 0.75)
    quiet = replace(one, sure=-1, sure_wrong=-1)
    assert ((quiet + quiet).sure, (quiet + quiet).sure_wrong) == (-1, -1)


@pytest.mark.parametrize(("errors", "trials"), [(0, 10), (3, 10), (10, 10), (17, 300), (1, 1)])
def test_intervals_are_those_of_wilson(errors: int, trials: int) -> None:
    expected = binomtest(errors, trials).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(wilson(errors, trials), expected, atol=1e-12)


def test_the_plain_test_is_welchs() -> None:
    arms = environment_of("still", VISITS).arms
    player = EqualSplit(Task(arms, 400, VISITS, 5))
    rng = np.random.default_rng(5)
    told: dict[int, list[float]] = {k: [] for k in range(5)}
    for t in range(400):
        arm = player.choose(t)
        reward = float(rng.random() < 0.1 + 0.15 * (arm == 2))
        player.learn(arm, reward)
        told[arm].append(reward)
    assert player.decide() == max(told, key=lambda k: np.mean(told[k]))
    expected = [ttest_ind(told[2], told[k], equal_var=False).pvalue for k in (0, 1, 3, 4)]
    found = [player.p_value(2, k) for k in (0, 1, 3, 4)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    player.winner = 2
    assert player.sure() == (max(expected) < 0.05 / 4)


def test_one_command_writes_both_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(TOOLS["river-ucb1"], module="no_such_module")
    broken = replace(TOOLS["in-turn"], key="broken", title="Broken", make=_fail)
    monkeypatch.setitem(TOOLS, "river-ucb1", gone)
    monkeypatch.setitem(TOOLS, "vw-squarecb", broken)
    tools = [*HERE, "river-ucb1", "vw-squarecb"]
    words = ["--quick", "--jobs", "1", "--quiet", "--trials", "3", "--scenarios", "still"]
    main([*words, "layouts", "--tools", *tools, "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert "not installed: river-ucb1" in printed.err
    page = (tmp_path / "against_what_people_use.md").read_text()
    assert printed.out.strip() == page.strip()
    assert "| river, UCB1 | not installed | not installed |" in page
    assert "| Broken | failed: RuntimeError: as planned |" in page
    assert str(tmp_path) not in page
    with (tmp_path / "against_what_people_use.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["tool"], row["scenario"]) for row in rows] == [
        (tool, world) for tool in tools for world in ("still", "layouts")
    ]
    played = [row for row in rows if row["status"] == "played"]
    assert {row["tool"] for row in played} == set(HERE)
    for row in played:
        errors, trials = int(row["errors"]), int(row["trials"])
        assert trials == 3
        assert float(row["low"]) <= errors / trials <= float(row["high"])
        assert float(row["microseconds_per_visit"]) > 0


def test_rows_of_other_tools_stay_while_the_tests_are_the_same(tmp_path: Path) -> None:
    words = ["--quick", "--jobs", "1", "--quiet", "--trials", "2", "--scenarios", "still", "switch"]

    def rows(*more: str) -> list[dict[str, str]]:
        main([*words, *more, "--out", str(tmp_path)])
        with (tmp_path / "against_what_people_use.csv").open() as file:
            return list(csv.DictReader(file))

    def of(table: list[dict[str, str]], tool: str) -> list[dict[str, str]]:
        return [row for row in table if row["tool"] == tool]

    first = rows("--tools", "equal-split", "in-turn")
    marked = [row | {"date": "2026-01-01", "version": "0.9"} for row in first]
    with (tmp_path / "against_what_people_use.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(first[0]))
        writer.writeheader()
        writer.writerows(marked)
    second = rows("--tools", "in-turn")
    assert of(second, "equal-split") == of(marked, "equal-split")
    assert of(second, "in-turn")[0]["date"] > "2026-01-01"
    page = (tmp_path / "against_what_people_use.md").read_text()
    assert "| Equal split |" in page
    assert "| 2 | 2026-01-01 |" in page
    assert "- **Equal split** 0.9:" in page
    third = rows("--tools", "in-turn", "--scenarios", "still")
    assert [row["status"] for row in of(third, "in-turn")] == ["played", "not played"]
    other = rows("--tools", "in-turn", "--seed", "2")
    assert not of(other, "equal-split")


def _fail(task: Task) -> Player:
    raise RuntimeError("as planned")


def test_the_same_seed_gives_the_same_table() -> None:
    plan = Contest(("steady", "equal-split"), ("switch",), 3, VISITS, SEED)

    def counted() -> list[tuple[int, ...]]:
        cells = contest(plan).values()
        return [(*cell.wrong, cell.sure) for cell in cells if isinstance(cell, Cell)]

    first = counted()
    assert len(first) == 2
    assert counted() == first


def test_tools_that_take_long_play_the_first_of_the_same_trials() -> None:
    plan = Contest(tuple(TOOLS), tuple(WORLDS), 300, 200, 1)
    assert plan.trials_of("steady") == 300
    assert plan.trials_of("mabwiser-ucb1") == 100
    assert replace(plan, trials=1).trials_of("ax") == 1


def test_every_library_is_pinned_where_make_compare_finds_it() -> None:
    folder = Path(__file__).parents[2]

    def lines(name: str) -> list[str]:
        text = (folder / name).read_text()
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    files = ("peers.txt", "peers-alone.txt", "peers-ax.txt")
    wanted = [line for name in files for line in lines(f"benchmarks/{name}")]
    pinned = {line.split("==")[0] for line in [*wanted, *lines("constraints.txt")] if "==" in line}
    assert {line.split("==")[0] for line in wanted} <= pinned
    assert not any("/" in line for line in wanted)
    assert {tool.package for tool in TOOLS.values()} - {None} <= pinned
