"""What functions and objects hold: told apart wherever they differ, the same in every process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.fingerprints import content_of, declared_fingerprint

ROOT = Path(__file__).parents[1]
LEVEL = 1.0


def closure(slope: Any) -> Any:
    return lambda x: slope * x


def default(slope: Any) -> Any:
    def line(x: Any, by: Any = slope) -> Any:
        return by * x

    return line


def keyword(slope: Any) -> Any:
    def line(x: Any, *, by: Any = slope) -> Any:
        return by * x

    return line


@dataclass
class Line:
    slope: Any
    more: dict[str, Any] = field(default_factory=dict)

    def __call__(self, x: Any) -> Any:
        return self.slope * x

    @functools.cached_property
    def twice(self) -> Any:
        return 2 * self.slope


class Slotted:
    __slots__ = ("slope",)

    def __init__(self, slope: Any) -> None:
        self.slope = slope


def inner_class(slope: Any) -> Any:
    class Made:
        def __call__(self, x: Any) -> Any:
            return slope * x

    return Made()


def multiply(slope: Any, x: Any) -> Any:
    return slope * x


MAKERS: dict[str, Any] = {
    "closure": closure,
    "default": default,
    "keyword default": keyword,
    "partial": lambda slope: functools.partial(multiply, slope),
    "partial with a name": lambda slope: functools.partial(multiply, slope=slope),
    "object": Line,
    "slots": Slotted,
    "bound method": lambda slope: Line(slope).__call__,
    "class made by a function": inner_class,
    "nested": lambda slope: closure([{"a": (Line(slope), {slope})}]),
    "cached": lambda slope: functools.cache(closure(slope)),
    "frozen policy": lambda slope: sa.Steady(robustness=slope / 10),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_content_is_known_again_and_other_content_is_told_apart(name: str) -> None:
    make = MAKERS[name]
    one, same, other = (content_of(make(slope)) for slope in (1.0, 1.0, 2.0))
    assert one.fingerprint == same.fingerprint != other.fingerprint != ""
    assert one.obstacle == ""


def test_arrays_are_compared_by_their_numbers() -> None:
    tables = [np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([[0.0, 1.0]]), np.array([0, 1])]
    found = [content_of(closure(table)).fingerprint for table in tables]
    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert content_of(closure(np.array(["a", None]))).fingerprint


def test_functions_on_the_same_line_are_told_apart() -> None:
    a, b = (lambda x: x + 1), (lambda x: x + 2)
    assert content_of(a).fingerprint != content_of(b).fingerprint


def test_global_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def level(x: Any) -> Any:
        return LEVEL + x

    before = content_of(level).fingerprint
    monkeypatch.setitem(globals(), "LEVEL", 2.0)
    assert content_of(level).fingerprint != before


def test_what_was_computed_from_the_fields_does_not_count() -> None:
    line = Line(1.0)
    before = content_of(line).fingerprint
    assert line.twice == 2.0
    assert content_of(line).fingerprint == before


def test_circles_end() -> None:
    line = Line(1.0)
    line.more["self"] = line
    assert content_of(line).fingerprint


def test_what_cannot_be_compared_is_named() -> None:
    found = content_of(closure(threading.Lock()))
    assert found.fingerprint == ""
    assert found.obstacle == "an object of the type _thread.lock"
    assert content_of({threading.Thread(target=print): 1}).obstacle
    assert content_of({frozenset([threading.Lock()])}).obstacle


class Named:
    """Says itself what it is."""

    def __init__(self, fingerprint: str) -> None:
        self.lock = threading.Lock()
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> str:
        return self._fingerprint


class Shifted(sa.Environment):
    """Adds to a world of ours without saying so."""


def test_a_class_may_say_itself_what_its_objects_are() -> None:
    one, same, other = (content_of(Named(text)).fingerprint for text in "aab")
    assert one == same != other
    world = sa.Environment.from_means(sa.ArmSet.one_hot(["A", "B"]), [0.1, 0.2], budget=10)
    assert declared_fingerprint(world) == world.fingerprint
    own = Shifted(world.arms, world.budget, world.table)
    object.__setattr__(own, "shift", 1.0)
    assert declared_fingerprint(own) is None
    before = content_of(own).fingerprint
    object.__setattr__(own, "shift", 2.0)
    assert content_of(own).fingerprint != before


SCRIPT = """
import functools, sys
import numpy as np
from tests.test_fingerprints import Line, closure, multiply
from steadyarm.fingerprints import content_of
def here(x):
    return helper(x)
def helper(x):
    return x in {"a", "b", "c"}
things = [here, closure({"a", "b", "c"}), functools.partial(multiply, Line(np.arange(3.0)))]
print(*(content_of(thing).fingerprint for thing in things))
"""


def test_fingerprints_are_the_same_in_every_process() -> None:
    printed = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SCRIPT]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        printed.add(run.stdout)
    assert len(printed) == 1


FILES = {
    "base.py": "class Base:\n    def value(self):\n        return 0\n",
    "helper.py": "def helper():\n    return 0\n",
    "other.py": "import deep\nVALUE = 0\n",
    "deep.py": "VALUE = 0\n",
    "mine.py": "from base import Base\nfrom helper import helper\nimport other\n"
    "class Mine(Base):\n    def all(self):\n        return helper() + other.VALUE\n",
}
PRINT = (
    "from mine import Mine\nfrom steadyarm.fingerprints import content_of\n"
    "print(content_of(Mine()).fingerprint, content_of(Mine()).sources)"
)


def test_base_classes_and_helpers_in_other_modules_count(tmp_path: Path) -> None:
    def found() -> tuple[str, ...]:
        command = [sys.executable, "-B", "-c", PRINT]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return tuple(run.stdout.split())

    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = found()
    assert found() == before
    for name in ("base.py", "helper.py", "other.py", "deep.py"):
        (tmp_path / name).write_text(FILES[name].replace("0", "1"))
        after = found()
        assert after[1] != before[1], name
        assert (after[0] != before[0]) == (name in ("base.py", "helper.py")), name
        (tmp_path / name).write_text(FILES[name])
