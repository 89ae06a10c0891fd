"""Counts modules and lines of code of the package: without docstrings, comments and blank lines.

    python -m tools.size               # a table by package
    python -m tools.size --files       # and a line for each module, the largest first

A line counts once, however many statements it has. A text over many lines that is no docstring,
such as a query, is code. Templates, styles and scripts of the dashboard are not counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "steadyarm"
TOP = "(top)"  # modules beside the packages
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Size(NamedTuple):
    """Lines of code, and of all lines, of a module; its path within the package."""

    module: str
    code: int
    lines: int

    @property
    def package(self) -> str:
        """The outermost package that it lies in."""
        first, inside, _ = self.module.partition("/")
        return first if inside else TOP


def size_of(text: str, module: str = "") -> Size:
    r"""Count the lines of one module.

    Examples
    --------
    >>> size_of('def one():\n    "A number."\n\n    return 1  # always\n')
    Size(module='', code=2, lines=4)
    """
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return Size(module, len(code.difference(_docstrings(text))), len(text.splitlines()))


def _docstrings(text: str) -> Iterator[int]:
    """The lines that docstrings take."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body[:1]:
                case [ast.Expr(value=ast.Constant(value=str())) as first]:
                    yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def _row(name: str, sizes: Sequence[Size], width: int) -> str:
    code, lines = sum(size.code for size in sizes), sum(size.lines for size in sizes)
    return f"{name:{width}}  {len(sizes):7}  {code:7,}  {lines:7,}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="a line for each module, too")
    options = parser.parse_args()
    sizes = [
        size_of(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix())
        for path in sorted(PACKAGE.rglob("*.py"))
    ]
    packages: defaultdict[str, list[Size]] = defaultdict(list)
    for size in sizes:
        packages[size.package].append(size)
    width = max(map(len, packages))
    print(f"{'package':{width}}  modules     code    lines")
    for name in sorted(packages):
        print(_row(name, packages[name], width))
    print(_row("total", sizes, width))
    if options.files:
        print()
        for size in sorted(sizes, key=lambda size: -size.code):
            print(f"{size.code:6,}  {size.module}")


if __name__ == "__main__":
    main()
