"""Ax, in its own way with variants: a batch a day, weights by empirical-Bayes Thompson sampling.

A new allocation costs some 30 milliseconds, so it is asked once a day and not at every visit.
"""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.equal_split import EqualSplit
from benchmarks.peers.interface import Player, Task, Tool

__all__ = ["TOOLS"]

METRIC = "click"


class DailyBatches(EqualSplit):
    """The first day equally; then each day in proportion to the weights that Ax gives."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._generators: Any = import_module("ax.adapter.registry").Generators
            self._frame: Any = import_module("pandas").DataFrame
            self._data: Any = import_module("ax.core.data").Data
            import_module("torch").set_num_threads(1)
        for name in logging.root.manager.loggerDict:  # each of its modules has a level of its own
            if name.startswith("ax."):
                logging.getLogger(name).setLevel(logging.ERROR)
        np.random.seed(task.seed % 2**32)  # noqa: NPY002  what Ax draws from
        self._day = task.visits_per_day
        self._experiment, self._names = self._begin()
        self._weights = np.full(self.K, 1 / self.K)

    def choose(self, t: int) -> int:
        if t % self._day == 0:
            if t:
                self._weights = self._weigh()
            shown = self.rng.choice(self.K, size=self._day, p=self._weights)
            self._today: list[int] = shown.tolist()
        return self._today[t % self._day]

    def decide(self) -> int:
        self.winner = int(np.argmax(self._weigh()))
        return self.winner

    def sure(self) -> None:
        """It claims nothing."""

    def _begin(self) -> tuple[Any, list[str]]:
        """An experiment with one parameter whose values are the variants, all in one batch."""
        parts = import_module("ax.core")
        parameter = import_module("ax.core.parameter")
        objective = import_module("ax.core.objective").Objective
        settings = import_module("ax.core.optimization_config").OptimizationConfig
        variant = parameter.ChoiceParameter(
            "variant",
            parameter.ParameterType.STRING,
            [str(k) for k in range(self.K)],
            is_ordered=False,
            sort_values=False,
        )
        experiment = parts.Experiment(
            search_space=parts.SearchSpace([variant]),
            tracking_metrics=[parts.Metric(METRIC)],
            optimization_config=settings(
                objective(expression=METRIC, metric_name_to_signature={METRIC: METRIC})
            ),
        )
        factorial = self._generators.FACTORIAL(experiment=experiment).gen(n=-1)
        batch = experiment.new_batch_trial(generator_run=factorial)
        batch.mark_running(no_runner_required=True)
        batch.mark_completed()
        named = {arm.parameters["variant"]: arm.name for arm in batch.arms}
        return experiment, [named[str(k)] for k in range(self.K)]

    def _weigh(self) -> NDArray[np.float64]:
        """What Ax makes of all rewards so far: the share of each variant."""
        seen = [k for k in range(self.K) if self.counts[k]]
        n = np.array([self.counts[k] for k in seen])
        mean = np.array([self.sums[k] for k in seen]) / n
        spread = np.maximum(mean * (1 - mean), 1 / n)
        table = self._frame(
            {
                "arm_name": [self._names[k] for k in seen],
                "metric_name": METRIC,
                "metric_signature": METRIC,
                "mean": mean,
                "sem": np.sqrt(spread / n),
                "trial_index": 0,
            }
        )
        sampler = self._generators.EMPIRICAL_BAYES_THOMPSON(
            experiment=self._experiment, data=self._data(df=table), min_weight=0.01
        )
        found = sampler.gen(n=self.K)
        weights = np.zeros(self.K)
        for arm, weight in zip(found.arms, found.weights, strict=True):
            weights[int(arm.parameters["variant"])] = weight
        return np.asarray(weights / weights.sum(), dtype=np.float64)


def _make(task: Task) -> Player:
    return DailyBatches(task)


TOOLS = (
    Tool(
        "ax",
        "Ax, Thompson in daily batches",
        "`Generators.FACTORIAL` on the first day, then `EMPIRICAL_BAYES_THOMPSON(min_weight=0.01)` "
        "on all sums so far, once a day (the default least weight, 2 divided by the number of "
        "variants, fails when no variant leads)",
        _make,
        module="ax",
        package="ax-platform",
        share=1 / 3,
        own_rule=False,
    ),
)
