"""Options that several commands have, described once, and who typed them; they touch nothing."""

from __future__ import annotations

import argparse
import getpass
from pathlib import Path

__all__ = [
    "add_format",
    "add_jobs",
    "add_level",
    "add_report",
    "add_seed",
    "add_storage",
    "typed_by",
]


def add_format(parser: argparse.ArgumentParser) -> None:
    """`--format`: for people or for programs."""
    parser.add_argument(
        "--format",
        choices=["text", "json"],
        default="text",
        help="text for people, json for programs (default: text)",
    )


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """`--jobs`: how many threads."""
    parser.add_argument("--jobs", type=int, metavar="J", help="threads (default: one per core)")


def add_level(parser: argparse.ArgumentParser) -> None:
    """`--level`: how sure."""
    parser.add_argument(
        "--level",
        type=float,
        default=0.95,
        help="probability with which intervals hold (default: %(default)s)",
    )


def add_report(parser: argparse.ArgumentParser) -> None:
    """`--report`: a file beside what is printed."""
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write a report, too: FILE.html that can be mailed, or FILE.md and its pictures",
    )


def add_seed(parser: argparse.ArgumentParser, default: int | None = 0) -> None:
    """`--seed`; without a default it can be told whether it was typed."""
    parser.add_argument(
        "--seed",
        type=int,
        default=default,
        metavar="S",
        help="another seed, other luck (default: 0)",
    )


def add_storage(parser: argparse.ArgumentParser) -> None:
    """`--storage`: where experiments and tokens are."""
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE (default: the environment "
        "variable STEADYARM_STORAGE, else sqlite:///steadyarm.db)",
    )


def typed_by() -> str:
    """The name of the operating system's user, for the audit log; empty where there is none."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # such as a container's user without a name
        return ""
