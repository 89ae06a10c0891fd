"""axe-core: what a page does wrong for people who cannot see it, or use no mouse."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

__all__ = ["faults"]

AXE = Path(__file__).parents[3] / ".venv/browser/node_modules/axe-core/axe.min.js"
# Within a picture there is nothing to be read out: its label and its table stand for it.
RUN = """(rules) => axe.run({exclude: [['[role=img] svg']]},
  {resultTypes: ['violations'], ...(rules ? {runOnly: rules} : {})})"""
SHADES = ["color-contrast", "link-in-text-block"]  # all that depends on colours
GRAVE = ("serious", "critical")


@cache
def _axe() -> str:
    if not AXE.exists():
        raise FileNotFoundError(f"{AXE} is not there; install axe-core with: make browser")
    return AXE.read_text(encoding="utf-8")


def faults(page: Page, shades_only: bool = False) -> list[str]:
    """Serious and critical ones, with where they are."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe())
    found: dict[str, Any] = page.evaluate(RUN, SHADES if shades_only else None)
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}; {node['target']}: {node['html'][:200]}"
        for rule in found["violations"]
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    ]
