"""Arms from formulas: the features made by hand, whichever library holds the table."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.arms.rows import SparseRows

FRAMES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "mapping": dict,
    "pandas": pd.DataFrame,
    "pandas with an index": lambda table: pd.DataFrame(table).set_index(
        pd.Index(range(100, 100 + len(next(iter(table.values())))))
    ),
    "polars": pl.DataFrame,
    "lazy polars": lambda table: pl.DataFrame(table).lazy(),
    "pyarrow": pa.table,
    "narwhals": lambda table: nw.from_native(pl.DataFrame(table)),
}

GRID = list(product(["short", "long"], ["cat", "dog", "none"], [3, 5]))
PAGE: dict[str, list[Any]] = {
    "headline": [row[0] for row in GRID],
    "image": [row[1] for row in GRID],
    "price": [row[2] for row in GRID],
    "share": [0.5, 0.25, 0.125] * 4,
    "hat": [True, False, False] * 4,
    "two words": list(range(12)),
}


@pytest.mark.parametrize("kind", list(FRAMES))
def test_a_formula_is_the_features_made_by_hand(kind: str) -> None:
    arms = sa.ArmSet.from_formula("C(headline) * C(image) + price", FRAMES[kind](PAGE))
    short = np.array([row[0] == "short" for row in GRID])
    dog, none = (np.array([row[1] == image for row in GRID]) for image in ("dog", "none"))
    price = np.array([row[2] for row in GRID])
    hand = [np.ones(12), short, dog, none, price, short & dog, short & none]
    assert np.array_equal(arms.features, np.column_stack(hand))
    assert arms.feature_names == (
        "(constant)",
        "headline=short",
        "image=dog",
        "image=none",
        "price",
        "headline=short:image=dog",
        "headline=short:image=none",
    )
    assert arms.names[1] == "arm 1"  # headline and image are those of arm 0


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_the_same_table_gives_the_same_arms_whichever_library_holds_it(
    data: st.DataObject,
) -> None:
    levels = st.sampled_from(["b", "a", "z:c", "é, x", "T.a"])
    K = data.draw(st.integers(4, 12))
    table: dict[str, list[Any]] = {
        "a": data.draw(st.lists(levels, min_size=K, max_size=K)),
        "b": data.draw(st.lists(st.integers(-2, 2), min_size=K, max_size=K)),
        "c": data.draw(st.lists(st.booleans(), min_size=K, max_size=K)),
        "x": [float(k) + 0.5 for k in range(K)],
    }
    formula = data.draw(st.sampled_from(["a + b + c + x", "C(b) + x", "a * x", "0 + a + x + b:c"]))
    first, *others = (sa.ArmSet.from_formula(formula, make(table)) for make in FRAMES.values())
    assert all(other == first for other in others)
    if formula == "a * x":
        kinds = sorted(set(table["a"]))
        truth = [np.ones(K), *(np.array([a == kind for a in table["a"]]) for kind in kinds[1:])]
        truth.append(np.array(table["x"]))
        truth += [truth[j] * table["x"] for j in range(1, len(kinds))]
        assert np.array_equal(first.features, np.column_stack(truth))


def test_a_full_factorial_formula_spans_what_factorial_spans() -> None:
    factors = {"headline": ["short", "long"], "image": ["cat", "dog", "none"]}
    table = dict(zip(factors, zip(*product(*factors.values()), strict=True), strict=True))
    arms, truth = sa.ArmSet.from_formula("headline * image", table), sa.ArmSet.factorial(factors)
    assert arms.names == truth.names
    assert arms.rank == truth.rank == 6
    one, other = (sa.designs.g_optimal(found, tol=1e-8) for found in (arms, truth))
    assert one.value == pytest.approx(other.value, rel=1e-7)


@pytest.mark.parametrize(
    ("formula", "columns"),
    [
        ("log(price) + image", ["(constant)", "log(price)", "image=dog", "image=none"]),
        ("C(price):headline - 1", ["price=3:headline=long", "price=5:headline=long"]),
        ("`two words`", ["(constant)", "two words"]),
        ("C(`two words`) - 1", [f"two words={k}" for k in range(12)]),
        ("hat + `two words`", ["(constant)", "hat", "two words"]),
        ("C(image, contr.sum) + `two words`", ["(constant)", "C(image, contr.sum)[S.cat]"]),
        ("poly(`two words`, 2)", ["(constant)", "poly(`two words`, 2)[1]"]),
        ("~ `two words`", ["(constant)", "two words"]),
        (".", ["(constant)", "headline=short", "image=dog", "image=none", "price"]),
    ],
)
def test_columns_are_named_as_people_read_them(formula: str, columns: list[str]) -> None:
    if "headline - 1" in formula:
        table = {name: column[:2] + column[6:8] for name, column in PAGE.items()}
    else:
        table = PAGE
        formula = formula if "log" not in formula else formula + " + `two words`"
    found = sa.ArmSet.from_formula(formula, pd.DataFrame(table)).feature_names
    assert list(found[: len(columns)]) == columns


def test_levels_keep_the_order_that_a_frame_gives_them() -> None:
    order = ["none", "cat", "dog", "never seen"]
    texts = ["cat", "dog", "none"]
    frames = [
        pd.DataFrame({"image": pd.Categorical(texts, order)}),
        pd.DataFrame({"image": pd.Categorical(texts, order, ordered=True)}),
        pl.DataFrame({"image": pl.Series(texts, dtype=pl.Enum(order))}),
        pa.table({"image": pa.DictionaryArray.from_arrays(pa.array([1, 2, 0]), pa.array(order))}),
    ]
    sets = [sa.ArmSet.from_formula("image", frame) for frame in frames]
    assert sets[0].feature_names == ("(constant)", "image=cat", "image=dog")
    assert sets[0].features.tolist() == [[1, 1, 0], [1, 0, 1], [1, 0, 0]]
    assert all(arms == sets[0] for arms in sets)


def test_polars_categories_do_not_depend_on_what_was_read_before() -> None:
    pl.Series(["z", "none", "dog", "cat"], dtype=pl.Categorical)
    frame = pl.DataFrame({"image": pl.Series(["none", "dog", "cat"], dtype=pl.Categorical)})
    arms = sa.ArmSet.from_formula("image", frame)
    assert arms.feature_names == ("(constant)", "image=dog", "image=none")


def test_arms_are_named_by_what_varies_by_a_column_or_by_the_user() -> None:
    table = {"headline": ["a", "a", "b"], "image": ["x", "y", "x"], "site": ["s"] * 3}
    table["code"] = ["A1", "A2", "B1"]
    made = sa.ArmSet.from_formula("headline + image + site", {**table, "site": ["s"] * 3})
    assert made.names == ("headline=a, image=x", "headline=a, image=y", "headline=b, image=x")
    column = sa.ArmSet.from_formula("headline + image", table, names="code")
    assert column.names == ("A1", "A2", "B1")
    given_names = sa.ArmSet.from_formula("headline + image", table, names=["1", "2", "3"])
    assert given_names.names == ("1", "2", "3")
    numbers = sa.ArmSet.from_formula("C(n)", {"n": [3, 1, 2]})
    assert numbers.names == ("n=3", "n=1", "n=2")


def test_many_categories_stay_sparse() -> None:
    a, b = np.divmod(np.arange(70 * 70), 70)
    frame = pl.DataFrame({"a": a, "b": b, "price": (a + b) % 7})
    arms = sa.ArmSet.from_formula("C(a) + C(b) + price", frame)
    assert isinstance(arms.given, SparseRows)
    assert arms.rank == arms.dimension == 140
    codes = np.column_stack(
        [np.ones(4900), np.eye(70)[a][:, 1:], np.eye(70)[b][:, 1:], (a + b) % 7]
    )
    assert np.array_equal(arms.features, codes)
    assert arms.names[71] == "a=1, b=1"
    dense = sa.ArmSet.from_formula(
        "price + other", {"price": np.arange(5000.0) + 1, "other": np.arange(5000.0) ** 2 + 1}
    )
    assert not isinstance(dense.given, SparseRows)


@pytest.mark.parametrize(
    ("formula", "table", "message"),
    [
        ("C(headlin) + price", PAGE, "'headlin' in it, .* columns are 'headline', 'image'"),
        ("sqrt(price)", PAGE, "'sqrt' in it, which is neither a column nor a function"),
        ("poly(prize, 2)", PAGE, "cannot be computed: .*prize.* columns are 'headline'"),
        ("reward ~ price", PAGE | {"reward": [0] * 12}, "several parts; expected one without '~'"),
        ("price | image", PAGE, "several parts"),
        ("C(image", PAGE, "'C[(]image' cannot be read: Formula ended before"),
        ("price +* 2", PAGE, "cannot be read"),
        (3, PAGE, "the formula is 3; expected a text"),
        ("headline", PAGE, r"arms 0 \('arm 0'\) and 1 .*identical"),
        ("0", PAGE, "no features"),
        ("log(`two words`)", PAGE, r"row 0 has -inf in 'log\(`two words`\)'"),
        ("x", {"x": [1.0, None, 2.0]}, "row 1 has no value in column 'x'"),
        ("x", {"x": [1.0, 2.0, float("nan")]}, "row 2 has no value in column 'x'"),
        ("x + y", {"x": ["a", "b"], "y": [None, "c"]}, "row 0 has no value in column 'y'"),
        ("x", {"x": [1.0, float("inf")]}, "row 1 has inf in 'x'"),
        ("x", {"x": np.array(["2024-01-01", "2024-01-02"], "M8[us]")}, "'x' is of type Datetime"),
        ("x", {"x": [1.0]}, "1 rows; a test needs at least 2"),
        ("x", {"x": []}, "0 rows"),
    ],
)
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_bad_formulas_are_refused_with_a_reason(
    formula: str, table: dict[str, Any], message: str, kind: str
) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.ArmSet.from_formula(formula, FRAMES[kind](table))


@pytest.mark.parametrize(
    ("frame", "names", "message"),
    [
        ([[1.0], [2.0]], None, "the frame is a list; expected a frame of pandas, Polars"),
        ({"x": [1, 2], "y": [1]}, None, "not a table of columns"),
        ({"x": 3}, None, "not a table of columns"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["x", "x"]), None, "unique column names"),
        (pa.table([[1, 2], [3, 4]], ["x", "x"]), None, "unique column names"),
        ({"x": [1, 2]}, "code", "no column 'code' for the names; the columns are 'x'"),
        ({"x": [1, 2], "code": ["a", None]}, "code", "row 1 has no value in column 'code'"),
        ({"x": [1, 2], "code": ["a", "a"]}, "code", "'a' is listed twice"),
        ({"x": [1, 2]}, ["a"], "1 arm names for 2 rows"),
        ({"x": [1, 2]}, 3, "names is 3"),
    ],
)
def test_bad_frames_and_names_are_refused_with_a_reason(
    frame: Any, names: Any, message: str
) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.ArmSet.from_formula("x", frame, names)


def test_values_that_the_formula_does_not_use_may_be_missing() -> None:
    table = {"x": [1.0, 2.0], "x2": [None, 1.0], "when": np.array([0, 1], "M8[us]")}
    assert sa.ArmSet.from_formula("x", pd.DataFrame(table)).size == 2


def test_variables_of_the_caller_are_not_seen() -> None:
    secret = 2.0
    with pytest.raises(sa.InvalidInputError, match="'secret' in it"):
        sa.ArmSet.from_formula("{secret * x}", {"x": [1, secret]})


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "formulaic":
            raise ModuleNotFoundError("No module named 'formulaic'", name="formulaic")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(sa.MissingExtraError, match=r"needs formulaic; .*'steadyarm\[formula\]'"):
        sa.ArmSet.from_formula("x", {"x": [1, 2]})
