"""Logs that SteadyArm exported: what is known of them beyond their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from steadyarm.analysis.allocations import Described
from steadyarm.analysis.log import Log, file_paths
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.files import description_path
from steadyarm.wording import counted

if TYPE_CHECKING:
    from steadyarm.analysis.result import Analysis
    from steadyarm.live.verdict import Verdict

OURS = {"segment", "block", "position", "policy_version", "id", "rewarded_at"}
ALONE = (
    "This is a log of SteadyArm without its description (LOG.experiment.json) beside it: every "
    "variant counts by itself. Features need --arms FILE, or the description."
)
HOLDING = "Intervals "  # begins the note on when they hold


def ours(log: Log) -> bool:
    """Whether the log has the columns that SteadyArm exports."""
    return set(log.there) >= OURS


def mature(log: Log, table: Any, described: Described | None) -> tuple[Any, str]:
    """The rows whose rewards will not come any more, and a note on the others, if there are any.

    As in the test itself: rows after the first one whose reward may still come are left out,
    whether they have a reward or not, since quick rewards are not like slow ones.
    """
    if described is None or described.over:
        return table, ""
    absent, time = table["reward"].isnull(), table["time"]
    if table["reward"].type().is_string():
        absent = table["reward"].nullif("").isnull()
    [found] = log.fetch(
        table.aggregate(last=time.max(), first=time.min(where=absent), rows=table.count())
    )
    cut, last = found["first"], found["last"]
    if not isinstance(cut, datetime) or not isinstance(last, datetime):
        return table, ""  # nothing is missing, or there are no times
    if described.lasting is not None:
        over = last - timedelta(seconds=described.lasting)
        [found] = log.fetch(
            table.aggregate(first=time.min(where=absent & (time > over)), rows=table.count())
        )
        cut = found["first"]
    if cut is None:
        return table, ""
    kept = table.filter(time < cut)
    [left] = log.fetch(kept.aggregate(rows=kept.count()))
    if not left["rows"]:
        raise InvalidInputError(
            f"{log.name} is of the test {described.name}, which is still running, and rewards of "
            "all its visits may still come; export it again later, or say what a missing reward "
            'counts as: missing="drop" or "zero" (--missing drop).'
        )
    out = counted(found["rows"] - left["rows"], "row was", "rows were")
    return kept, (
        f"The newest {out} left out: the test {described.name} is still running, and some of their "
        "rewards may still come."
    )


@contextmanager
def unpacked(source: Any) -> Iterator[Any]:
    """The log within a .zip file that a dashboard gave, beside its description; else the source."""
    name = source[0] if isinstance(source, (list, tuple)) and len(source) == 1 else source
    if not isinstance(name, (str, Path)) or Path(name).suffix.lower() != ".zip":
        yield source
        return
    with TemporaryDirectory() as folder:
        [path] = file_paths(name)
        try:
            with ZipFile(path) as file:
                file.extractall(folder)
        except (BadZipFile, OSError) as error:
            raise InvalidInputError(f"{path} cannot be read: {error}") from None
        logs = [log for log in Path(folder).iterdir() if log.suffix == ".csv"]
        yield logs[0] if len(logs) == 1 else folder


def with_own_verdict(
    found: Analysis, described: Described, control: str | None, level: float
) -> Analysis:
    """The analysis with the verdict of the test itself: its budget, stopping rule and state."""
    try:
        verdict = _own_verdict(described.path, control, level)
    except SteadyArmError as error:
        note = f"The verdict of the test {described.name} itself is not known: {error}"
        return replace(found, notes=(*found.notes, note))
    low, high = verdict.intervals.T[:, None]
    gap_low, gap_high = verdict.gap_intervals.T[:, None]
    intervals = replace(
        found.intervals,
        arms=found.arms if verdict.shown is None else found.arms.subset(verdict.shown),
        recommended=np.array([verdict.row]),
        estimates=verdict.estimates[None],
        low=low,
        high=high,
        gaps=verdict.gaps[None],
        gap_low=gap_low,
        gap_high=gap_high,
        plausible=np.array([[name in verdict.plausible for name in verdict.names]]),
        winner=np.array([verdict.sure]),
        too_few=~np.isfinite(high - low),
        standard_errors=verdict.standard_errors[None],
        level=verdict.level,
        method=verdict.method,
        assumption=verdict.assumption,
        shown=verdict.shown,
        others=verdict.others,
    )
    note = (
        f"Verdict and intervals are those of the test {described.name} itself, on "
        f"{verdict.judged:,} visits of {described.budget:,} that were planned."
    )
    notes = [one for one in found.notes if not one.startswith(HOLDING)]
    anytime = verdict.anytime
    return replace(
        found, intervals=intervals, verdict=verdict, anytime=anytime, notes=(*notes, note)
    )


def _own_verdict(path: Path, control: str | None, level: float) -> Verdict:
    """What the test said when it was exported."""
    from steadyarm.live.export import read_export
    from steadyarm.live.looks import stopped_in
    from steadyarm.live.measured import metric_results
    from steadyarm.live.results import results_of
    from steadyarm.live.settings import Settings
    from steadyarm.live.stopping import LEVEL
    from steadyarm.storages import open_storage

    storage, (exported, rows, trace) = open_storage("memory"), read_export(path)
    head = storage.restore(exported.experiment.name, exported, rows, trace)
    settings = replace(Settings.from_dict(head.config), control=control)
    now = json.loads(description_path(path).read_text(encoding="utf-8")).get("exported")
    if now is None:  # of an older export
        now = max((row.created for row in storage.log(head.key)), default=0)
    snapshot = storage.snapshot(head.key, everything=True)
    stopped, series = stopped_in(storage, settings, head), list(storage.series(head.key))
    results = results_of(settings, snapshot, storage.days(head.key), now, stopped=stopped)
    metrics, at_stop = (
        metric_results(settings, snapshot, series, now, each) for each in (level, LEVEL)
    )
    return results.check_complete().recommend(level, metrics=metrics, at_stop=at_stop)
