"""`steadyarm report`: one file about a live test that can be mailed, which is only read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from steadyarm.cli.options import add_storage
from steadyarm.cli.storage import opened
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import load_experiment
from steadyarm.reports import FORMATS, experiment_report, format_of, write_report

__all__ = ["add_parser", "run"]

EPILOG = """\
  steadyarm report checkout --out report.html     one file with everything inside
  steadyarm report checkout --format print        laid out for paper: open it and print it
  steadyarm report checkout --out report.md       Markdown, pictures in report-pictures/

The appendix says how the result was found, what must be true for it, and how to check it.
"""


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "report",
        help="write one file about a live test that can be mailed",
        description="Writes what a live test says so far, with pictures, method, assumptions, the "
        "fingerprint of its log and the check that it can be computed anew.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="of the experiment")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="FILE.html or FILE.md (default: NAME.html)"
    )
    parser.add_argument(
        "--format",
        choices=list(FORMATS),
        help="html for screens, print for paper, md for Markdown (default: as FILE ends)",
    )
    add_storage(parser)
    parser.add_argument(
        "--no-replay", action="store_true", help="do not compute the whole test anew to check it"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the report and say where it is."""
    path = args.out
    if path is None:
        # experiment names are no paths, but what is typed may be one
        path = Path(f"{Path(args.name).name}{FORMATS[args.format or 'html'][0]}")
    chosen = format_of(path, args.format)
    if not path.parent.is_dir():
        raise InvalidInputError(
            f"the folder {path.parent} does not exist; make it, or write elsewhere with --out."
        )
    with opened(args) as storage:
        document = experiment_report(load_experiment(args.name, storage), replay=not args.no_replay)
    write_report(document, path, chosen)
    print(f"The report is in {path}.")
