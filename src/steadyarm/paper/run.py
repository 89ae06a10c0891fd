"""The cells of figures as tasks of a sweep, and results.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from steadyarm.environments import RewardSource
from steadyarm.paper.specification import Figure
from steadyarm.policies import policy_from
from steadyarm.simulation import Results
from steadyarm.simulation.compare import Task, Value
from steadyarm.wording import write_atomically

PUBLISHED_COLUMNS = ("figure", "parameter", "value", "policy", "trials", "errors", "min_gap")
COLUMNS = (*PUBLISHED_COLUMNS, "low", "high", "regret", "seconds")

Point = tuple[Figure, Value, str, int]  # a policy at a value of a figure's parameter, and trials


def tasks_of(points: Iterable[Point], seed: int = 0) -> list[Task]:
    """Tasks for these points, with policies as in the paper's published runs.

    A policy is given by its proper name, or as "module:Class".

    Examples
    --------
    >>> from steadyarm.paper import FIGURES
    >>> (task,) = tasks_of([(FIGURES["soare_scale"], 3, "Peace", 100)])
    >>> task.policy_name, task.environment.budget, task.rounds
    ('Peace', 10000, 1000000)
    """
    worlds: dict[tuple[str, Value], RewardSource] = {}
    tasks = []
    for figure, value, name, trials in dict.fromkeys(points):
        if (figure.name, value) not in worlds:
            worlds[figure.name, value] = figure.world(value)
        policy, world = policy_from(name, published=True), worlds[figure.name, value]
        label = policy.name if ":" in name else name
        tasks.append(Task(figure.name, figure.parameter, value, label, policy, world, trials, seed))
    return tasks


def results_csv(results: Iterable[Results]) -> str:
    """The text of results.csv: the columns of the published table, 95 % interval, regret and
    processor time of the policy.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in results:
        setting = cell.world, cell.parameter, format_value(cell.value), cell.policy
        numbers = [
            "" if x is None else f"{x:.8f}" for x in (cell.gap, *cell.interval(0.95), cell.regret)
        ]
        writer.writerow((*setting, cell.trials, cell.errors, *numbers, f"{cell.seconds:.3f}"))
    return text.getvalue()


def write_results(results: Iterable[Results], path: Path) -> Path:
    """Write results.csv atomically."""
    return write_atomically(path, results_csv(results).encode())


def format_value(value: Value) -> str:
    """A parameter's value as in the published table: whole numbers without a point, "" for none.

    Examples
    --------
    >>> format_value(1010.0), format_value(2.5), format_value(None)
    ('1010', '2.5', '')
    """
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(float(value))
