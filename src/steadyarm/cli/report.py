"""`steadyarm report`: one file about a live test, to be sent to others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from steadyarm.cli.common import STORAGE, add_command, opened
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import load_experiment
from steadyarm.reports import FORMATS, experiment_report, format_of, write_report


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    add_command(
        commands,
        "report",
        run,
        [
            ("name NAME", "of the experiment"),
            ("--out FILE", "FILE.html or FILE.md (default: NAME.html)"),
            (
                f"--format {'|'.join(FORMATS)}",
                "html for screens, print for paper, md for Markdown (default: as FILE ends)",
            ),
            STORAGE,
            ("--no-replay", "do not recompute the whole test to check it"),
        ],
    )


def run(args: argparse.Namespace) -> None:
    """Write one file about a live test, to be sent to others.

    It has the results so far, with pictures, method, assumptions, the fingerprint of the log and
    the check that computing the test anew gives the same.

    For example:

      steadyarm report checkout --out report.html     one file with everything inside
      steadyarm report checkout --format print        laid out for paper: open it and print it
      steadyarm report checkout --out report.md       Markdown, pictures in report-pictures/

    The appendix says how the result was found, what must be true for it, and how to check it.
    """
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
