"""The order of all tests: the longest begin first, each on another worker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

__all__ = ["LONGEST", "longest_first"]

# A worker that began one of these near the end would keep the others waiting.
LONGEST = (
    "tests/test_fingerprint.py::test_other_processors_give_the_same_bits",
    "tests/test_fingerprint.py::test_whole_tests_come_out_as_stored",
    "tests/paper/test_run.py::test_a_killed_run_goes_on_where_it_was",
    "tests/e2e/test_disasters.py",
    "tests/e2e/sdk/test_example.py::test_a_whole_test_in_a_browser_ends_with_a_verdict",
)


def longest_first(names: Sequence[str], workers: int) -> list[int]:
    """Places of these tests in the order in which they are to run.

    With ``--dist worksteal`` each worker begins with a share of all tests that lie side by side;
    whoever has none left takes from the end of what another has. The longest tests therefore
    stand, in turn, at the beginning of the shares. A few tests stay in the order they have.
    """
    found = [[k for k, name in enumerate(names) if name.startswith(long)] for long in LONGEST]
    longest = [k for places in found for k in places]
    if len(longest) * workers > len(names):
        return list(range(len(names)))
    others = iter(sorted(set(range(len(names))) - set(longest)))
    ordered: list[int] = []
    for worker in range(workers):
        share = (len(names) - len(ordered)) // (workers - worker)  # as xdist cuts them
        first = longest[worker::workers]
        ordered += [*first, *islice(others, share - len(first))]
    return ordered
