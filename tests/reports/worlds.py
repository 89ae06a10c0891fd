"""Live tests with traffic, to be reported on."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np

import steadyarm as sa
from tests.live.worlds import Clock, create

DAY = 86_400.0


def visited(visits: int, days: float = 5, told: float = 1.0, **settings: Any) -> sa.Experiment:
    """A test after so many visits, evenly over some days; later variants are a little better.

    told : share of the rewards that come, half an hour after the visit
    """
    clock = Clock()
    live = create(**{"budget": 2 * visits or 100, "reward_range": (0, 1)} | settings, clock=clock)
    rng, K = np.random.default_rng(7), live.arms.size
    at_once = 25
    for first in range(0, visits, at_once):
        clock.pass_(days * DAY / max(visits // at_once, 1) - 1800)
        units = [f"visitor {i}" for i in range(first, min(first + at_once, visits))]
        asked = [a for a in live.ask_many(units) if isinstance(a, sa.LiveAssignment)]
        clock.pass_(1800)
        chance = [0.2 + 0.5 * a.arm / (K - 1) for a in asked]
        rewards = (rng.random(len(asked)) < chance).astype(float)
        here = rng.random(len(asked)) < told
        live.tell_many([(a, r) for a, r, h in zip(asked, rewards, here, strict=True) if h])
    return live


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())
