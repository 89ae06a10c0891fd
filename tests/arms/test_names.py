"""Names made from the index are found again, without looking at all of them."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.arms.recipes import BundleNames, FactorialNames, LazyNames

# Signs that stand between the parts of names are frequent, to make them hard to read.
texts = st.text("ab=, +:0é", min_size=1, max_size=5).filter(lambda text: bool(text.strip()))


@st.composite
def factors(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    heads = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    levels = st.lists(texts, min_size=2, max_size=3, unique=True).map(tuple)
    return {head: draw(levels) for head in heads}


def check(names: LazyNames, truth: list[str]) -> None:
    assert len(names) == len(truth)
    assert names[:] == tuple(truth)
    assert list(names) == truth
    assert names[-1] == truth[-1]
    assert names[1::2] == tuple(truth[1::2])
    for k, name in enumerate(truth):
        assert names[k] == name
        assert names.index(name) == k
        assert name in names
        assert f"{name}?" not in names
        assert f" {name}" not in names
    with pytest.raises(IndexError, match="there is no name"):
        names[len(truth)]
    with pytest.raises(ValueError, match="there is no name"):
        names.index(truth[0], 1)


@given(factors())
def test_names_of_factorial_sets_are_found_again(levels: dict[str, tuple[str, ...]]) -> None:
    names = FactorialNames(levels)
    try:
        names.check()
    except sa.InvalidInputError:
        assume(False)
    truth = [
        ", ".join(f"{head}={level}" for head, level in zip(levels, chosen, strict=True))
        for chosen in product(*levels.values())
    ]
    check(names, truth)


@given(st.lists(texts, min_size=2, max_size=6, unique=True), st.data())
def test_names_of_bundles_are_found_again(items: list[str], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(items) - 1))
    names = BundleNames(tuple(items), size)
    try:
        names.check()
    except sa.InvalidInputError:
        assume(False)
    check(names, [" + ".join(chosen) for chosen in combinations(items, size)])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (FactorialNames({"a": ("1, b=2", "x"), "b": ("2", "3")}), "reads like a level of 'b'"),
        (BundleNames(("a", "b + c", "d"), 2), "'b [+] c' has ' [+] ' in it"),
    ],
)
def test_names_that_can_be_read_in_two_ways_are_refused(names: LazyNames, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        names.check()
