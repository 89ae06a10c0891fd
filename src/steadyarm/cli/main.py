"""The `steadyarm` command: its parser, and what commands share.

Help and errors of the command line are quick because NumPy and the rest of the package are
imported when a command runs: `sa.simulate` and other names of `steadyarm` are imported on use.
"""

from __future__ import annotations

import argparse
import gc
import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import steadyarm as sa
from steadyarm.errors import (
    InvalidInputError,
    MissingExtraError,
    SteadyArmError,
    UnknownExperimentError,
)
from steadyarm.wording import align_columns, did_you_mean

if TYPE_CHECKING:
    from steadyarm.storages import Storage

Run = Callable[[argparse.Namespace], None]
# An option: how it is typed, what it is for and, if it needs any, further arguments of argparse.
Option = tuple[str, str] | tuple[str, str, dict[str, Any]]
# A list of options of which one may be given, or options under a title of their own.
Options = Option | list[Option] | dict[str, Sequence[Option]]

ORDER = "demo plan experiment report serve token webhook audit storage analyze reproduce simulate"
COMMANDS: dict[str, tuple[Run | None, str, tuple[Options, ...]]] = {}  # what runs, help, options
TYPES: dict[str, Callable[[str], Any]] = {"N": int, "X": float, "DIR": Path}  # by what is typed
WIDTH = 100  # characters of a line
MOST_LINES = 60  # of a table

FORMAT = ("--format text|json = text", "text for people, json for programs")
JOBS = ("--jobs N", "threads (default: one per core)")
LEVEL = ("--level X = 0.95", "probability with which intervals hold")
REPORT = ("--report FILE.html", "also write a report: one file that you can send")
SEED = ("--seed N = 0", "seed of all random draws")
STORAGE = (
    "--storage URL",
    "sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE (default: the environment variable "
    "STEADYARM_STORAGE, else sqlite:///steadyarm.db)",
)


def command(name: str, *options: Options, text: str = "") -> Callable[[Run], Run]:
    """Declare a command, or one of a group such as "storage status".

    What help says of it is `text`, or the docstring of what runs. The first line is what lists of
    commands show. What begins with a paragraph that ends in a colon is printed below the options.
    """

    def declare(run: Run) -> Run:
        COMMANDS[name] = run, text or run.__doc__ or "", options
        return run

    return declare


def group(name: str, text: str, *options: Options) -> None:
    """Declare a group of commands: what help says of it, and options that all of them have."""
    COMMANDS[name] = None, text, options


def add_commands(parser: argparse.ArgumentParser, first: Sequence[str]) -> None:
    """Add all commands to a parser: groups and commands in the order of `first`."""
    groups = {"": parser.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for name in sorted(COMMANDS, key=lambda name: first.index(name.partition(" ")[0])):
        run, text, options = COMMANDS[name]
        parent, _, own = name.rpartition(" ")
        summary, *more = cleandoc(text).split("\n\n")
        below = next((i for i, part in enumerate(more) if part.endswith(":")), len(more))
        made = groups[parent].add_parser(
            own,
            help=summary[0].lower() + summary[1:].removesuffix("."),
            description="\n\n".join([summary, *more[:below]]),
            epilog="\n\n".join(more[below:]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if run is not None:
            add_options(made, (*options, *(COMMANDS[parent][2] if parent else ())))
            made.set_defaults(run=run, command=name)
        else:
            groups[name] = made.add_subparsers(title="what to do", metavar="WHAT", required=True)


def add_options(parser: Any, options: Iterable[Options]) -> None:
    """Declare options as they are typed, such as "--trials N = 500".

    An option is followed by what it takes: N is a whole number, X a number, FILE and DIR are paths,
    words with | between them are choices, and anything else is a text. Without any it is a switch.
    After = stands the default. A name without hyphens is a positional argument, which may be left
    out if what it takes is in brackets. With ... there may be several.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> options = [("--port N = 8000", "where it listens"), ("files FILE ...", "what it reads")]
    >>> add_options(parser, options)
    >>> parser.parse_args(["a.toml", "b.toml", "--port", "80"]).port
    80
    """
    for option in options:
        if isinstance(option, list):
            add_options(parser.add_mutually_exclusive_group(), option)
        elif isinstance(option, dict):
            for title, several in option.items():
                add_options(parser.add_argument_group(title), several)
        else:
            _add_option(parser, *option)


def _add_option(parser: Any, typed: str, text: str, more: dict[str, Any] | None = None) -> None:
    usage, _, default = typed.partition(" = ")
    name, _, value = usage.partition(" ")
    optional = value.startswith("[")
    value, several, _ = value.strip("[]").partition(" ...")
    kind = Path if value.startswith("FILE") else TYPES.get(value, str)
    text += "; may be repeated" * bool(several and name.startswith("-"))
    given: dict[str, Any] = {"help": f"{text} (default: {default})" if default else text}
    if "|" in value:
        given["choices"] = value.split("|")
    elif value:
        given |= {"metavar": value, "type": kind}
    elif name.startswith("-") and more is None:
        given["action"] = "store_true"
    if default:
        given["default"] = kind(default)
    if name.startswith("-"):
        given |= {"action": "append", "default": []} if several else {}
    elif several or optional:
        given["nargs"] = "*" if several and optional else "+" if several else "?"
    parser.add_argument(name, **(given | (more or {})))


def read_time(text: str, what: str) -> datetime:
    """Read a time that says its zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        expected = "a time with its time zone, such as 2026-11-03T09:00Z"
        raise InvalidInputError.of(what, text, expected)
    return when


def user_name() -> str:
    """The name of the operating system's user, for the audit log; empty where there is none."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # such as a container's user without a name
        return ""


@contextmanager
def extra(what: str, name: str) -> Iterator[None]:
    """Import what an extra installs; the error says how to install it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"{what} {error.name}; install it with: pip install 'steadyarm[{name}]'"
        ) from None


@contextmanager
def open_storage(args: argparse.Namespace, new: bool = False) -> Iterator[Storage]:
    """Open the storage that was named, and close it in the end.

    new : whether its tables are created if there are none; else a wrong name would leave an empty
        file behind
    """
    found = sa.storages.storage_status(args.storage)  # refuses memory: it ends with the command
    if not new and found.state == "empty":
        raise UnknownExperimentError(
            f"{found.url} has no experiments. Create one with steadyarm experiment create, or "
            "choose another --storage."
        )
    storage = sa.storages.open_storage(args.storage)
    try:
        yield storage
    finally:
        storage.close()


@contextmanager
def load_experiment(args: argparse.Namespace) -> Iterator[sa.Experiment]:
    """Load the experiment that was named, and close its storage in the end."""
    with open_storage(args) as storage:
        yield sa.load_experiment(args.name, storage)


def show(args: argparse.Namespace, facts: Any, text: object) -> None:
    """Print a result: facts as a line of JSON for programs, or the text for people."""
    print(json.dumps(facts, default=_plain) if args.format == "json" else text, flush=True)


def _plain(value: object) -> Any:
    if not hasattr(value, "__struct_fields__"):
        return str(value)
    from msgspec import json

    return json.decode(json.encode(value))  # null for what is not a number


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], align: str, most: int | None = MOST_LINES
) -> str:
    """Columns as text; `align` has < or > for each.

    Examples
    --------
    >>> print(table(("name", "visits"), [("A", "5"), ("B", "12")], "<>"))
    name  visits
    A          5
    B         12
    """
    body = list(map(tuple, rows))
    cells = [tuple(head), *body[:most]]
    lines = align_columns(cells, align)
    if hidden := len(body) - len(cells) + 1:
        lines.append(f"… and {hidden} more, see --format json")
    return "\n".join(lines)


# The command line.


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names only, so that a typing error is never a guess."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, allow_abbrev=False)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [str(choice) for choice in action.choices or [value]]
        if str(value) not in known:
            hint = did_you_mean(str(value), known)
            message = f"{value!r} is not valid; expected one of: {', '.join(known)}{hint}"
            raise argparse.ArgumentError(action, message)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line, with the commands of all modules."""
    from steadyarm.cli import (  # noqa: F401
        analyze,
        demo,
        experiment,
        plan,
        research,
        service,
        storage,
    )

    parser = _Parser(
        prog="steadyarm",
        description="Find the best of many variants with a fixed number of visits, "
        "also when user behaviour changes during the test.",
    )
    parser.add_argument("--version", action="version", version=f"steadyarm {sa.__version__}")
    add_commands(parser, ORDER.split())
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0 if all went well, 1 if not, 2 for a wrong command line."""
    typed = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    args, unknown = parser.parse_known_args(typed)
    if unknown:
        _refuse(parser, args.command, unknown)
    args.typed = typed
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # such as `| head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (SteadyArmError, OSError) as error:
        print(f"steadyarm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("steadyarm: stopped", file=sys.stderr)
        return 130
    return 0


def _refuse(parser: argparse.ArgumentParser, command: str, unknown: list[str]) -> NoReturn:
    """Explain a usage error, with the usage of the nearest command."""
    for word in command.split():
        groups = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        parser = next(groups).choices[word]
    known = list(parser._option_string_actions)
    hints = (did_you_mean(word.partition("=")[0], known) for word in unknown)
    hint = next((hint for hint in hints if hint != "."), ".")
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def run() -> NoReturn:
    """Run the command that was typed, and end the process."""
    status = main()
    gc.freeze()  # its memory is returned whole; a last search for cycles would take 50 ms
    sys.exit(status)
