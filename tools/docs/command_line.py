"""The page about the command line, from its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from steadyarm.cli.main import build_parser
from tools.docs.docstrings import cell, escaped, table

__all__ = ["arguments", "command_line_page", "commands", "help_of", "spelled"]

WIDTH = 88
USAGE = "usage: "
HEAD = """\
# Command line

Made from the program itself; `steadyarm COMMAND --help` prints the same. Statuses are 0 if all went
well, 1 if not, 2 for a wrong command line.
"""


def commands(parser: argparse.ArgumentParser | None = None) -> Iterator[argparse.ArgumentParser]:
    """The whole command line, then each command, then each of their parts."""
    parser = parser or build_parser()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from commands(inner)


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What a command takes, without --help and its own parts."""
    return [
        action
        for action in parser._actions
        if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    ]


def spelled(action: argparse.Action) -> str:
    """How an argument is typed.

    Examples
    --------
    >>> [spelled(action) for action in arguments(build_parser())]
    ['--version']
    """
    if not action.option_strings:
        return f"{action.dest} {_shown(action)}" if action.choices else _shown(action)
    value = "" if action.nargs == 0 else f" {_shown(action)}"
    return ", ".join(action.option_strings) + value


def help_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """What the program says of an argument; empty if nothing."""
    return _formatter(parser)._expand_help(action) if action.help else ""


def command_line_page() -> str:
    """The page about all commands."""
    parts = [HEAD]
    for parser in commands():
        level = min(len(parser.prog.split()) + 1, 3)
        parts.append(f"{'#' * level} {parser.prog} {{ #{parser.prog.replace(' ', '-')} }}")
        parts += _about(parser)
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield escaped(parser.description or "")
    formatter = _formatter(parser)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    usage = formatter.format_help().replace(f"\n{' ' * len(USAGE)}", "\n")
    yield f"```text\n{usage.removeprefix(USAGE).strip()}\n```"
    rows = [f"| `{spelled(one)}` | {cell(_told(parser, one))} |" for one in arguments(parser)]
    yield table("", "", rows=rows)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            rows = [
                f"| [`{parser.prog} {one.dest}`](#{parser.prog.replace(' ', '-')}-{one.dest}) "
                f"| {cell(one.help or '')} |"
                for one in action._get_subactions()
            ]
            yield table("", "", rows=rows)
    if parser.epilog:
        yield f"```text\n{parser.epilog.rstrip()}\n```"


def _told(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = help_of(parser, action)
    missing = [str(choice) for choice in action.choices or () if str(choice) not in text]
    choices = f"; one of {', '.join(map(str, action.choices or ()))}" if missing else ""
    needed = "; needed" if action.option_strings and action.required else ""
    return f"{text}{choices}{needed}"


def _shown(action: argparse.Action) -> str:
    names = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if action.choices and not action.metavar:
        names = "{" + ",".join(map(str, action.choices)) + "}"
    if isinstance(names, tuple):
        return " ".join(names)
    return f"{names} …" if action.nargs in ("*", "+") else names


def _formatter(parser: argparse.ArgumentParser) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(parser.prog, width=WIDTH)
