"""The picture on the page of each policy: its error among all others, drawn from recorded rates.

The rates are `docs/algorithms/rates.csv`, which `steadyarm reproduce` writes as `results.csv`:
`RECORD` is the command. `python -m tools.docs.policy_figures` draws all pictures anew.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from steadyarm.files import write_atomically
from steadyarm.paper.specification import figure_named
from steadyarm.plot.charts.sweeps import setting_of
from steadyarm.plot.layout import DASHES, LIGHT
from steadyarm.policies import POLICIES
from steadyarm.policies.named import VARIANTS
from steadyarm.sweeps import Facts

__all__ = ["FOLDER", "RATES", "RECORD", "Rate", "picture_of", "read_rates"]

FOLDER = Path(__file__).parents[2] / "docs" / "algorithms"
RATES = FOLDER / "rates.csv"
RECORD = (
    "steadyarm reproduce soare_stationary multivariate_scale soare_scale"
    f" --policies {','.join([*POLICIES, *(v.replace(' ', '-') for v in VARIANTS)])} --trials 1000"
    " --out rates"
)
PANELS = {
    "soare_stationary": ("Nothing moves, Soare's arms", "budget"),
    "multivariate_scale": ("16 layouts that swing", "size of the swing"),
    "soare_scale": ("Soare's arms that swing", "size of the swing"),
}
WORDS = {
    "G-BAI blocks": "G-BAI in blocks",
    "P1-RAGE blocks": "P1-RAGE in blocks",
    "Steady fixed": "Steady without adaptation",
    "Steady iid": "Steady without blocks",
}
_FLOOR = 4e-4  # where cells without any error are drawn


@dataclass(frozen=True)
class Rate:
    """Error of one policy at one setting of a figure, with its exact 95 % interval."""

    figure: str
    policy: str
    value: float
    error: float
    low: float
    high: float


def read_rates(path: Path = RATES) -> list[Rate]:
    """All rates of the file that belong to a panel, by rising value."""
    with path.open(newline="") as file:
        found = [
            Rate(
                row["figure"],
                row["policy"],
                float(row["value"]),
                int(row["errors"]) / int(row["trials"]),
                float(row["low"]),
                float(row["high"]),
            )
            for row in csv.DictReader(file)
            if row["figure"] in PANELS
        ]
    return sorted(found, key=lambda rate: (rate.figure, rate.policy, rate.value))


def picture_of(policy: str, rates: list[Rate]) -> bytes:
    """A PNG: three worlds, this policy in colour, Steady in black and all others in grey.

    That of Steady also has what separates the gain of blocks from that of adaptation.
    """
    with matplotlib.rc_context({"font.size": 9, "axes.titlesize": 9, "legend.frameon": False}):
        picture = Figure(figsize=(9.0, 3.2), layout="constrained")
        FigureCanvasAgg(picture)
        for axes, figure in zip(picture.subplots(1, 3, sharey=True), PANELS, strict=True):
            _draw(axes, policy, [rate for rate in rates if rate.figure == figure])
            title, label = PANELS[figure]
            axes.set(title=f"{title}\n{_setting(figure)}", xlabel=label)
        picture.axes[0].set_ylabel("wrong verdicts")
        handles, labels = picture.axes[0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside upper center", ncols=3)
        file = io.BytesIO()
        picture.savefig(file, format="png", dpi=110, metadata={"Software": None})
    few = Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small = io.BytesIO()
    few.save(small, format="png", optimize=True)
    return small.getvalue()


@cache
def _setting(figure: str) -> str:
    """Rounds, arms, features and noise of the worlds of a panel."""
    found = figure_named(figure)
    text = setting_of([Facts.of(found.world(value)) for value in found.values])
    return text.replace(", Gaussian", ",\nGaussian")


def _draw(axes: Axes, policy: str, rates: list[Rate]) -> None:
    others = "the other policies"
    for name, group in groupby(rates, key=lambda rate: rate.policy):
        line = list(group)
        x, y = [rate.value for rate in line], [max(rate.error, _FLOOR) for rate in line]
        if name == policy:
            low, high = ([max(end, _FLOOR) for end in ends] for ends in _ends(line))
            axes.fill_between(x, low, high, color=LIGHT.lines[0], alpha=0.2, lw=0)
            axes.plot(x, y, "o-", color=LIGHT.lines[0], lw=2.2, ms=4, zorder=4, label=name)
        elif name in VARIANTS:
            if policy == "Steady":
                at = 1 + list(VARIANTS).index(name)
                style: dict[str, Any] = {
                    "color": LIGHT.lines[at],
                    "marker": "sD^v"[at - 1],
                    "dashes": DASHES[at],
                }
                axes.plot(x, y, **style, lw=1.1, ms=3, zorder=3, label=WORDS[name])
        elif name == "Steady":
            axes.plot(x, y, "--", color=LIGHT.text, lw=1.3, zorder=3, label=name)
        else:
            axes.plot(x, y, "-", color=LIGHT.quiet, lw=0.8, alpha=0.6, zorder=2, label=others)
            others = "_nolegend_"
    axes.set(yscale="log", ylim=(0.8 * _FLOOR, 1.3))
    axes.set_yticks([_FLOOR, 1e-3, 1e-2, 1e-1, 1], ["none", "0.1 %", "1 %", "10 %", "100 %"])
    axes.minorticks_off()
    axes.grid(color=LIGHT.grid, lw=0.6)
    axes.set_axisbelow(True)


def _ends(line: list[Rate]) -> tuple[list[float], list[float]]:
    return [rate.low for rate in line], [rate.high for rate in line]


def main() -> None:
    """Draw the pictures of all policies."""
    rates = read_rates()
    if missing := {policy.name for policy in POLICIES.values()} - {rate.policy for rate in rates}:
        raise SystemExit(f"no rates of {', '.join(sorted(missing))}; record all anew: {RECORD}")
    for policy in POLICIES.values():
        path = FOLDER / f"{policy.name.lower().replace('-', '_')}.png"
        write_atomically(path, picture_of(policy.name, rates))
        print(path.name)


if __name__ == "__main__":
    main()
