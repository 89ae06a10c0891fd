"""What is compiled ahead: each part runs by itself, and the command runs them all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steadyarm import warming


@pytest.mark.parametrize("part", [part for stage in warming.STAGES for part in stage])
def test_each_part_runs_and_prints_nothing(
    part: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    part()
    assert capsys.readouterr() == ("", "")


def test_every_stage_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "STAGES", ((dict,), (list, dict)))
    warming.compile_all()


def test_what_goes_wrong_in_a_process_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "STAGES", ((_broken,),))
    with pytest.raises(ZeroDivisionError):
        warming.compile_all()


def _broken() -> None:
    raise ZeroDivisionError
