"""The benchmark of live stops says what it could have noticed."""

from __future__ import annotations

from benchmarks.how_honest_are_live_stops import least_noticed


def test_few_sessions_notice_only_gross_faults() -> None:
    assert least_noticed(25) == "coverage of 76.0 % or less, and 24.0 % or more of false decisions"
    assert least_noticed(1) == "no coverage, and nothing of false decisions"
