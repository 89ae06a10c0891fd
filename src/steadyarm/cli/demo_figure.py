"""The demo's picture: what visitors wanted day by day, and who found the best layout."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

import steadyarm as sa
from steadyarm.cli.demo import DAYS, daily_rates
from steadyarm.policies import POLICIES

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # the backend is chosen first
from matplotlib.axes import Axes

__all__ = ["draw"]

# Okabe and Ito's colours, told apart by colour-blind readers too
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#B0B0B0"


def draw(
    world: sa.Environment,
    chosen: sa.Verdict,
    rival: sa.Verdict,
    results: list[sa.Results],
    folder: Path,
) -> Path:
    """Write the picture into `folder` and say where it is."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 4.8), width_ratios=[1.5, 1], layout="constrained"
    )
    _draw_days(left, world, chosen, rival)
    _draw_errors(right, results)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _draw_days(axes: Axes, world: sa.Environment, chosen: sa.Verdict, rival: sa.Verdict) -> None:
    rates = 100 * daily_rates(world)
    days = np.arange(1, DAYS + 1)
    for first in range(1, DAYS + 1, 7):
        axes.axvspan(first - 0.5, first + 1.5, color="#F2F2F2", zorder=0)
        axes.text(
            first + 0.5,
            0.02,
            "weekend",
            ha="center",
            color="#666666",
            fontsize=9,
            transform=axes.get_xaxis_transform(),
        )
    axes.plot(days, rates, color=GREY, linewidth=0.8, zorder=1)
    axes.plot(
        days,
        rates[:, rival.arm],
        color=ORANGE,
        marker="s",
        markersize=4,
        linewidth=2,
        label=f"Peace chose: {rival.name}",
    )
    axes.plot(
        days,
        rates[:, chosen.arm],
        color=BLUE,
        marker="o",
        markersize=4,
        linewidth=2,
        label=f"Steady chose: {chosen.name}",
    )
    axes.set(xlabel="day of the test", ylabel="true click rate (%)", xticks=days, ylim=(0, None))
    axes.set_title("What visitors wanted, layout by layout", loc="left")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False, fontsize=9)


def _draw_errors(axes: Axes, results: list[sa.Results]) -> None:
    names = [result.policy for result in results]
    rates = np.array([result.error_rate for result in results])
    low, high = np.array([result.interval() for result in results]).T
    colours = [ORANGE if POLICIES[name].waits else BLUE for name in names]
    place = np.arange(len(names))
    axes.barh(place, 100 * rates, color=colours, height=0.6)
    axes.errorbar(
        100 * rates,
        place,
        xerr=100 * np.array([rates - low, high - rates]),
        fmt="none",
        ecolor="black",
        elinewidth=1,
        capsize=3,
    )
    for y, (rate, top) in enumerate(zip(rates, high, strict=True)):
        axes.text(100 * top + 1.5, y, f"{rate:.1%}", va="center", fontsize=9)
    axes.set_yticks(place, names)
    axes.invert_yaxis()
    axes.set(xlabel="tests that ended with a wrong layout (%)", xlim=(0, 112))
    axes.set_title(f"How often each policy is wrong ({results[0].trials} tests)", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
