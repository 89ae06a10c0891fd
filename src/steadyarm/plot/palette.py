"""Colours, dashes and markers, in the order of `Series.color`.

Okabe and Ito's colours without yellow, changed so far that a thin line has a contrast of 3 to 1 at
least; each has a dash and a marker of its own for those who see no colours.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DARK", "DASHES", "LIGHT", "SHAPES", "Ground", "clear"]


@dataclass(frozen=True)
class Ground:
    """Colours on one ground: of what is picked out, of the quiet rest, of texts and grids."""

    ground: str
    lines: tuple[str, ...]
    quiet: str
    text: str
    faint: str
    grid: str


LIGHT = Ground(
    ground="#ffffff",
    lines=(
        "#0072B2", "#D55E00", "#008A66", "#B8578F", "#B57A00", "#2B8FCB", "#333A45", "#882255",
    ),
    quiet="#8A92A0",
    text="#1f2430",
    faint="#5a6270",
    grid="#dfe2e7",
)  # fmt: skip  # a table reads better so
DARK = Ground(
    ground="#14181f",
    lines=(
        "#4CA3E0", "#F0762B", "#1FB58A", "#DE93BF", "#F0B03A", "#8FD0F5", "#E3E7EE", "#D9618A",
    ),
    quiet="#7d8696",
    text="#e6e9ef",
    faint="#a9b1be",
    grid="#333a46",
)  # fmt: skip  # a table reads better so

DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (7, 2),
    (3, 2),
    (1.2, 1.6),
    (8, 2, 1.5, 2),
    (5, 1.5, 1.5, 1.5, 1.5, 1.5),
    (12, 3),
    (3, 1.5, 1, 1.5),
)
# names in Plotly and in matplotlib
SHAPES: tuple[tuple[str, str], ...] = (
    ("circle", "o"),
    ("square", "s"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("diamond", "D"),
    ("cross", "P"),
    ("x", "X"),
    ("star", "*"),
)


def clear(color: str, share: float) -> str:
    """A colour that lets the ground shine through.

    Examples
    --------
    >>> clear("#0072B2", 0.2)
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share:g})"
