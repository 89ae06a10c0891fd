"""The longest tests begin first, and none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.order import LONGEST, longest_first

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("others", [0, 3, 200, 201, 202])
def test_every_share_begins_with_long_tests(others: int, workers: int) -> None:
    names = [f"tests/test_{k}.py::test" for k in range(others)]
    names[others // 2 : others // 2] = LONGEST
    order = longest_first(names, workers)
    assert sorted(order) == list(range(len(names)))
    if others < 200:
        return
    begin = 0
    for worker in range(workers):
        end = begin + (len(names) - begin) // (workers - worker)
        first = [names[k] for k in order[begin:end]]
        long = len(LONGEST[worker::workers])
        assert first[:long] == list(LONGEST[worker::workers])
        assert not set(first[long:]) & set(LONGEST)
        begin = end


@pytest.mark.parametrize("name", LONGEST)
def test_long_tests_are_there(name: str) -> None:
    file, _, function = name.partition("::")
    assert f"def {function}" in (ROOT / file).read_text()
