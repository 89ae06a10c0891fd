"""Your rewards follow no table of means. How do you simulate a test before you run it?

Here four settings of a server are tested for a day, on live requests; the reward is the time of an
answer, so less is better, and times have a long tail. The day begins with the nightly backup, which
slows some settings more than others. An environment is any class with five members: `arms`,
`budget`, `direction`, `best_arm`, and `play`, which plays a segment of a test. You will see such
a class in 40 lines, and which policies would find the fastest setting of the day.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import altair as alt
import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.segments import Direction, arms_between

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("steadyarm-examples"), metavar="DIR")
out = parser.parse_args().out


@dataclass(frozen=True)
class Server:
    """A day of a server that begins with a backup; answers take log-normal times."""

    arms: ClassVar = sa.ArmSet.one_hot(["standard", "large cache", "more threads", "compressed"])
    backup: ClassVar = np.array([0.60, 0.80, 0.52, 0.56])  # mean seconds of an answer
    day: ClassVar = np.array([0.40, 0.24, 0.38, 0.37])
    direction: Direction = "minimize"
    budget: int = 20_000  # requests that take part
    tail: float = 1.0  # standard deviation of the logarithm

    @property
    def best_arm(self) -> int:
        """The setting that is fastest on average over the day."""
        return int((0.25 * self.backup + 0.75 * self.day).argmin())

    def play(
        self,
        segment: sa.Segment,
        start: NDArray[np.int64],
        rng: np.random.Generator,
        squares: bool = False,
    ) -> sa.SegmentStats:
        """Each simulated test plays its row of the segment, from its own round `start` on."""
        K, found = self.arms.size, []
        for weights, rounds, first in zip(segment.weights, segment.rounds, start, strict=True):
            one = sa.Segment(weights[None], rounds[None], segment.order, segment.block)
            played = arms_between(one, int(rng.integers(2**62)), 0, 0, int(rounds))
            night = first + np.arange(rounds) < self.budget / 4
            mean = np.where(night, self.backup[played], self.day[played])
            seconds = mean * rng.lognormal(-(self.tail**2) / 2, self.tail, len(played))
            found.append([np.bincount(played, of, K) for of in (None, seconds, seconds**2)])
        counts, sums, squared = np.swapaxes(found, 0, 1)
        return sa.SegmentStats(counts.astype(np.int64), sums, squared if squares else None)


world = Server()
print("Fastest over the day:", world.arms.names[world.best_arm])
print("Fastest during the backup:", world.arms.names[int(world.backup.argmin())])
policies = (sa.Steady(), sa.Uniform(), sa.SequentialHalving(), sa.Peace())
found = [sa.simulate(policy, world, trials=200, seed=1) for policy in policies]
for one in found:
    print(f"  {one.policy}: {one.errors} of {one.trials} tests wrong")

# The picture: how fast each setting is, beside who finds out.
hours = {"during the backup": world.backup, "the rest of the day": world.day}
rows = [
    {"setting": setting, "hours": name, "seconds": seconds}
    for name, values in hours.items()
    for setting, seconds in zip(world.arms.names, values.tolist(), strict=True)
]
speed = alt.Chart({"values": rows}, width=640).mark_point(filled=True, size=90)
speed = speed.encode(
    x=alt.X("seconds:Q", title="mean seconds of an answer"),
    y=alt.Y("setting:N", title=None, sort=None),
    color=alt.Color("hours:N", legend=alt.Legend(orient="bottom", title=None)),
)
chart = alt.vconcat(speed, sa.plot.results(found)).resolve_scale(color="independent")
out.mkdir(parents=True, exist_ok=True)
chart.save(out / "06_own_environment.png", ppi=100)
print(f"Picture: {out / '06_own_environment.png'}")
