"""Which fonts draw the names of people all over the world, of those that are installed."""

from __future__ import annotations

from functools import cache

from matplotlib import font_manager

__all__ = ["families", "printed"]

FIRST = "DejaVu Sans"  # comes with matplotlib
WORLD = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Microsoft YaHei", "PingFang SC",
    "Hiragino Sans", "Malgun Gothic", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Emoji",
)  # fmt: skip  # a table reads better so


@cache
def families() -> tuple[str, ...]:
    """The font of every picture, then those that have letters which it lacks."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return (FIRST, *(name for name in WORLD if name in installed))


@cache
def _signs() -> frozenset[int]:
    signs: set[int] = set()
    for family in families():
        path = font_manager.findfont(font_manager.FontProperties(family=family))
        signs |= set(font_manager.get_font(path).get_charmap())
    return frozenset(signs)


def printed(text: str) -> str:
    """The text with a box for every letter that no installed font has."""
    signs = _signs()
    return "".join(sign if ord(sign) in signs or sign == "\n" else "□" for sign in text)
