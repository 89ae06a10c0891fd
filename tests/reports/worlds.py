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
    """The elements of a page with their attributes, its text, tables, headings and pictures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.headings: list[str] = []
        self.code: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "caption":
            self.tables[""] = []
        if tag == "tr":
            self._rows().append([])
        if tag in ("td", "th"):
            self._rows()[-1].append("")
        if tag == "h2":
            self.headings.append("")
        if tag == "code":
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th", "p", "li", "h2", "h3", "dt", "dd", "caption"):
            self.words.append(" ")

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if "caption" in self.open:
            self.tables[data] = self.tables.pop("")
        elif self.open and self.open[-1] in ("td", "th"):
            self._rows()[-1][-1] += data
        elif "h2" in self.open:
            self.headings[-1] += data
        elif "code" in self.open:
            self.code[-1] += data

    def _rows(self) -> list[list[str]]:
        """Of the table that is open: the last one, its header first."""
        return self.tables[next(reversed(self.tables))]

    def table(self, caption: str) -> list[list[str]]:
        """The rows of the table whose caption begins so, without its header."""
        return next(rows for name, rows in self.tables.items() if name.startswith(caption))[1:]

    @property
    def pictures(self) -> list[str]:
        """What the pictures show, for people who cannot see them."""
        return [given["alt"] or "" for tag, given in self.found if tag == "img"]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())
