"""compare: error rates of several policies in several worlds at several budgets."""

from __future__ import annotations

import csv
import hashlib
import inspect
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from steadyarm import __version__
from steadyarm.environments import RewardSource
from steadyarm.environments.families import WORLDS, world_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.policies import Policies, Policy, named_policies
from steadyarm.simulation.journal import Journal
from steadyarm.simulation.simulate import (
    CHUNK,
    Chunk,
    DrawnWorlds,
    Results,
    Workers,
    check_environment,
    chunks_of,
    results_of,
    run_chunk,
    run_in_parallel,
)
from steadyarm.validation import check_fraction, not_negative, whole_number
from steadyarm.wording import (
    FrameLibrary,
    Progress,
    align_columns,
    csv_cell,
    did_you_mean,
    frame_of,
    write_atomically,
)

Maker = Callable[..., RewardSource]
Worlds = Mapping[str, RewardSource | Maker | str] | Sequence[str] | RewardSource
Value = float | int | None

COLUMNS = (
    "world", "budget", "policy", "trials", "errors", "error_rate", "low", "high", "regret",
    "regret_error", "cumulative_regret", "gap", "arms", "features", "seconds_per_trial",
)  # fmt: skip  # a table reads better so
ALPHA = 0.05  # below which a difference is significant


def compare(
    policies: Policies,
    worlds: Worlds,
    budgets: Sequence[int] | int | None = None,
    trials: int = 1000,
    seed: int = 0,
    jobs: int | None = None,
    workers: Workers = "threads",
    journal: str | Path | None = None,
    progress: bool | Callable[[int, int], object] = True,
) -> Comparison:
    """Run every policy in every world at every budget, and count the wrong recommendations.

    Each combination has a random stream of its own, which depends on the seed and on the names of
    world, budget and policy alone. The counts do not depend on the workers, nor on what else is
    compared.

    Parameters
    ----------
    policies : policies of ours or your own, by name or in a list; also texts, such as "p1-rage",
        "g-bai-blocks" (the balanced fixed design) or "mymodule:MyPolicy"
    worlds : by name; each an environment, or a function that makes the environment of a budget, or
        the name of a family, such as "soare_oscillating". A function of `rng`, or of a budget and
        `rng`, draws a new world for each trial, the same for all policies
    budgets : for functions and families; an environment has its own budget
    trials : number of runs of each combination
    seed : the same seed gives the same results
    jobs : number of workers; by default one per core
    workers : "threads", or "processes" for policies and worlds in plain Python; joblib runs them.
        A backend chosen with `joblib.parallel_config`, such as "dask", is used instead
    journal : file of finished combinations, from which a run that was stopped goes on. A result is
        known by the names and settings of policy and world, trials, seed and version; a journal
        does not notice that the code of a function has changed
    progress : True shows a bar on a terminal, with what is done and how long the rest takes;
        False shows nothing; a function is called with the rounds that are done and those of all

    Returns
    -------
    Comparison : all results, as a frame, a table for LaTeX, CSV; `plot` draws it

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> def still(budget):
    ...     return sa.Environment.from_means(arms, [0.5, 0.3, 0.0], budget=budget)
    >>> policies = [sa.Steady(), sa.GBAI()]
    >>> print(sa.compare(policies, {"still": still}, budgets=[100, 400], trials=500))
    Comparison: 2 policies, 1 world, 2 budgets, 500 trials each
    world  budget  Steady   G-BAI
    still     100  0.2100  0.2280
    still     400  0.0380  0.0740
    """
    entrants, makers = named_policies(policies), _makers(worlds)
    trials, seed = whole_number(trials, "trials", least=1), whole_number(seed, "seed")
    tasks = [
        Task(name, "budget", world.budget, label, policy, world, trials, seed)
        for name, maker in makers.items()
        for world in _environments(name, maker, _budgets(budgets), seed)
        for label, policy in entrants.items()
    ]
    with Progress(lines=False) as bar:

        def advance(done: Work) -> None:
            if callable(progress):
                progress(done.rounds, done.all_rounds)
            elif progress:
                bar.show(done.rounds, done.all_rounds, done.text)

        finished = Journal(None if journal is None else Path(journal))
        cells = run_tasks(tasks, finished, jobs, workers, advance)
    settings = {
        "policies": {name: policy.to_dict() for name, policy in entrants.items()},
        "worlds": list(makers),
        "trials": trials,
        "seed": seed,
        "version": __version__,
    }
    return Comparison(tuple(cells), settings)


def _makers(worlds: Any) -> dict[str, RewardSource | Maker]:
    """Environments, and functions that make them, by name."""
    if isinstance(worlds, str) or hasattr(worlds, "play"):
        worlds = {"world": worlds} if not isinstance(worlds, str) else [worlds]
    if not isinstance(worlds, Mapping):
        if not all(isinstance(name, str) for name in worlds):
            raise InvalidInputError.of(
                "worlds", worlds, 'a mapping with a name for each: {"trend": …}'
            )
        worlds = {name: name for name in worlds}
    if not worlds:
        raise InvalidInputError("there is no world to compare in; give at least one.")
    for name in worlds:
        if not isinstance(name, str):
            raise InvalidInputError.of("the name of a world", name, "a text")
    return {
        name: _family(given) if isinstance(given, str) else given for name, given in worlds.items()
    }


def _family(name: str) -> Maker:
    if name not in WORLDS:
        raise InvalidInputError(
            f"there is no family of worlds {name!r}; the families are {', '.join(WORLDS)}"
            f"{did_you_mean(name, list(WORLDS))}"
        )
    return partial(_of_family, name)


def _of_family(name: str, budget: int) -> RewardSource:
    return world_from_settings({"name": name, "budget": budget})


def _budgets(budgets: Sequence[int] | int | None) -> list[int] | None:
    if budgets is None:
        return None
    if isinstance(budgets, str) or not isinstance(budgets, Iterable):
        budgets = [whole_number(budgets, "budgets", least=1)]
    several = list(budgets)
    if not several:
        raise InvalidInputError("budgets has no entry; give at least one, or leave it out.")
    return list(dict.fromkeys(whole_number(budget, "a budget", least=1) for budget in several))


def _environments(name: str, maker: Any, budgets: list[int] | None, seed: int) -> Iterator[Any]:
    """An environment as it is, or one for each budget; worlds that are drawn anew in each trial."""
    if hasattr(maker, "play"):
        if budgets is not None and maker.budget not in budgets:
            raise InvalidInputError(
                f"the world {name!r} has a budget of {maker.budget}, which is not among the "
                "budgets to compare at; give a function that makes the world of a budget, such as "
                f"{{{name!r}: lambda budget: …}}."
            )
        yield maker
        return
    if not callable(maker):
        check_environment(maker)
    if draw := _find_draws(maker):
        if len(draw) == 1:
            yield DrawnWorlds(maker, stream_of(seed, name))
            return
        maker = partial(_draw_at, maker, stream_of(seed, name))
    if budgets is None:
        raise InvalidInputError(
            f"the world {name!r} is made for a budget; say for which: budgets=[…]."
        )
    try:
        inspect.signature(maker).bind(budgets[0])
    except TypeError as error:
        raise InvalidInputError(
            f"the world {name!r} is a function that cannot be called with a budget ({error}); "
            f"give a function of the budget: {{{name!r}: lambda budget: …}}."
        ) from None
    except ValueError:
        pass  # compiled functions have no signature
    for budget in budgets:
        world = maker(budget)
        if not isinstance(world, DrawnWorlds):
            check_environment(world)
        if world.budget != budget:
            raise InvalidInputError(
                f"the function of the world {name!r} was asked for a budget of {budget} and made a "
                f"world with one of {world.budget}."
            )
        yield world


def _draw_at(maker: Any, seed: int, budget: int) -> DrawnWorlds:
    return DrawnWorlds(partial(maker, budget), seed)


def _find_draws(maker: Any) -> list[str]:
    """Names of the parameters of a function that draws worlds; empty for other functions."""
    try:
        names = list(inspect.signature(maker).parameters)
    except (TypeError, ValueError):
        return []
    return names if names[-1:] == ["rng"] else []


# Tasks of a sweep: run in parallel, chunk by chunk, journalled.


@dataclass(frozen=True, eq=False)
class Task:
    """One policy in one environment, run `trials` times: a cell of a sweep.

    Attributes
    ----------
    world, parameter, value, policy_name : names of the result
    policy, environment : what is run
    trials : number of independent runs
    seed : the seed of the sweep
    """

    world: str
    parameter: str
    value: Value
    policy_name: str
    policy: Policy[Any]
    environment: RewardSource | DrawnWorlds
    trials: int
    seed: int

    @property
    def stream(self) -> int:
        """Seed of this task alone; it depends on the sweep's seed and on the names."""
        return stream_of(self.seed, self.world, self.value, self.policy_name)

    @property
    def rounds(self) -> int:
        """Rounds of all trials."""
        return self.trials * self.environment.budget

    @cached_property
    def key(self) -> str:
        """Names, settings, seed and version: the same key means the same computation."""
        kind = type(self.policy)
        names = self.world, self.value, self.policy_name, kind.__module__, kind.__qualname__
        world = getattr(self.environment, "fingerprint", type(self.environment).__qualname__)
        settings = self.policy.to_dict(), world, self.environment.budget, self.trials, self.seed
        text = json.dumps([*names, *settings, CHUNK, __version__], default=_json_value)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def run_chunk(self, chunk: int, trials: int) -> Chunk:
        """Run some of the trials; errors say where they come from."""
        try:
            return run_chunk(self.policy, self.environment, self.stream, chunk, trials)
        except Exception as error:
            where = f"{self.parameter} {self.value}" if self.parameter else "its only setting"
            error.add_note(f"in the policy {self.policy_name!r}, world {self.world!r}, {where}")
            raise

    def results(self, chunks: Sequence[Chunk]) -> Results:
        """The results of all chunks, with the names of the task."""
        found = results_of(self.policy_name, self.environment, chunks)
        return replace(
            found, world=self.world, parameter=self.parameter, value=self.value, plays=None
        )


def stream_of(seed: int, *names: Any) -> int:
    """A seed that depends on all of these: tasks are independent of each other."""
    text = json.dumps([seed, *names])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def _latex(text: str) -> str:
    """A name with LaTeX's special characters escaped."""
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def _json_value(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else repr(value)


@dataclass(frozen=True)
class Work:
    """The progress of a comparison: finished rounds and cells, and all."""

    rounds: int
    all_rounds: int
    cells: int
    all_cells: int

    @property
    def text(self) -> str:
        """The number of finished cells, in words."""
        return f"{self.cells:,} of {self.all_cells:,} cells"


def run_tasks(
    tasks: Sequence[Task],
    journal: Journal,
    jobs: int | None = None,
    workers: Workers = "threads",
    progress: Callable[[Work], object] = lambda work: None,
) -> list[Results]:
    """Results of all tasks, from the journal or computed now.

    Parameters
    ----------
    jobs, workers : see `compare`
    progress : called when work begins, and whenever some is done; never if nothing is to do
    """
    every = {task.key: task for task in tasks}
    missing = {key: task for key, task in every.items() if journal.get(key) is None}
    rounds = sum(task.rounds for key, task in every.items() if key not in missing)
    work = Work(
        rounds, sum(t.rounds for t in every.values()), len(every) - len(missing), len(every)
    )
    if missing:
        progress(work)
    calls = (
        ((key, size), task, chunk, size)
        for key, task in missing.items()
        for chunk, size in chunks_of(task.trials)
    )
    parts: dict[str, list[Chunk]] = {key: [] for key in missing}
    left = {key: task.trials for key, task in missing.items()}
    for (key, size), part in run_in_parallel(Task.run_chunk, calls, jobs, workers):
        task = missing[key]
        parts[key].append(part)
        work = replace(work, rounds=work.rounds + size * task.environment.budget)
        left[key] -= size
        if left[key] == 0:
            journal.add(key, task.results(parts.pop(key)))
            work = replace(work, cells=work.cells + 1)
        progress(work)
    return [results for task in tasks if (results := journal.get(task.key)) is not None]


# What came out


def fisher_p_value(first: Results, second: Results) -> float:
    """The two-sided p-value of Fisher's exact test that two cells err equally often."""
    table = np.array([[one.errors, one.trials - one.errors] for one in (first, second)])
    return float(fisher_exact(table).pvalue)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Results of every policy in every world at every budget.

    Attributes
    ----------
    cells : one for each combination, worlds first, then budgets, then policies
    settings : what to run again for the same results: policies, fingerprints of worlds, trials,
        seed and version

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> def still(budget):
    ...     return sa.Environment.from_means(arms, [0.5, 0.3], budget=budget)
    >>> policies = [sa.GBAI(), sa.Uniform()]
    >>> found = sa.compare(policies, {"still": still}, budgets=[50, 100], trials=100, seed=1)
    >>> found.policies, found.worlds
    (('G-BAI', 'Uniform'), ('still',))
    >>> found.cell("G-BAI", budget=100).errors
    14
    """

    cells: tuple[Results, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(cell.policy for cell in self.cells))

    @cached_property
    def worlds(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(cell.world for cell in self.cells))

    @cached_property
    def _rows(self) -> dict[tuple[str, Any], dict[str, Results]]:
        """Cells by policy, for each pair of a world and a budget."""
        rows: dict[tuple[str, Any], dict[str, Results]] = {}
        for cell in self.cells:
            rows.setdefault((cell.world, cell.value), {})[cell.policy] = cell
        return rows

    @cached_property
    def settings_compared(self) -> tuple[tuple[str, Any], ...]:
        """Pairs of a world and a budget, in order."""
        return tuple(self._rows)

    def cell(self, policy: str, world: str | None = None, budget: int | None = None) -> Results:
        """The result of a policy; world and budget where there are several."""
        rows: dict[Any, dict[str, Results]] = self._rows
        if (world, budget) in rows:  # at once, also among thousands
            rows = {(world, budget): rows[world, budget]}
        found = [
            row[policy]
            for setting, row in rows.items()
            if policy in row and world in (None, setting[0]) and budget in (None, setting[1])
        ]
        if len(found) != 1:
            raise InvalidInputError(
                f"{len(found)} results fit policy={policy!r}, world={world!r}, budget={budget!r}; "
                f"the policies are {', '.join(self.policies)}, the worlds {', '.join(self.worlds)}."
            )
        return found[0]

    def pooled(self, budget: int | None = None) -> dict[str, Results]:
        """All worlds together, by policy; arm 0 stands for the best arm of each, 1 for any other.

        Parameters
        ----------
        budget : the budget of the cells; by default all

        Returns
        -------
        results whose errors are sums over worlds and budgets
        """
        found = {}
        for policy in self.policies:
            cells = [
                cell
                for cell in self.cells
                if cell.policy == policy and budget in (None, cell.value)
            ]
            errors, trials = sum(c.errors for c in cells), sum(c.trials for c in cells)
            if not trials:
                raise InvalidInputError(f"nothing was compared at budget={budget!r}.")
            counts = {0: trials - errors, 1: errors}
            found[policy] = Results(policy, counts, None, 0, world="all", value=budget)
        return found

    def to_latex(self, caption: str, label: str) -> str:
        """A table for LaTeX with the package booktabs: errors in per cent, the best ones bold.

        Parameters
        ----------
        caption, label : of the table

        Returns
        -------
        str : the text; the last row has all worlds and budgets together
        """

        def text(cell: Results, bold: bool) -> str:
            rate = f"{100 * cell.error_rate:.2f}"
            return f"\\textbf{{{rate}}}" if bold else rate

        rows = []
        for world, budget in self.settings_compared:
            best, row = self.best(world, budget), self._rows[world, budget]
            cells = [text(row[policy], policy in best) for policy in self.policies]
            rows.append([_latex(world), f"{budget}", *cells])
        pooled = self.pooled().values()
        if len(rows) > 1:
            rows.append(["\\midrule all", "", *(text(cell, False) for cell in pooled)])
        head = ["world", "rounds $T$", *map(_latex, self.policies)]
        lines = [" & ".join(row) + r" \\" for row in [head, *rows]]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{caption} Wrong recommendations in \%, {self._trials} trials per "
                r"number. Bold: not significantly different from the best of the row "
                r"($p \ge 0.05$).}",
                rf"\label{{{label}}}",
                rf"\begin{{tabular}}{{lr{'r' * len(self.policies)}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )

    @property
    def _trials(self) -> str:
        """The trials of a cell: a number, or from the least to the most."""
        trials = [cell.trials for cell in self.cells]
        least, most = min(trials), max(trials)
        return f"{least:,}" if least == most else f"{least:,} to {most:,}"

    def p_value(self, first: Results, second: Results) -> float:
        """The p-value of Fisher's exact test, two-sided, that both err equally often.

        Parameters
        ----------
        first, second : results to compare, from `cell`

        Returns
        -------
        float : the p-value
        """
        return fisher_p_value(first, second)

    def best(self, world: str, budget: Any, alpha: float = ALPHA) -> tuple[str, ...]:
        """Policies that err least, with those from which it is not significantly different.

        Parameters
        ----------
        world, budget : which row of the comparison
        alpha : level of the tests

        Returns
        -------
        names of the policies
        """
        if (world, budget) not in self._rows:
            raise InvalidInputError(
                f"world={world!r} was not compared at budget={budget!r}; give one of "
                f"{', '.join(f'{name} at {value}' for name, value in self.settings_compared)}."
            )
        row = list(self._rows[world, budget].values())
        first = min(row, key=lambda one: one.error_rate)
        alpha = check_fraction(alpha, "alpha")
        return tuple(one.policy for one in row if one is first or self.p_value(first, one) >= alpha)

    def columns(self, epsilon: float | None = None) -> dict[str, list[Any]]:
        """The numbers as columns, a row for each combination.

        Parameters
        ----------
        epsilon : if given, also the share of recommendations whose regret is at most this

        Returns
        -------
        lists by the name of the column
        """
        rows = [
            (
                *(cell.world, cell.budget, cell.policy, cell.trials, cell.errors),
                *(cell.error_rate, *cell.interval(0.95), cell.regret, cell.regret_error),
                cell.cumulative_regret,
                *(cell.gap, cell.arms, cell.features, cell.seconds / cell.trials),
            )
            for cell in self.cells
        ]
        columns = {name: list(values) for name, *values in zip(COLUMNS, *rows, strict=True)}
        if epsilon is not None:
            limit = not_negative(epsilon, "epsilon")
            columns["good_rate"] = [cell.good_rate(limit) for cell in self.cells]
        return columns

    def to_frame(self, library: FrameLibrary = "pandas", epsilon: float | None = None) -> Any:
        """A data frame with a row for each combination.

        Columns are world, budget, policy, trials, errors, error_rate, low and high (exact 95 %
        interval), regret and regret_error, cumulative_regret, gap, arms, features, and
        seconds_per_trial, the processor time of the policy.

        library : "pandas" or "polars"
        epsilon : adds good_rate, the share of trials that recommend an arm at most so much worse
            than the best
        """
        return frame_of(self.columns(epsilon), library)

    def to_csv(self, path: str | Path | None = None, epsilon: float | None = None) -> str:
        """The same as the text of a CSV file, which is written if a path is given.

        Parameters
        ----------
        path : file to write; none by default
        epsilon : as for `to_frame`

        Returns
        -------
        str : the text
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        columns = self.columns(epsilon)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([csv_cell(x) if isinstance(x, str) else x for x in row])
        if path is not None:
            write_atomically(Path(path), out.getvalue().encode())
        return out.getvalue()

    def profile(self) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """Performance profile: in which share of settings a policy is within a factor of the best.

        Returns
        -------
        factors : rising, from 1
        shares : for each policy, as many numbers from 0 to 1; no errors count as half of one
        """
        rates = np.array(
            [
                [
                    max(cell.errors, 0.5) / cell.trials
                    for cell in (self.cell(p, world, budget) for p in self.policies)
                ]
                for world, budget in self.settings_compared
            ]
        )
        ratios = rates / rates.min(axis=1, keepdims=True)
        factors = np.unique(ratios)
        shares = (ratios[None] <= factors[:, None, None] * (1 + 1e-12)).mean(axis=1)
        return factors, {name: shares[:, i] for i, name in enumerate(self.policies)}

    def __str__(self) -> str:
        counts = [len(self.policies), len(self.worlds), len({c.value for c in self.cells})]
        nouns = [("policy", "policies"), ("world", "worlds"), ("budget", "budgets")]
        text = ", ".join(f"{n} {noun[n != 1]}" for n, noun in zip(counts, nouns, strict=True))
        rows = [("world", "budget", *self.policies)]
        for world, budget in self.settings_compared:
            found = [self.cell(policy, world, budget) for policy in self.policies]
            rows.append((world, str(budget), *(f"{cell.error_rate:.4f}" for cell in found)))
        if len(self.worlds) > 1:
            pooled = self.pooled().values()
            rows.append(("all", "", *(f"{cell.error_rate:.4f}" for cell in pooled)))
        return "\n".join([f"Comparison: {text}, {self._trials} trials each", *align_columns(rows)])

    __repr__ = __str__
