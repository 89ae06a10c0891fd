"""`steadyarm serve`: the HTTP service with its pages; options and variables become settings."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from importlib import import_module
from typing import Any

from steadyarm.cli.options import add_storage
from steadyarm.errors import MissingExtraError

__all__ = ["add_parser", "run"]

DASHBOARD = "steadyarm.dashboard.app:create_app"  # imported when it is served
PARTS = ("itsdangerous", "jinja2", "plotly")  # that the dashboard needs beyond the service
POSTGRES_WRITERS = 4  # threads; SQLite lets one write at a time anyway

EPILOG = """\
Every option may be given as an environment variable instead, such as STEADYARM_PORT=80 or
STEADYARM_ACCESS_LOG=false. Before the first token only this machine is served, and no proxy on it;
see steadyarm token. Behind a proxy, declare the names that people use with --allowed-host.
People open / in a browser and sign in with a token, if there is one. The interface for programs is
described at /openapi.json; /healthz, /readyz and /metrics are for monitoring.
"""


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "serve",
        help="live experiments over HTTP",
        description="Serves live experiments over HTTP until it is interrupted.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", help="where it listens (default: 127.0.0.1, this machine only)")
    parser.add_argument(
        "--port", type=int, metavar="N", help="of that host (default: 8000); 0 for a free one"
    )
    add_storage(parser)
    parser.add_argument(
        "--allowed-host",
        dest="allowed_hosts",
        action="append",
        metavar="NAME",
        help="a name under which requests come, such as that of a proxy in front; may be repeated, "
        "and others are then refused (default: all, but through a proxy only localhost)",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="how many processes (default: 1)")
    parser.add_argument(
        "--max-body", type=int, metavar="BYTES", help="bytes a request may have (default: 1000000)"
    )
    parser.add_argument(
        "--max-batch", type=int, metavar="N", help="items a batch may have (default: 1000)"
    )
    parser.add_argument(
        "--max-lease",
        type=int,
        metavar="N",
        help="positions a lease may have (default: 10000)",
    )
    parser.add_argument(
        "--max-waiting",
        type=int,
        metavar="N",
        help="assignments and rewards that may wait to be written (default: 50000)",
    )
    parser.add_argument(
        "--max-connections",
        type=int,
        metavar="N",
        help="open connections of each process (default: 4000)",
    )
    parser.add_argument(
        "--request-timeout",
        type=float,
        metavar="SECONDS",
        help="time in which a request is answered or refused (default: 15)",
    )
    parser.add_argument(
        "--log-format",
        choices=["text", "json"],
        help="of the lines on standard output (default: text)",
    )
    parser.add_argument(
        "--no-access-log",
        dest="access_log",
        action="store_false",
        default=None,
        help="write no line for every request",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Serve."""
    try:
        from steadyarm.service.process import serve
        from steadyarm.service.settings import ServiceSettings

        for part in PARTS:
            import_module(part)
    except ImportError as error:
        raise MissingExtraError(
            f"the service needs {error.name}; install it with: pip install 'steadyarm[service]'"
        ) from None
    settings = ServiceSettings.from_environment(
        os.environ,
        host=args.host,
        port=args.port,
        storage=args.storage,
        allowed_hosts=None if args.allowed_hosts is None else tuple(args.allowed_hosts),
        workers=args.workers,
        max_body=args.max_body,
        max_batch=args.max_batch,
        max_lease=args.max_lease,
        max_waiting=args.max_waiting,
        max_connections=args.max_connections,
        request_timeout=args.request_timeout,
        log_format=args.log_format,
        access_log=args.access_log,
    )
    if (settings.storage or "").startswith("postgres") and "STEADYARM_WRITERS" not in os.environ:
        settings = replace(settings, writers=POSTGRES_WRITERS)
    serve(settings, DASHBOARD)
