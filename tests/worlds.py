"""The paper's environments and published counts that the tests compare with."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

import steadyarm as sa

DATA = Path(__file__).parent / "data"


def soare_arms(d: int, omega: float) -> sa.ArmSet:
    tilted = np.zeros(d)
    tilted[:2] = np.cos(omega), np.sin(omega)
    return sa.ArmSet.from_features(np.vstack([np.eye(d), tilted]))


def soare_stationary(budget: int) -> sa.Environment:
    theta = np.zeros(10)
    theta[0] = 2.0
    return sa.Environment.from_parameters(soare_arms(10, 0.1), theta, budget=budget)


def layouts(slots: int = 4) -> sa.ArmSet:
    return sa.ArmSet.factorial({f"slot {j}": ["-", "+"] for j in range(slots)})


def multivariate_scale(scale: int) -> sa.Environment:
    instance = json.loads((DATA / "published_multivariate_instance.json").read_text())
    setting = instance["scale_series"][scale]
    theta = np.array(instance["theta_star"])
    t = np.arange(instance["budget"])[:, None]
    wave = np.sin(2 * np.pi * t / setting["period"] + np.array(setting["phases"]))
    thetas = theta + setting["scale"] * np.abs(theta).max() * wave
    noise = sa.GaussianNoise(instance["noise_sd"])
    world = sa.Environment.from_parameters(layouts(), thetas, noise)
    assert world.best_arm == instance["best_arm"]
    assert np.isclose(world.gap, setting["min_gap"], rtol=1e-9)
    return world


def published_counts() -> dict[tuple[str, str, str], tuple[int, int]]:
    """(figure, value, policy) -> (errors, trials)."""
    with (DATA / "published_results.csv").open() as file:
        return {
            (row["figure"], row["value"], row["policy"]): (int(row["errors"]), int(row["trials"]))
            for row in csv.DictReader(file)
        }
