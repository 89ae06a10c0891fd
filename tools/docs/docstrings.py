"""Docstrings as this repository writes them, read into blocks and written as Markdown.

Sections are those of numpydoc. An entry is one line, "name : what it is", continued by indented
lines; there is no separate type, because signatures have it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Block", "cell", "entries_of", "escaped", "markdown", "read", "summary_of", "table"]

ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.*)")
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
SPECIAL = re.compile(r"([\\*_\[\]>|#])")
Linked = Callable[[str], str]


@dataclass(frozen=True)
class Block:
    """A piece of a docstring.

    Attributes
    ----------
    kind : "text", "title", "entries", "example" or "code"
    text : of all but entries
    entries : (names, what they are)
    """

    kind: str
    text: str = ""
    entries: tuple[tuple[tuple[str, ...], str], ...] = ()


def read(docstring: str | None) -> list[Block]:
    r"""The blocks of a docstring, in their order.

    Examples
    --------
    >>> read("Idea.\n\nParameters\n----------\na, b : two numbers,\n    both large")[2].entries
    ((('a', 'b'), 'two numbers, both large'),)
    """
    lines = inspect.cleandoc(docstring or "").splitlines()
    blocks, chunk = [], list[str]()
    for number, line in enumerate([*lines, ""]):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if line and below and set(below) == {"-"}:
            blocks += [*_block(chunk), Block("title", line)]
            chunk = []
        elif line and set(line) == {"-"} and blocks and blocks[-1].kind == "title":
            continue
        elif line.strip():
            chunk.append(line)
        else:
            blocks += _block(chunk)
            chunk = []
    return blocks


def entries_of(docstring: str | None) -> dict[str, str]:
    r"""What a docstring says of each name.

    Examples
    --------
    >>> entries_of("Idea.\n\na, b : two numbers\nc : a third one")
    {'a': 'two numbers', 'b': 'two numbers', 'c': 'a third one'}
    """
    return {
        name.lstrip("*"): text
        for block in read(docstring)
        for names, text in block.entries
        for name in names
    }


def summary_of(docstring: str | None) -> str:
    """The first paragraph, in one line."""
    blocks = read(docstring)
    return blocks[0].text if blocks and blocks[0].kind == "text" else ""


def markdown(blocks: list[Block], linked: Linked = lambda code: code) -> str:
    """Blocks as Markdown; `linked` may turn a span of code into a link."""
    return "\n\n".join(_written(block, linked) for block in blocks)


def escaped(text: str, linked: Linked = lambda code: code) -> str:
    r"""Plain text with `code` in it, as Markdown that shows just that.

    Examples
    --------
    >>> print(escaped("2**63 in `a_b` or a_b"))
    2\*\*63 in `a_b` or a\_b
    >>> print(escaped("p < 0.001"))
    p &lt; 0.001
    """
    parts = CODE.split(text)
    return "".join(
        linked(part) if number % 2 else SPECIAL.sub(r"\\\1", part).replace("<", "&lt;")
        for number, part in enumerate(parts)
    )


def cell(text: str) -> str:
    """The same for a cell of a table: in one line."""
    return escaped(" ".join(text.split()))


def table(*titles: str, rows: list[str]) -> str:
    """A table of rows that are written already; nothing if there are none."""
    if not rows:
        return ""
    return "\n".join([f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}", *rows])


def _block(chunk: list[str]) -> Iterator[Block]:
    if not chunk:
        return
    if chunk[0].lstrip().startswith(">>>"):
        yield Block("example", inspect.cleandoc("\n".join(chunk)))
    elif ENTRY.fullmatch(chunk[0]):
        found: list[tuple[tuple[str, ...], str]] = []
        for line in chunk:
            match = ENTRY.fullmatch(line)
            if match:
                found.append((tuple(match[1].split(", ")), match[2]))
            else:
                found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        yield Block("entries", entries=tuple(found))
    elif all(line.startswith("    ") for line in chunk):
        yield Block("code", inspect.cleandoc("\n".join(chunk)))
    elif any(line.startswith(("- ", "1. ")) for line in chunk):
        yield Block("text", "\n".join(chunk))
    else:
        yield Block("text", " ".join(line.strip() for line in chunk))


def _written(block: Block, linked: Linked) -> str:
    if block.kind == "title":
        return f"**{block.text}**"
    if block.kind == "entries":
        return "\n".join(
            f"- {', '.join(f'`{name}`' for name in names)}: {escaped(text, linked)}"
            for names, text in block.entries
        )
    if block.kind == "example":
        return f"```pycon\n{block.text}\n```"
    if block.kind == "code":
        return f"```text\n{block.text}\n```"
    return escaped(block.text, linked)
