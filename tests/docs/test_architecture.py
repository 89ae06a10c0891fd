"""ARCHITECTURE.md names what there is and draws the layers that are checked."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGE = ROOT / "src/steadyarm"


def test_every_file_and_package_that_is_named_exists() -> None:
    here = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    ends = {name.rpartition("/")[2] for name in here}
    for name in re.findall(r"`([\w/]+\.py)`", TEXT):
        assert name in (here if "/" in name else ends) or (ROOT / name).exists(), f"no {name}"
    for path in PACKAGE.glob("*/__init__.py"):
        assert re.search(rf"\b{path.parent.name}\b", TEXT), f"{path.parent.name} is not named"


def test_the_layers_drawn_are_those_that_are_checked() -> None:
    _, _, drawn = TEXT.partition("## Imports go one way\n\n")
    drawn, _, _ = drawn.partition("\n\n")
    layers = [re.findall(r"\w+", layer) for layer in drawn.split("→")]
    _, _, checked = (ROOT / ".importlinter").read_text().partition("layers =\n")
    checked, _, _ = checked.partition("\n\n")
    wanted = [re.findall(r"steadyarm\.(\w+)", line) for line in checked.splitlines()]
    assert [sorted(layer) for layer in layers] == [sorted(layer) for layer in wanted]
