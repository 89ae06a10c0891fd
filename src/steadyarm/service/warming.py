"""Warming up: numerical code is compiled, or loaded, before the first request needs it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import steadyarm as sa

__all__ = ["Warming"]

log = logging.getLogger("steadyarm.service")

QUIET = 2.0  # seconds before a word is said about it
ARMS = (
    sa.ArmSet.one_hot(["A", "B", "C"]),
    sa.ArmSet.factorial({"a": ["1", "2"], "b": ["1", "2"]}),
    sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.5]]),  # a skewed design
)
BUDGET, BATCH = 24, 8  # the smallest test that passes through all of the code


class Warming:
    """A thread that runs tiny tests in memory, once; numba compiles what they touch.

    wanted : False if it is done before it begins
    """

    def __init__(self, wanted: bool = True) -> None:
        self._wanted, self._done, self._ended = wanted, threading.Event(), threading.Event()
        if not wanted:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether the service may be used."""
        return self._done.is_set()

    def start(self) -> None:
        """Begin; a process that ends does not wait for it."""
        if self._wanted:
            for work, name in ((self._run, "steadyarm-warming"), (self._tell, "steadyarm-word")):
                threading.Thread(target=work, name=name, daemon=True).start()

    def end(self) -> None:
        """Go no further than the step that is being done."""
        self._ended.set()
        self._done.set()

    def _run(self) -> None:
        try:
            for arms in ARMS:
                for step in steps(arms):
                    if self._ended.is_set():
                        return
                    step()
        except Exception:  # requests work without, only slower at first
            log.exception("getting ready failed")
        finally:
            self._done.set()

    def _tell(self) -> None:
        if not self._done.wait(QUIET):
            log.info(
                "getting ready: compiling numerical code; this takes up to a minute at the first "
                "start"
            )


def steps(arms: sa.ArmSet) -> Iterator[Callable[[], object]]:
    """A whole test, from its creation to its results, in parts."""
    test = sa.create_experiment(
        "warm", arms, sa.Steady(), BUDGET, "memory", seed=1, reward_range=(0, 1), missing="drop"
    )

    def play(first: int) -> None:
        answers = test.ask_many([f"{first + i}" for i in range(BATCH)])
        given = [answer for answer in answers if not isinstance(answer, sa.SteadyArmError)]
        test.tell_many((answer.id, float(i % 2)) for i, answer in enumerate(given))

    for first in range(0, BUDGET, BATCH):
        yield lambda first=first: play(first)  # type: ignore[misc]  # bound now
    yield test.recommend
    yield lambda: test.recommend(anytime=True)
    yield test.health
    yield test.drift
