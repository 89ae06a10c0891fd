"""The `steadyarm` command: finds the subcommand, prints errors for people, returns a status."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import steadyarm
from steadyarm.cli import (  # noqa: F401
    analyze,
    demo,
    experiment,
    plan,
    research,
    service,
    storage,
)
from steadyarm.cli.common import add_commands
from steadyarm.errors import SteadyArmError
from steadyarm.wording import did_you_mean

ORDER = "demo plan experiment report serve token webhook audit storage analyze reproduce simulate"


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
    """Build the parser of the whole command line."""
    parser = _Parser(
        prog="steadyarm",
        description="Find the best of many variants with a fixed number of trials, "
        "also when user behaviour changes during the test.",
    )
    parser.add_argument("--version", action="version", version=f"steadyarm {steadyarm.__version__}")
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


if __name__ == "__main__":
    run()
