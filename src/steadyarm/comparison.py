"""compare: policies in worlds at budgets, all at once; and Comparison, what came out."""

from __future__ import annotations

import csv
import inspect
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from steadyarm import __version__
from steadyarm.engines import Engine, engine_named
from steadyarm.environments.families import WORLDS, world_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.files import FrameLibrary, csv_cell, frame_of, write_atomically
from steadyarm.fingerprints import Content, content_of
from steadyarm.policies import Policy
from steadyarm.policies.named import Policies, named_policies
from steadyarm.progress import Progress
from steadyarm.simulation import AnyWorld, check_world
from steadyarm.sweeps import (
    CellResult,
    Facts,
    Journal,
    Task,
    Work,
    key_of,
    run_tasks,
    stream_of,
    world_fingerprint,
)
from steadyarm.validation import check_fraction, not_negative, whole_number
from steadyarm.wording import did_you_mean

Maker = Callable[[int], AnyWorld]
Worlds = Mapping[str, AnyWorld | Maker | str] | Sequence[str] | AnyWorld

COLUMNS = (
    "world", "budget", "policy", "trials", "errors", "error_rate", "low", "high", "regret",
    "regret_error", "gap", "arms", "features", "seconds_per_trial",
)  # fmt: skip  # a table reads better so
ALPHA = 0.05  # below which a difference is significant
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", '"': r"\textquotedbl{}",
    "[": "{[}", "]": "{]}",
}  # fmt: skip  # a table reads better so


def compare(
    policies: Policies,
    worlds: Worlds,
    budgets: Sequence[int] | int | None = None,
    trials: int = 1000,
    seed: int = 0,
    jobs: int | None = None,
    engine: str | Engine = "threads",
    journal: str | Path | None = None,
    progress: bool | Callable[[int, int], object] = True,
) -> Comparison:
    """Run every policy in every world at every budget, and count the wrong recommendations.

    Each combination has a random stream of its own, which depends on the seed and on the names of
    world, budget and policy alone: the counts are the same on every engine, whatever the number of
    jobs, and whatever else is compared.

    Parameters
    ----------
    policies : policies of ours or your own, by name or in a list; also texts, such as "p1-rage",
        "g-bai-blocks" (the balanced fixed design) or "mymodule:MyPolicy"
    worlds : by name; each a world, or a function that makes the world of a budget, or the name of a
        family, such as "soare_oscillating"
    budgets : for functions and families; a world has its own budget
    trials : number of runs of each combination
    seed : the same seed gives the same results
    jobs : threads or processes; by default one per core
    engine : "threads"; "processes" for policies and worlds in plain Python; "dask" for a cluster,
        or an engine such as `DaskEngine("tcp://host:8786")`. Processes and clusters need functions
        and classes that have names in a module
    journal : file of finished combinations, from which a run that was stopped goes on. Results of a
        policy or world of yours are computed anew if its code, its data or the modules it is
        written in have changed
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
    tasks = list(_tasks(entrants, makers, _budgets(budgets), trials, seed, journal is not None))
    kept = Journal(None if journal is None else Path(journal))
    with Progress(lines=False) as bar:

        def advance(work: Work) -> None:
            if callable(progress):
                progress(work.rounds, work.all_rounds)
            elif progress:
                bar.show(work.rounds, work.all_rounds, work.text)

        cells = run_tasks(tasks, engine_named(engine, jobs), kept, advance)
    settings = {
        "policies": {name: policy.to_dict() for name, policy in entrants.items()},
        "worlds": {f"{t.world_name} {t.value}": t.fingerprint for t in tasks},
        "trials": trials,
        "seed": seed,
        "version": __version__,
    }
    return Comparison(tuple(cells), settings)


def _makers(worlds: Any) -> dict[str, AnyWorld | Maker]:
    """Worlds, and functions that make them, by name."""
    if isinstance(worlds, str) or hasattr(worlds, "play") or hasattr(worlds, "begin"):
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


def _of_family(name: str, budget: int) -> AnyWorld:
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


@dataclass(frozen=True, eq=False)
class _Given:
    """Makes a world that is there already."""

    world: AnyWorld

    def __call__(self) -> AnyWorld:
        return self.world


def _tasks(
    policies: Mapping[str, Policy[Any]],
    makers: Mapping[str, AnyWorld | Maker],
    budgets: list[int] | None,
    trials: int,
    seed: int,
    journalled: bool,
) -> Iterator[Task]:
    for policy_name, policy in policies.items():
        found = content_of(policy)
        if journalled and found.obstacle:
            raise _not_journalled(f"the policy {policy_name!r}", found)
    for name, given in makers.items():
        for make, world in _worlds(name, given, budgets):
            facts, mark, content = Facts.of(world), world_fingerprint(world), content_of(world)
            if journalled and not mark:
                raise _not_journalled(f"the world {name!r}", content)
            for policy_name, policy in policies.items():
                stream = stream_of(seed, name, world.budget, policy_name)
                yield Task(
                    *(name, "budget", world.budget, policy_name, policy, make, mark),
                    *(facts, trials, stream),
                    key_of(policy, mark, trials, stream, name, policy_name, content.sources),
                )


def _not_journalled(what: str, content: Content) -> InvalidInputError:
    return InvalidInputError(
        f"{what} holds {content.obstacle or 'something'}, whose content cannot be compared with "
        "that of a later run, so that no journal can tell whether its results are still good; "
        "leave the journal out, or give its class an attribute `fingerprint`, a text that differs "
        "wherever results may."
    )


def _worlds(
    name: str, given: Any, budgets: list[int] | None
) -> Iterator[tuple[Callable[[], AnyWorld], AnyWorld]]:
    if hasattr(given, "play") or hasattr(given, "begin"):
        if budgets is not None and given.budget not in budgets:
            raise InvalidInputError(
                f"the world {name!r} has a budget of {given.budget}, which is not among the "
                "budgets to compare at; give a function that makes the world of a budget, such as "
                f"{{{name!r}: lambda budget: …}}."
            )
        yield _Given(given), given
        return
    if not callable(given):
        check_world(given)
    if budgets is None:
        raise InvalidInputError(
            f"the world {name!r} is made for a budget; say for which: budgets=[…]."
        )
    try:
        inspect.signature(given).bind(budgets[0])
    except TypeError as error:
        raise InvalidInputError(
            f"the world {name!r} is a function that cannot be called with a budget ({error}); "
            f"give a function of the budget: {{{name!r}: lambda budget: …}}."
        ) from None
    except ValueError:
        pass  # of a compiled function nothing is known
    for budget in budgets:
        make = partial(given, budget)
        world = make()
        check_world(world)
        if world.budget != budget:
            raise InvalidInputError(
                f"the function of the world {name!r} was asked for a budget of {budget} and made a "
                f"world with one of {world.budget}."
            )
        yield make, world


# What came out


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

    cells: tuple[CellResult, ...]
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
    def _rows(self) -> dict[tuple[str, Any], dict[str, CellResult]]:
        """Cells by policy, for each pair of a world and a budget."""
        rows: dict[tuple[str, Any], dict[str, CellResult]] = {}
        for cell in self.cells:
            rows.setdefault((cell.world, cell.value), {})[cell.policy] = cell
        return rows

    @cached_property
    def settings_compared(self) -> tuple[tuple[str, Any], ...]:
        """Pairs of a world and a budget, in order."""
        return tuple(self._rows)

    def cell(self, policy: str, world: str | None = None, budget: int | None = None) -> CellResult:
        """The result of a policy; world and budget where there are several."""
        rows: dict[Any, dict[str, CellResult]] = self._rows
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

    def p_value(self, first: CellResult, second: CellResult) -> float:
        """Of Fisher's exact test, two-sided, that both err equally often.

        Parameters
        ----------
        first, second : results to compare, from `cell`

        Returns
        -------
        float : the p-value
        """
        table = np.array([[one.errors, one.trials - one.errors] for one in (first, second)])
        return float(fisher_exact(table).pvalue)

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
        rows = [_row(cell) for cell in self.cells]
        columns: dict[str, list[Any]] = {
            name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)
        }
        if epsilon is not None:
            limit = not_negative(epsilon, "epsilon")
            columns["good_rate"] = [cell.good_rate(limit) for cell in self.cells]
        return columns

    def to_frame(self, library: FrameLibrary = "pandas", epsilon: float | None = None) -> Any:
        """A data frame with a row for each combination.

        Columns are world, budget, policy, trials, errors, error_rate, low and high (exact 95 %
        interval), regret and regret_error, gap, arms, features, and seconds_per_trial, the
        processor time of the policy.

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
            writer.writerow([csv_cell(x) if isinstance(x, str) else _plain(x) for x in row])
        if path is not None:
            write_atomically(Path(path), out.getvalue().encode())
        return out.getvalue()

    def to_latex(
        self, path: str | Path | None = None, level: float = 0.95, alpha: float = ALPHA
    ) -> str:
        r"""A table for a paper: a row for each world and budget, a column for each policy.

        Error rates are in per cent, with the limits of their exact intervals as smaller numbers.
        The best policy of a row is bold, with all from which it does not differ significantly
        (Fisher's exact test); none is where no policy is significantly worse. It needs
        ``\usepackage{booktabs}`` and ``\usepackage[T1]{fontenc}``.

        path : file to write it into
        level : of the intervals
        alpha : below which a difference is significant
        """
        several = len({cell.value for cell in self.cells}) > 1
        head = ["World", *(["$T$"] if several else []), *self.policies]
        lines = [
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            " & ".join(h if h == "$T$" else _latex(h) for h in head) + r" \\",
            r"\midrule",
        ]
        before = None
        for world, budget in self.settings_compared:
            if before not in (None, world) and several:
                lines.append(r"\addlinespace")
            entries = [_latex(world) if world != before else ""]
            entries += [f"{budget:,}".replace(",", r"\,")] if several else []
            best = self.best(world, budget, alpha)
            if len(best) == len(self._rows[world, budget]):
                best = ()  # nothing is known to be worse
            for policy in self.policies:
                entries.append(_latex_cell(self.cell(policy, world, budget), level, policy in best))
            lines.append(" & ".join(entries) + r" \\")
            before = world
        trials = sorted({cell.trials for cell in self.cells})
        counted = " to ".join(f"{n:,}" for n in {trials[0]: None, trials[-1]: None})
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines.append(
            f"% Probability of error in per cent; {counted} trials each; smaller numbers: "
            f"{100 * level:g} % Clopper-Pearson intervals. Bold: not significantly worse than the "
            f"best of the row (Fisher's exact test, p >= {alpha:g}), where others are."
        )
        text = "\n".join(lines) + "\n"
        if path is not None:
            write_atomically(Path(path), text.encode())
        return text

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

    def ratios(self, policy: str, baseline: str) -> NDArray[np.float64]:
        """Errors of a policy relative to those of another, in every setting.

        No errors count as half of one.

        Parameters
        ----------
        policy : whose errors
        baseline : relative to whose

        Returns
        -------
        a number for each world and budget
        """
        pairs = [
            (self.cell(policy, *setting), self.cell(baseline, *setting))
            for setting in self.settings_compared
        ]
        rates = [[max(one.errors, 0.5) / one.trials for one in pair] for pair in pairs]
        return np.array([a / b for a, b in rates])

    def __str__(self) -> str:
        counts = [len(self.policies), len(self.worlds), len({c.value for c in self.cells})]
        nouns = [("policy", "policies"), ("world", "worlds"), ("budget", "budgets")]
        text = ", ".join(f"{n} {noun[n != 1]}" for n, noun in zip(counts, nouns, strict=True))
        trials = sorted({cell.trials for cell in self.cells})
        every = f"{trials[0]:,}" if len(trials) == 1 else f"{trials[0]:,} to {trials[-1]:,}"
        rows = [("world", "budget", *self.policies)]
        for world, budget in self.settings_compared:
            found = [self.cell(policy, world, budget) for policy in self.policies]
            rows.append((world, str(budget), *(f"{cell.error_rate:.4f}" for cell in found)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([f"Comparison: {text}, {every} trials each", *lines])

    __repr__ = __str__


def _row(cell: CellResult) -> tuple[Any, ...]:
    per_trial = cell.seconds / cell.trials
    rates = cell.trials, cell.errors, cell.error_rate, *cell.interval(0.95)
    world = cell.min_gap, cell.arms, cell.features
    return (
        cell.world, cell.budget, cell.policy, *rates, cell.regret, cell.regret_error, *world,
        per_trial,
    )  # fmt: skip  # a table reads better so


def _plain(value: Any) -> Any:
    return "" if isinstance(value, float) and math.isnan(value) else value


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def _latex_cell(cell: CellResult, level: float, best: bool) -> str:
    low, high = (100 * limit for limit in cell.interval(level))
    digits = max(1, 1 - math.floor(math.log10(high - low)))  # two of the interval's length
    number = f"{100 * cell.error_rate:.{digits}f}"
    bold = rf"\mathbf{{{number}}}" if best else number
    return rf"${bold}$ {{\scriptsize$[{low:.{digits}f}, {high:.{digits}f}]$}}"
