"""Small tests with traffic over several days, in memory."""

from typing import Any

import numpy as np

import steadyarm as sa
from tests.live.worlds import ARMS as ARMS
from tests.live.worlds import Clock

DAY = 86_400_000_000  # microseconds
BEGIN = 1_760_000_400.0  # in the middle of a day
NAMES = ARMS.names
RATES = np.array([0.1, 0.15, 0.2, 0.12, 0.35, 0.18])
LATE = 1800.0  # seconds until rewards come


def played(
    arms: sa.ArmSet = ARMS,
    budget: int = 4000,
    visits: int = 2400,
    days: float = 6,
    policy: sa.Policy[Any] | None = None,
    seed: int = 3,
    step: int = 20,
    **given: Any,
) -> sa.Experiment:
    """A test with visits spread evenly over days; rewards come half an hour later."""
    clock = Clock(BEGIN)
    rules: dict[str, Any] = {"seed": seed, "clock": clock, "missing": "drop"} | given
    test = sa.create_experiment("test", arms, policy or sa.Steady(), budget, "memory", **rules)
    rng = np.random.default_rng(seed)
    rates = np.resize(RATES, arms.size)
    for first in range(0, visits, step):
        clock.now = BEGIN + 86_400 * days * first / visits
        shown = [
            answer
            for answer in test.ask_many([f"{first + i}" for i in range(step)])
            if not isinstance(answer, sa.SteadyArmError)
        ]
        clock.now += LATE
        test.tell_many((one, float(rng.random() < rates[one.arm])) for one in shown)
    clock.now = BEGIN + 86_400 * days
    return test
