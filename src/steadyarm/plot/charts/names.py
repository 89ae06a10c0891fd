"""Names cut short so that different ones stay different."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count

from steadyarm.plot.charts.words import one_line, shown
from steadyarm.wording import listed as in_words

__all__ = ["apart", "listed"]

AHEAD = 4  # letters kept before the first one that differs
WIDER = 8


def apart(names: Sequence[str], most: int = 28) -> tuple[str, ...]:
    """Each name on one line, long ones cut so that no two different names look the same.

    Where the usual cut would hide the difference, the common beginning is left out. If even that
    does not help, more letters are shown.

    Examples
    --------
    >>> apart(["a headline", "a very long headline with a dog"], most=20)
    ('a headline', 'a very long…h a dog')
    >>> apart(["on page 1 a red sign and a cat", "on page 1 a tan sign and a cat"], most=16)
    ('…1 a red…a cat', '…1 a tan…a cat')
    """
    lines = {name: one_line(name) for name in names}
    longest = max(map(len, lines.values()), default=0)
    width = most
    found = _cut(sorted(set(lines.values())), width)
    while len(set(found.values())) < len(found) and width < longest:
        width += WIDER
        found = _cut(list(found), width)
    return _numbered(names, {name: found[line] for name, line in lines.items()})


def _cut(lines: Sequence[str], most: int) -> dict[str, str]:
    """The usual cut; of those that then look alike, what differs."""
    return {
        line: text
        for text, alike in _groups(lines, [shown(line, most) for line in lines]).items()
        for line, text in ({alike[0]: text} if len(alike) == 1 else _differing(alike, most)).items()
    }


def _differing(lines: Sequence[str], most: int) -> dict[str, str]:
    start = max(_common(min(lines), max(lines)) - AHEAD, 1)
    texts = [shown(f"…{line[start:].lstrip()}", most) for line in lines]
    found: dict[str, str] = {}
    for text, alike in _groups(lines, texts).items():
        fewer = 1 < len(alike) < len(lines)
        found |= _differing(alike, most) if fewer else dict.fromkeys(alike, text)
    return found


def _common(first: str, last: str) -> int:
    """Letters at the beginning of both, and so of all that are between them in the alphabet."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)))


def _groups(lines: Sequence[str], texts: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line, text in zip(lines, texts, strict=True):
        found[text].append(line)
    return found


def _numbered(names: Sequence[str], texts: dict[str, str]) -> tuple[str, ...]:
    """Names that differ only in signs that cannot be seen get numbers."""
    same, taken = Counter(texts.values()), set(texts.values())
    found = {}
    for name, text in texts.items():
        free = (f"{text} ({n})" for n in count(1))
        found[name] = text if same[text] == 1 else next(one for one in free if one not in taken)
        taken.add(found[name])
    return tuple(found[name] for name in names)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Such as A, B and 4 more.

    Examples
    --------
    >>> listed(["A", "B", "C"]), listed(["A", "B", "C"], most=2)
    ('A, B and C', 'A, B and 1 more')
    """
    return in_words(apart(names, 40), most)
