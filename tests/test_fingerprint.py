"""The same bits on every processor: whole tests with other machine code, BLAS, NumPy and libc.

A hash in `fingerprint.json` that is out of date because numbers were meant to change is written
anew with ``python tests/fingerprint.py --write``.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from steadyarm import compiled
from tests.fingerprint import fingerprints, first_difference, stored, worlds

SOME = "session"  # the part of the whole tests that other processors run


def _fingerprints(folder: Path, only: str, **variables: str) -> dict[str, dict[str, str]]:
    """The hashes that a process with these environment variables computes."""
    tool = Path(__file__).with_name("fingerprint.py")
    answer = subprocess.run(
        [sys.executable, str(tool), "--only", only],
        env=os.environ | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, dict[str, str]] = json.loads(answer.stdout)
    assert found, f"there is no whole test with {only!r} in its name"
    return found


def _dispatched() -> str:
    """What NumPy has code of its own for, beyond what every processor has."""
    core = importlib.import_module("numpy._core._multiarray_umath")
    dispatch, features = core.__cpu_dispatch__, core.__cpu_features__
    return " ".join(name for name in dispatch if features.get(name))


def test_whole_tests_come_out_as_stored(tmp_path: Path) -> None:
    found = _fingerprints(tmp_path, "")
    assert first_difference(found, stored()) is None
    assert set(found) == set(stored())


@pytest.mark.parametrize("arms", ["one-hot", "factorial", "bundles", "features"])
@pytest.mark.parametrize("policy", ["Steady", "P1-RAGE", "Peace", "OD-LinBAI"])
def test_interpreted_kernels_give_the_same_bits(
    policy: str, arms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds()  # made with random numbers, which are never interpreted
    monkeypatch.setattr(compiled._patience, "seconds", 1e9)
    found = fingerprints(f"session: {policy}, exact solver: {arms}")
    assert first_difference(found, stored()) is None
    assert compiled._patience.seconds > 0  # nothing went over to compiled code


@pytest.mark.parametrize("kind", ["clicks", "amounts"])
def test_interpreted_kernels_stop_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled._patience, "seconds", 1e9)
    found = fingerprints(f"session: stops, {kind}: against a control")
    assert first_difference(found, stored()) is None


def test_other_processors_give_the_same_bits(tmp_path: Path) -> None:
    """All that depends on the processor is exchanged at once; if bits differ, each alone."""
    vectors = _dispatched()  # NumPy refuses to start with an empty list
    variants = {
        "kernels for the oldest processor": {
            "NUMBA_CPU_NAME": "generic",
            "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        },
        "another BLAS": {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "2"},
        "NumPy without vectors": {"NPY_DISABLE_CPU_FEATURES": vectors} if vectors else {},
        "a C library without vectors": {
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F"
        },
    }
    together = {name: value for one in variants.values() for name, value in one.items()}
    if first_difference(_fingerprints(tmp_path, SOME, **together), stored()) is None:
        return
    alone = {
        variant: first_difference(_fingerprints(tmp_path, SOME, **variables), stored())
        for variant, variables in variants.items()
    }
    pytest.fail(f"together they differ; alone: {alone}")


def test_the_place_of_a_difference_is_named() -> None:
    expected = stored()
    name = list(expected)[3]
    changed = {key: dict(parts) for key, parts in expected.items()}
    part = list(changed[name])[2]
    changed[name][part] = "0" * 12
    told = first_difference(changed, expected)
    assert told == f"{part!r} of {name!r} (of {len(expected)} whole tests 1 differ)"
    assert first_difference(expected, expected) is None
