"""Logs that SteadyArm exported: what is known of them beyond their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.source import Source, file_paths
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.segments import Direction
from steadyarm.wording import counted

if TYPE_CHECKING:
    from steadyarm.analysis.analyze import Question
    from steadyarm.analysis.result import Analysis
    from steadyarm.live.verdict import Verdict

OURS = {"segment", "block", "position", "policy_version", "id", "rewarded_at"}
ALONE = (
    "This is a log of SteadyArm without its description (LOG.experiment.json) beside it: every "
    "variant counts by itself. Features need --arms FILE, or the description."
)
HOLDING = "Intervals "  # begins the note on when they hold
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Described:
    """The test that a log was exported from.

    Attributes
    ----------
    path : of the log
    name : of the test
    arms : its variants, in its order
    direction : of its rewards
    budget, control : that were declared
    shares : (K,) the allocation of each segment, by the segment's number as text
    missing : what a reward that never came counts as
    lasting : seconds after its assignment in which a reward may still come; None for ever
    over : whether no rewards are to come
    covariates : that were declared
    """

    path: Path
    name: str
    arms: ArmSet
    direction: Direction
    budget: int
    control: str | None
    shares: Mapping[str, Floats]
    missing: Any = "fail"
    lasting: float | None = None
    over: bool = True
    covariates: tuple[str, ...] = ()

    def notes(self, direction: Direction) -> list[str]:
        """What was taken from the description, and what was asked otherwise."""
        found = [
            f"The variants, their order and their features are those of the test {self.name}, "
            "from the description beside the log."
        ]
        if direction != self.direction:
            found.append(
                f"The test was to {self.direction} rewards, but this analysis is to {direction} "
                f"them; give the direction {self.direction} if that is not meant."
            )
        return found


def described(source: Any) -> Described | None:
    """What stands beside the log, if it is one file that was exported with its description."""
    if isinstance(source, (list, tuple)) and len(source) == 1:
        source = source[0]
    if not isinstance(source, (str, Path)) or "://" in str(source) or not Path(source).is_file():
        return None
    description = Path(f"{source}.experiment.json")
    if not description.is_file():
        return None
    from steadyarm.live.export import read_description  # which imports all that storages keep

    try:
        snapshot = read_description(description).snapshot
        experiment = snapshot.experiment
        config = experiment.config
        arms = ArmSet.from_dict(config["arms"])
        weights = {
            str(record.index): record.segment.dense(arms.size).weights[0]
            for record, _ in snapshot.segments
        }
        window, grace = config.get("reward_window"), config.get("reward_grace") or 0.0
        return Described(
            Path(source),
            experiment.name,
            arms,
            config["direction"],
            int(config["budget"]),
            config.get("control"),
            weights,
            str(config.get("missing") or "fail"),
            None if window is None else float(window) + float(grace),
            experiment.state in ("stopped", "archived"),
            tuple(config.get("covariates") or ()),
        )
    except (InvalidInputError, LookupError, TypeError) as error:
        raise InvalidInputError(
            f"{Path(source).name} cannot be read together with the description beside it: {error} "
            "Export the test again, or give the variants (arms, on the command line --arms FILE)."
        ) from None


def ours(log: Source) -> bool:
    """Whether the log has the columns that SteadyArm exports."""
    return set(log.there) >= OURS


def mature(log: Source, table: Any, described: Described | None) -> tuple[Any, str]:
    """The rows whose rewards will not come any more, and a note on the others, if there are any.

    As in the test itself: rows after the first one whose reward may still come are left out,
    whether they have a reward or not, since quick rewards are not like slow ones.
    """
    if described is None or described.over:
        return table, ""
    absent, time = table["given"].isnull(), table["time"]
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
            'counts as: missing="drop" or "zero".'
        )
    out = counted(found["rows"] - left["rows"], "row was", "rows were")
    return kept, (
        f"The newest {out} left out: the test {described.name} is still running, and some of their "
        "rewards may still come."
    )


def says_the_test(described: Described, question: Question) -> bool:
    """Whether the question is that of the test, so that its own verdict is the answer."""
    asked = (question.missing, question.budget, question.split, question.cluster or None)
    covariates = tuple(question.covariates.values())
    return (
        all(one is None for one in asked)
        and covariates in ((), described.covariates)
        and question.direction in (None, described.direction)
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
    found = replace(found, intervals=intervals, verdict=verdict, anytime=verdict.anytime)
    if found.covariates and verdict.raw is not None:
        found = replace(found, raw=verdict.raw, variance_kept=verdict.variance_kept)
    return replace(found, notes=(*notes, note))


def _own_verdict(path: Path, control: str | None, level: float) -> Verdict:
    """What the test said when it was exported."""
    from steadyarm.live.export import read_export
    from steadyarm.live.moment import Moment
    from steadyarm.live.settings import Settings
    from steadyarm.live.stopping import stopped_in

    test = read_export(path)
    head, snapshot = test.snapshot.experiment, test.snapshot
    settings = replace(Settings.from_dict(head.config), control=control)
    stopped = stopped_in(lambda name: test.trace.entries, settings, head)
    moment = Moment(settings, snapshot, test.days, test.series, test.exported, stopped)
    return moment.recommend(level)
