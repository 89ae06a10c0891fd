"""`steadyarm completion`: scripts with which shells complete commands and options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from steadyarm.cli.common import command, extra


@command("completion", ("shell bash|zsh|fish", "whose script is printed"))
def completion(args: argparse.Namespace) -> None:
    """Print a script that lets a shell complete commands, options and files.

    For example, once and for all:

      steadyarm completion bash > ~/.local/share/bash-completion/completions/steadyarm
      steadyarm completion zsh > ~/.zfunc/_steadyarm     # with ~/.zfunc in fpath, before compinit
      steadyarm completion fish > ~/.config/fish/completions/steadyarm.fish

    The script starts nothing when you press TAB. Print it again after an upgrade.
    """
    with extra("completion needs", "completion"):
        import shtab
    from steadyarm.cli.main import build_parser

    parser = build_parser()
    _complete_files(parser, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(parser, args.shell))


def _complete_files(parser: argparse.ArgumentParser, file: Any, folder: Any) -> None:
    """Say which arguments of a parser, and of those below it, are files and folders."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _complete_files(below, file, folder)
        elif action.type is Path:
            kind = folder if action.metavar == "DIR" else file
            action.complete = kind  # type: ignore[attr-defined]  # where shtab looks for it
