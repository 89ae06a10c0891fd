"""Clusters: variances by shop, or by shop and day, with Student's t for few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy

import steadyarm as sa
from tests.analysis.logs import write_table

START = datetime(2026, 3, 1, 12)


@dataclass(frozen=True)
class Shops:
    """A log of shops with users, each of whom comes once."""

    frame: pl.DataFrame
    shops: int

    @property
    def sums(self) -> tuple[Any, Any, Any]:
        """Rows, rewards and whether it has B, of every shop."""
        each = self.frame.group_by("store").agg(
            m=pl.len(), r=pl.col("reward").sum(), b=(pl.col("arm") == "B").first()
        )
        return (each[name].to_numpy() for name in ("m", "r", "b"))  # type: ignore[return-value]


def shops_with_users(
    shops: int = 30,
    users: int | Sequence[int] = 40,
    switch: bool = False,
    seed: int = 0,
    gap: float = 0.5,
    days: int = 10,
) -> Shops:
    """Shops differ in level; the variant is drawn for each, or for each and every day."""
    rng = np.random.default_rng(seed)
    sizes = [users] * shops if isinstance(users, int) else list(users)
    rows = []
    for shop, size in enumerate(sizes):
        level, kept = rng.normal(), rng.random() < 0.5
        daily = rng.random(days) < 0.5
        for user in range(size):
            day = user * days // size
            b = bool(daily[day]) if switch else kept
            time = START + timedelta(days=day, minutes=user % 60)
            reward = level + gap * b + rng.normal()
            rows.append((time, f"s{shop}", f"{shop}-{user}", "AB"[b], 0.5, reward))
    names = ["timestamp", "store", "unit", "arm", "probability", "reward"]
    return Shops(pl.DataFrame(rows, schema=names, orient="row").sort("timestamp"), shops)


def test_equal_shops_are_a_t_test_of_shops() -> None:
    """With equal sizes and p = 1/2 the gap's standard error is that of a mean of shops.

    A shop stands for 2(y - mean of the others) with the sign of its variant; the interval is that
    of the mean of these numbers with one degree of freedom less than there are shops.
    """
    log = shops_with_users(shops=12)
    found = sa.analyze(log.frame, columns=sa.Columns(cluster="store"))
    m, r, b = log.sums
    y = r / m
    d = np.where(b, 2, -2) * (y - y.mean()) * 12 / 11
    sides = dict(zip(found.arms.names, range(2), strict=True))
    difference = found.estimates[sides["B"]] - found.estimates[sides["A"]]
    assert difference == pytest.approx(d.mean(), rel=1e-9)
    error = d.std(ddof=1) / np.sqrt(12)
    reach = scipy.stats.t.isf(0.025, 11) * error
    low, high = found.intervals.gap_low[0], found.intervals.gap_high[0]
    other = 1 - int(found.intervals.recommended[0])
    assert high[other] - low[other] == pytest.approx(2 * reach, rel=2e-3)
    assert found.units is not None
    assert (found.units.units, found.units.kept, found.units.cluster) == (12, True, "store")
    assert found.intervals.method == "clusters"
    assert "Variance by cluster (12 clusters, 480 rows)" in found.intervals.assumption


def test_a_gap_is_not_drawn_towards_zero_in_few_shops() -> None:
    """A shop is a twelfth of the mean that it is compared with, which would take a twelfth off."""
    gaps = []
    for seed in range(30):
        found = sa.analyze(
            shops_with_users(12, 4, seed=seed, gap=30.0).frame, columns=sa.Columns(cluster="store")
        )
        if found.arms.size == 2:
            gaps.append(found.estimates[1] - found.estimates[0])
    error = np.std(gaps) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps) - 30.0) < 3 * error
    assert error < 0.8  # so that a twelfth, 2.5, would be seen


def test_shops_of_unequal_size_are_like_sandwich_variances() -> None:
    """CR2 of least squares weighed by shop, close but for the known probability of a variant."""
    sizes = np.random.default_rng(5).integers(10, 120, 60).tolist()
    log = shops_with_users(60, sizes, seed=2)
    found = sa.analyze(log.frame, columns=sa.Columns(cluster="store"))
    m, r, b = log.sums
    X = np.stack([~b, b], axis=1).astype(float)
    beta = np.array([(r * X[:, k]).sum() / (m * X[:, k]).sum() for k in range(2)])
    rest = np.zeros(2)
    for k in range(2):
        own = X[:, k] > 0
        leverage = m[own] / m[own].sum()
        off = (r[own] - m[own] * beta[k]) / np.sqrt(1 - leverage)  # CR2 of a mean
        rest[k] = (off**2).sum() / m[own].sum() ** 2
    error = np.sqrt(rest.sum())
    other = 1 - int(found.intervals.recommended[0])
    width = float(found.intervals.gap_high[0, other] - found.intervals.gap_low[0, other])
    effective = m.sum() ** 2 / (m**2).sum()
    ours = width / 2 / scipy.stats.t.isf(0.025, effective - 1)
    assert ours == pytest.approx(error, rel=0.15)


@pytest.mark.parametrize("shops", [4, 19, 20])
def test_few_shops_are_a_warning(shops: int) -> None:
    found = sa.analyze(shops_with_users(shops, seed=3).frame, columns=sa.Columns(cluster="store"))
    [finding] = [f for f in found.health.findings if f.name == "clusters"]
    assert finding.status == ("warn" if shops < 20 else "ok")
    assert f"Each of {shops} clusters (store) keeps its variant." in finding.explanation
    assert np.isfinite(found.intervals.low).all() == (shops > 4)
    if shops == 4:
        assert found.plausible == ("A", "B")


def test_a_switchback_is_drawn_by_shop_and_day() -> None:
    log = shops_with_users(12, switch=True, seed=4)
    found = sa.analyze(log.frame, columns=sa.Columns(cluster=["store", "day"]))
    assert found.units is not None
    assert (found.units.units, found.units.kept) == (120, True)
    health = {f.name: f for f in found.health.findings}
    assert health["assignments"].status == "ok"
    assert "Each of 120 clusters (store and day) keeps" in health["clusters"].explanation
    named = log.frame.with_columns(day=pl.col("timestamp").dt.date().cast(pl.String) + "!")
    again = sa.analyze(named, columns=sa.Columns(cluster=["store", "day"]))
    np.testing.assert_allclose(again.intervals.low, found.intervals.low, rtol=1e-9)
    weekly = sa.analyze(log.frame, columns=sa.Columns(cluster=["store", "week"]))
    assert weekly.units is not None
    assert weekly.units.units == 12 * 3  # from Sunday, 1 March, to Tuesday the week after next


def test_a_switchback_by_shop_counts_shops() -> None:
    """Nobody says which rows were drawn together, and nothing is taken for granted."""
    log = shops_with_users(24, switch=True, seed=4)
    found = sa.analyze(log.frame, columns=sa.Columns(cluster="store"))
    assert found.units is not None
    assert (found.units.units, found.units.kept) == (24, False)
    health = {f.name: f for f in found.health.findings}
    assert "drawn within clusters, as in a switchback" in health["clusters"].explanation
    i = np.where(log.frame["arm"].to_numpy() == "A", 2.0, 0.0)
    sums = log.frame.with_columns(off=pl.Series(i - 1)).group_by("store").agg(pl.col("off").sum())
    off = sums["off"].to_numpy()
    t = off.sum() / np.sqrt((off**2).sum())
    expected = min(1.0, 2 * 2 * scipy.stats.t.sf(abs(t), 23))
    assert health["assignments"].p_value == pytest.approx(expected)
    assert health["assignments"].status == "ok"
    lost = log.frame.filter((pl.col("arm") == "A") | (pl.int_range(pl.len()) % 3 == 0))
    broken = {
        f.name: f for f in sa.analyze(lost, columns=sa.Columns(cluster="store")).health.findings
    }
    assert broken["assignments"].status != "ok"
    assert "were expected" in broken["assignments"].explanation


def test_every_place_says_the_same(tmp_path: Path, postgres: str) -> None:
    frame = shops_with_users(25, 12, switch=True, seed=6).frame
    places: list[Any] = [tmp_path / "log.csv", tmp_path / "log.db", postgres]
    for place in places:
        write_table(place, frame.columns, frame.rows(), "shops")
    for cluster in ("store", ["store", "day"]):
        first = sa.analyze(frame, columns=sa.Columns(cluster=cluster))
        for place in places:
            query = "shops" if place is not places[0] else None
            found = sa.analyze(place, columns=sa.Columns(cluster=cluster), query=query)
            np.testing.assert_allclose(found.intervals.low, first.intervals.low, rtol=1e-9)
            assert found.units == first.units
            assert [f.status for f in found.health.findings[:4]] == [
                f.status for f in first.health.findings[:4]
            ]


def test_what_is_refused() -> None:
    frame = shops_with_users(5).frame
    for given, message in [
        ("shop", "has no column 'shop'"),
        ([], r"cluster is \[\]; expected the name of a column"),
        (["store", 3], "expected the name of a column"),
    ]:
        with pytest.raises(sa.InvalidInputError, match=message):
            sa.analyze(frame, columns=sa.Columns(cluster=given))  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidInputError, match="no units"):
        sa.analyze(frame, columns=sa.Columns(cluster="store", unit=None))
    with pytest.raises(sa.InvalidInputError, match="has no column 'day' and no times"):
        sa.analyze(frame.drop("timestamp"), columns=sa.Columns(cluster=["store", "day"]))
    nowhere = pl.when(pl.int_range(pl.len()).is_in([2, 6])).then(None).otherwise("store")
    with pytest.raises(sa.InvalidInputError, match="row 3, row 7: the cluster 'store' is missing"):
        sa.analyze(frame.with_columns(store=nowhere), columns=sa.Columns(cluster="store"))
