"""`steadyarm analyze`: the verdict on a test that ran elsewhere, from its log."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import replace
from typing import Any

import steadyarm as sa
from steadyarm.cli.main import FORMAT, LEVEL, REPORT, command, show
from steadyarm.wording import did_you_mean


@command(
    "analyze",
    ("log LOG ...", "CSV or Parquet files, a folder, SQLite, DuckDB, or the URL of a database"),
    ("--query SQL", "table of a database, or a query; files are its table log"),
    ("--metric METRIC ...", "a column, or a metric of events (see below); the first one decides"),
    ("--events TABLE", "events of units: files, or a table or query of the database"),
    ("--window TIME", "how long after the first exposure events count, such as '7 days'"),
    ("--column OURS=THEIRS ...", "another name of a column, such as arm=variant, see below"),
    ("--time-format FORMAT", "format of times that are text, such as '%%d/%%m/%%Y %%H:%%M'"),
    ("--split SHARES ...", "share of each variant: equal, or A=0.5,B=0.3,C=0.2 (see below)"),
    ("--control NAME", "control variant; the result then has lifts and a decision"),
    ("--segment NAME ...", "attribute of units, such as country; shows results by level"),
    ("--covariate NAME ...", "number known before a unit was assigned, such as spend"),
    ("--cluster NAME ...", "column that groups dependent rows, such as store"),
    (
        "--period PERIOD = auto",
        "period of drift: auto, hour, day, week, month or shares:20",
    ),
    (
        "--direction maximize|minimize",
        "direction of the reward (default: maximize, or as exported)",
    ),
    LEVEL,
    ("--missing fail|drop|zero", "how a missing reward counts (default: fail, or as exported)"),
    ("--budget N", "planned rows of a test that was watched", {"metavar": "ROWS"}),
    FORMAT,
    REPORT,
)
def analyze(args: argparse.Namespace) -> None:
    """Give the verdict on a test that ran elsewhere, from its log.

    Reads the log where it is stored. Reports the best variant, intervals, health checks and drift.

    A log has the columns timestamp, arm (the variant), probability (of the row's draw), reward and
    optionally unit. Map other names: --column arm=variant --column reward=revenue. --column unit=
    treats all rows as independent. If variants were drawn with fixed shares, give them with
    --split; the log then needs no probabilities. Repeat --split for shares that changed. If units
    have several rows, variances are computed by unit. With --budget, intervals hold at every look,
    for a test that might have been stopped early.

    For example:

      steadyarm analyze log.parquet
      steadyarm analyze visits.csv --split equal --column arm=variant --column reward=revenue
      steadyarm analyze visits.csv --split A=0.5,B=0.5 --split "2026-03-08: A=0.9,B=0.1"
      steadyarm analyze visits.csv --split equal --control A --segment country
      steadyarm analyze logs/ --period week --direction minimize
      steadyarm analyze postgresql://me@host/shop --query "select * from visits where test = 7"
      steadyarm analyze log.csv --control A --report report.html
      steadyarm analyze log.csv --column unit=session --budget 20000
      steadyarm analyze log.csv --covariate visits_last_month --covariate spend
      steadyarm analyze log.csv --cluster store --cluster day

    Two tables instead of a log: the log has exposures with unit, time and variant (and
    probability, unless --split is given); --events has unit, time, name of the event and value.
    Usual names of columns are recognised. The first exposure of a unit counts. A metric is the
    name of an event (did it happen?), or NAME = conversion(EVENT), count(EVENT), sum(EVENT),
    max(EVENT) or a ratio of two. Append "within 14 days", "capped at 500" or "minimize".

      steadyarm analyze exposures.csv --events events.csv --metric purchase
      steadyarm analyze exposures.parquet --events events/ --window "7 days"
          --metric purchase --metric "revenue = sum(purchase)"
          --metric "basket = revenue / purchase"
      steadyarm analyze shop.duckdb --query exposures --events events --metric purchase
    """
    if args.report is not None:
        sa.reports.check_path(args.report)
    if args.events is None and args.window:
        raise sa.InvalidInputError("--window needs --events TABLE.")
    tables = ("log",) if args.events is None else ("exposures", "events")
    own, *of_events = _columns(args.column, *tables)
    columns = sa.Columns(
        covariates=args.covariate,
        segments=args.segment,
        cluster=args.cluster or None,
        time_format=args.time_format,
    )
    columns = replace(columns, **own)
    events = None
    if args.events is not None:
        named = replace(sa.Columns(time_format=args.time_format), **of_events[0])
        events = sa.Events(args.events, args.metric, args.window, named)
    found = sa.analyze(
        args.log[0] if len(args.log) == 1 else args.log,
        metrics=() if args.events else args.metric,
        events=events,
        query=args.query,
        columns=columns,
        split=args.split or None,
        control=args.control,
        direction=args.direction,
        level=args.level,
        missing=args.missing,
        budget=args.budget,
        period=args.period,
    )
    show(args, found.to_dict(), found)
    if args.report is not None:
        typed = shlex.join(["steadyarm", *map(_without_password, args.typed)])
        sa.reports.write_report(sa.reports.analysis_report(found, typed), args.report)


def _without_password(word: str) -> str:
    """A word of the command line as it may be shown to others."""
    word = re.sub(r"(://[^/@:]*):[^/]*@", r"\1:***@", word)
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", word)


def _columns(pairs: list[str], *tables: str) -> list[dict[str, Any]]:
    """Our names of columns to theirs, for each table; "unit" names that of all tables."""
    from steadyarm.analysis.source import KNOWN

    mapped: dict[str, dict[str, Any]] = {table: {} for table in tables}
    known = list(dict.fromkeys(name for table in tables for name in KNOWN[table]))
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not equals:
            raise sa.InvalidInputError(f"--column {pair!r} must have the form OURS=THEIRS.")
        table, _, name = ours.rpartition(".")
        if table in tables and name in KNOWN[table]:
            mapped[table][name] = theirs or None
        elif ours not in known:
            turned = f" Our name comes first: {theirs}={ours}." if theirs in known else ""
            raise sa.InvalidInputError(
                f"{ours!r} is not a column of a log; expected one of: "
                f"{', '.join(known)}{did_you_mean(ours, known)}{turned}"
            )
        for each in tables:
            if ours in KNOWN[each]:
                mapped[each].setdefault(ours, theirs or None)
    return list(mapped.values())
