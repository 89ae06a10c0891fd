"""ARCHITECTURE.md names every module and draws the layers that are checked."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGE = ROOT / "src/steadyarm"


def test_every_module_and_package_is_named() -> None:
    _, _, table = TEXT.partition("### Modules beside the packages\n")
    table, _, _ = table.partition("\n### ")
    for path in PACKAGE.glob("*.py"):
        if not path.name.startswith("_"):
            assert f"`{path.name}`" in table, f"{path.name} is not in the table"
    for name in re.findall(r"`(\w+\.py)`", table):
        assert (PACKAGE / name).exists(), f"there is no {name}"
    for path in PACKAGE.glob("*/__init__.py"):
        assert re.search(rf"\b{path.parent.name}\b", TEXT), f"{path.parent.name} is not named"


def test_the_layers_drawn_are_those_that_are_checked() -> None:
    _, _, drawn = TEXT.partition("## Imports go one way\n\n")
    drawn, _, _ = drawn.partition("\n\n")
    layers = [re.findall(r"\w+", layer) for layer in drawn.split("→")]
    _, _, checked = (ROOT / ".importlinter").read_text().partition("layers =\n")
    checked, _, _ = checked.partition("\n#")
    wanted = [re.findall(r"steadyarm\.(\w+)", line) for line in checked.splitlines()]
    assert [sorted(layer) for layer in layers] == [sorted(layer) for layer in wanted]
