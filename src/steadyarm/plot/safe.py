"""Texts and values as Plotly may have them: its texts are half HTML, its numbers are JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

__all__ = ["moment", "plain", "safe", "wrapped"]

ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})


def safe(text: str) -> str:
    """Text that Plotly shows as it is: no tags, no links, no formulas.

    Examples
    --------
    >>> safe("<b>1 & 2</b> for $5")
    '&lt;b&gt;1 &amp; 2&lt;/b&gt; for &#36;5'
    """
    return text.translate(ENTITIES)


def wrapped(text: str, width: int) -> str:
    """Safe text in lines of at most so many letters."""
    return "<br>".join(safe(line) for line in textwrap.wrap(text, width))


def moment(value: datetime) -> str:
    """A time in UTC; Plotly knows no zones."""
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat()


def plain(values: Iterable[Any]) -> list[float | None]:
    """Numbers; None for those that JSON does not have."""
    return [float(value) if math.isfinite(value) else None for value in values]
