"""Typed: what people type into fields, as numbers and choices, with an error per field in words."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal, InvalidOperation

__all__ = ["Typed", "told"]

GROUPED = re.compile(r"\d{1,3}(?:[,_' \u00a0\u202f]\d{3})+", re.ASCII)
DIGITS = re.compile(r"\d{1,30}", re.ASCII)
DECIMAL = re.compile(r"[+-]?(?:\d{1,30}(?:[.,]\d{0,30})?|[.,]\d{1,30})", re.ASCII)
SHOWN = 40  # characters of a wrong value that are told


class Typed:
    """The fields of a form; what is missing among them has its usual value.

    Attributes
    ----------
    values : the text of every field, as it was typed
    errors : what is wrong, by field
    """

    def __init__(self, given: Mapping[str, Sequence[str]], usual: Mapping[str, str]) -> None:
        self.values = {key: given[key][-1] if given.get(key) else usual[key] for key in usual}
        self.errors: dict[str, str] = {}

    def text(self, key: str) -> str:
        """Without spaces around it."""
        return self.values[key].strip()

    def wrong(self, key: str, sentence: str) -> None:
        """Note what is wrong; the first word on a field counts."""
        self.errors.setdefault(key, sentence)

    def choice(self, key: str, choices: Collection[str]) -> str | None:
        """One of the choices."""
        if self.text(key) in choices:
            return self.text(key)
        self.wrong(key, f"{told(self.text(key))} is not one of the choices; choose one of them.")
        return None

    def whole(self, key: str, expected: str, least: int = 0, most: int = 2**53 - 1) -> int | None:
        """A whole number, perhaps with separators between thousands."""
        text = self.text(key)
        digits = re.sub(r"\D", "", text) if GROUPED.fullmatch(text) else text
        if DIGITS.fullmatch(digits) and least <= int(digits) <= most:
            return int(digits)
        self._expected(key, expected)
        return None

    def number(
        self, key: str, expected: str, above: float = -math.inf, below: float = math.inf
    ) -> float | None:
        """A number strictly between two others."""
        found = self._decimal(self.text(key))
        if found is not None and above < float(found) < below:
            return float(found)
        self._expected(key, expected)
        return None

    def percent(self, key: str, expected: str) -> float | None:
        """A share, typed in per cent, strictly between 0 and 100."""
        found = self._decimal(self.text(key).removesuffix("%").rstrip())
        if found is not None and 0 < float(found / 100) < 1:
            return float(found / 100)
        self._expected(key, expected)
        return None

    def _decimal(self, text: str) -> Decimal | None:
        if not DECIMAL.fullmatch(text):
            return None
        try:
            return Decimal(text.replace(",", "."))
        except InvalidOperation:
            return None

    def _expected(self, key: str, expected: str) -> None:
        given = self.text(key)
        start = f"This is {told(given)}; expected " if given else "This is empty; expected "
        self.wrong(key, f"{start}{expected}.")


def told(text: str) -> str:
    """What was typed, in quotation marks, cut if it is long."""
    return f"“{text}”" if len(text) <= SHOWN else f"“{text[:SHOWN]}…”"
