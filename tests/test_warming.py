"""What is compiled ahead runs, and prints nothing."""

import pytest

from steadyarm import warming


def test_it_runs_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    warming.compile_all()
    assert capsys.readouterr() == ("", "")
