"""Logs with the whole allocation: those of our own sessions, and what can be wrong with vectors."""

from __future__ import annotations

import csv
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from tests.analysis.logs import START, write_table

LAYOUTS = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog", "none"]}, 1)
Rows = list[dict[str, Any]]


def run_session(policy: sa.Policy[Any], arms: sa.ArmSet, budget: int) -> tuple[sa.Session, Rows]:
    """A session told at once, and its log."""
    session = sa.Session(policy, arms, budget, seed=4)
    rng = np.random.default_rng(5)
    rows: Rows = []
    for i in range(budget):
        shown = session.ask()
        assert session._current is not None
        segment = session._current.segment
        reward = 5.0 + 0.2 * shown.arm + float(rng.normal())
        rows.append(
            {
                "timestamp": (START + timedelta(minutes=i)).isoformat(),
                "unit": f"u{i}",
                "arm": shown.name,
                "probability": shown.probability,
                "reward": reward,
                "segment": session._current.index,
                "block": segment.block if segment.order == "blocks" else 1,
                "probabilities": json.dumps(segment.weights[0].tolist()),
            }
        )
        session.tell(shown, reward)
    return session, rows


def write(path: Path, rows: Rows, leave_out: tuple[str, ...] = ()) -> Path:
    names = [name for name in rows[0] if name not in leave_out]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("leave_out", [(), ("probabilities",), ("probability",)])
def test_the_log_of_steady_gives_its_own_estimates(
    leave_out: tuple[str, ...], tmp_path: Path
) -> None:
    block = sa.Steady().block_length(LAYOUTS, 2400)
    session, rows = run_session(sa.Steady(), LAYOUTS, 2400 // block * block)
    found = sa.analyze(write(tmp_path / "log.csv", rows, leave_out), arms=LAYOUTS)
    verdict = session.recommend()
    errors = verdict.standard_errors  # of other references: the scores are as unbiased
    assert (np.abs(found.estimates - verdict.estimates) < 2 * errors).all()
    assert found.recommended == verdict.name


def test_vectors_need_no_segments(tmp_path: Path) -> None:
    session, rows = run_session(sa.P1RAGE(), LAYOUTS, 900)
    log = write(tmp_path / "log.csv", rows, ("segment", "block"))
    by_vector = sa.analyze(log, arms=LAYOUTS)
    truth = by_vector.estimates
    errors = session.recommend().standard_errors
    assert (np.abs(truth - session.recommend().estimates) < 2 * errors).all()
    for row in rows:
        weights = json.loads(row["probabilities"])
        row["probabilities"] = json.dumps(dict(zip(LAYOUTS.names, weights, strict=True)))
    by_name = sa.analyze(write(tmp_path / "log3.csv", rows, ("segment", "block")), arms=LAYOUTS)
    np.testing.assert_allclose(by_name.estimates, truth, rtol=1e-9)


def test_lists_in_parquet_and_postgres(tmp_path: Path, postgres: str) -> None:
    session, rows = run_session(sa.P1RAGE(), LAYOUTS, 300)
    names = ("timestamp", "arm", "probabilities", "reward")
    values = [
        [
            datetime.fromisoformat(row["timestamp"]),
            row["arm"],
            json.loads(row["probabilities"]),
            row["reward"],
        ]
        for row in rows
    ]
    path = write_table(tmp_path / "log.parquet", names, values)
    write_table(postgres, names, values, "vectors", {"probabilities": "float8[]"})
    found = sa.analyze(path, arms=LAYOUTS)
    truth = session.recommend()
    assert (np.abs(found.estimates - truth.estimates) < 2 * truth.standard_errors).all()
    other = sa.analyze(postgres, query="vectors", arms=LAYOUTS)
    np.testing.assert_allclose(other.estimates, found.estimates, rtol=1e-9)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ("[0.5, 0.5]", "has 2 entries for 3 arms"),
        ("[0.5, 0.5, 0.5]", "sums to 1.5, not to 1"),
        ("[0, 0.5, 0.5]", "gives the row's own arm 'A' probability 0: it was never possible"),
        ("[1.5, -0.25, -0.25]", "has an entry that is not between 0 and 1"),
        ('{"A": 0.5, "Z": 0.5}', "has the arm 'Z', which is not one of the test"),
        ("half and half", "is not a list of numbers"),
    ],
)
def test_wrong_vectors_are_named(vector: str, message: str, tmp_path: Path) -> None:
    rows = [
        {
            "timestamp": "2026-03-01",
            "arm": "ABC"[i % 3],
            "reward": 1.0,
            "probabilities": vector if i in (3, 6) else "[0.25, 0.25, 0.5]",
        }
        for i in range(30)
    ]
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(write(tmp_path / "log.csv", rows))
    assert "row 4, row 7: the probabilities " in str(error.value)
    assert message in str(error.value)


def small(**values: Any) -> Rows:
    """Two segments of three arms."""
    rows: Rows = [
        {
            "timestamp": f"2026-03-0{1 + i // 15} 12:00",
            "arm": LAYOUTS.names[i % 6],
            "reward": float(i % 5),
            "segment": i // 15,
            "probability": 1 / 6,
        }
        for i in range(30)
    ]
    rows[3] |= values
    return rows


def test_segments_must_fix_the_allocation(tmp_path: Path) -> None:
    assert sa.analyze(write(tmp_path / "log.csv", small()), arms=LAYOUTS).rows == 30
    with pytest.raises(sa.InvalidInputError, match=r"segment 0: the probability of .* 0\.1 to 0\."):
        sa.analyze(write(tmp_path / "log.csv", small(probability=0.1)), arms=LAYOUTS)
    rows = [row for row in small() if row["arm"] != LAYOUTS.names[2]]
    with pytest.raises(sa.InvalidInputError, match=r"sum to 0\.833333, not to 1"):
        sa.analyze(write(tmp_path / "log.csv", rows), arms=LAYOUTS)


def test_features_need_more_than_the_own_probability(tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", small(), ("segment",))
    with pytest.raises(sa.InvalidInputError, match="give the whole vector in a column"):
        sa.analyze(log, arms=LAYOUTS)
