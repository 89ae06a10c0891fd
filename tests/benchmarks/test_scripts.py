"""Scripts of benchmarks: each says of itself and of each option what it does."""

from __future__ import annotations

import argparse
import runpy
from typing import Any, NoReturn

import pytest

from benchmarks.record import ROOT, scripts


class ParsingError(Exception):
    """Raised where a script would begin to work."""


@pytest.mark.parametrize("name", scripts())
def test_help_is_complete(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        found.append(parser)
        raise ParsingError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(ParsingError):
        runpy.run_path(str(ROOT / f"benchmarks/{name}.py"), run_name="__main__")
    (parser,) = found
    assert "?\n" in (parser.description or "")
    assert parser.format_help()
    for action in parser._actions:
        assert action.help, f"{name} {action.option_strings} has no help"
