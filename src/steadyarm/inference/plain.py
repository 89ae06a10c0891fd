"""Results as plain values that JSON can hold."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Lists, dictionaries, numbers and text only; None where a number is infinite or unknown.

    Examples
    --------
    >>> plain({"p": np.float64(0.5), "residuals": np.array([1.0, np.inf]), "of": ("A", "B")})
    {'p': 0.5, 'residuals': [1.0, None], 'of': ['A', 'B']}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
