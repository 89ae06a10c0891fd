"""Exports of live experiments: the log as CSV or Parquet, a description beside it, and back.

The columns are those that `analyze` reads; if the experiment has metrics a further one has all
events, as JSON. The description is JSON with the experiment's record, its segments, audit entries
and corrections.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args
from zipfile import ZIP_DEFLATED, ZipFile

from steadyarm.arms.recipes import LazyNames, names_in
from steadyarm.errors import InvalidInputError, MissingExtraError, SteadyArmError
from steadyarm.estimators import is_one_hot
from steadyarm.segments import Segment
from steadyarm.storages.changes import AuditEntry, Correction, Trace
from steadyarm.storages.counting import Metrics, RunningSeries, RunningTally, columns_of
from steadyarm.storages.records import (
    LATEST,
    DaySums,
    EarlySums,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    MetricEvent,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    check_of,
    id_of,
    parse_assignment_id,
    place_of,
    to_datetime,
    to_micros,
)
from steadyarm.validation import check_choice, finite_number, whole_number
from steadyarm.wording import csv_cell, csv_text

if TYPE_CHECKING:
    from steadyarm.live.experiment import Experiment

READ = ("timestamp", "unit", "arm", "probability", "reward", "segment", "block")  # by analyze
GUARDS = ("unit", "arm")  # texts that users chose; in CSV files they are guarded against formulas
COLUMNS = (*READ, "position", "policy_version", "id", "rewarded_at", "received_at", "excluded")
TIMES = ("timestamp", "rewarded_at", "received_at")
FORMAT = 1
PAGE = 10_000  # rows read at a time

Counts = dict[int, list[int]]  # rows and rewards by segment; and events, if there are any


def segment_to(record: SegmentRecord) -> dict[str, Any]:
    """A segment with its allocation and reference, floats to the bit."""
    fields = {name: value for name, value in vars(record).items() if name != "segment"}
    return fields | record.segment.to_dict()


def segment_from(values: Mapping[str, Any]) -> SegmentRecord:
    """The segment that `segment_to` wrote."""
    segment = Segment.from_dict(values).checked()
    whole_number(values["rounds"], "rounds", least=1)
    rest = {name: value for name, value in values.items() if name not in segment.to_dict()}
    rest["early"] = EarlySums.read(values["early"])
    return SegmentRecord(segment=segment, **rest)


def description_path(log: Path) -> Path:
    """Where the description of the experiment stands that a log was exported from."""
    return log.with_name(f"{log.name}.experiment.json")


def export_experiment(experiment: Experiment, path: str | Path, named: bool = True) -> Path:
    """Write the log into a .csv or .parquet file, and a description beside it.

    Neither is there before both are complete.

    named : whether the audit entries say who did what and why, which not every reader may know
    """
    path = Path(path)
    description = description_path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InvalidInputError(f"{path} ends with {path.suffix!r}; expected .csv or .parquet.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = [at.with_name(f".{at.name}.{os.getpid()}.tmp") for at in (path, description)]
    snapshot = experiment.storage.snapshot(experiment.key, everything=True)
    trace = experiment.storage.trace(experiment.key, experiment.name)
    counts: Counts = {}
    now = experiment.now()
    try:
        if path.suffix == ".csv":
            with temporary[0].open("w", encoding="utf-8", newline="") as file:
                file.writelines(csv_lines(experiment, snapshot, counts))
        else:
            write_parquet(experiment, temporary[0], snapshot, counts)
        if experiment.storage.trace(experiment.key, experiment.name) != trace:
            raise InvalidInputError(
                "the experiment was corrected while it was exported; export it again."
            )
        if not named:
            trace = replace(trace, entries=tuple(map(_unnamed, trace.entries)))
        described = json.dumps(_described(path, snapshot, counts, trace, now))
        temporary[1].write_text(described, encoding="utf-8")
        os.replace(temporary[0], path)
        os.replace(temporary[1], description)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error}") from None
    finally:
        for file_left in temporary:
            file_left.unlink(missing_ok=True)
    return path


def _unnamed(entry: AuditEntry) -> AuditEntry:
    """The entry without its author, and without details but those of a test that stopped itself."""
    itself = entry.action == "experiment.stopped" and "look" in entry.detail
    return replace(entry, author="", detail=entry.detail if itself else {})


def csv_lines(
    experiment: Experiment, until: Snapshot | None = None, counts: Counts | None = None
) -> Iterator[str]:
    """The log as the text of a CSV file, some thousand lines at a time.

    until : leave out assignments made after this
    counts : filled with how many rows, rewards and events there are, by segment
    """
    yield ",".join(_columns(experiment)) + "\r\n"
    for rows in _tables(experiment, until, counts):
        for name in GUARDS:
            rows[name] = [csv_cell(text) for text in rows[name]]
        for name in TIMES:
            rows[name] = [time and time.isoformat() for time in rows[name]]
        text = io.StringIO(newline="")
        csv.writer(text).writerows(zip(*rows.values(), strict=True))
        yield text.getvalue()


def write_parquet(
    experiment: Experiment,
    path: Path,
    until: Snapshot | None = None,
    counts: Counts | None = None,
) -> None:
    """The log as a Parquet file."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError(
            f"Parquet needs {error.name}; install it with: pip install 'steadyarm[analyze]'"
        ) from None
    config = experiment.storage.find(experiment.name).config
    kinds: dict[str, Any] = {
        **dict.fromkeys(TIMES, pa.timestamp("us", tz="UTC")),
        **dict.fromkeys(("probability", "reward"), pa.float64()),
        **dict.fromkeys(_covariates(config), pa.float64()),
        **dict.fromkeys(("segment", "block", "position", "policy_version", "excluded"), pa.int64()),
    }
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in _columns(experiment)])
    with parquet.ParquetWriter(path, schema) as writer:
        for rows in _tables(experiment, until, counts):
            writer.write_table(pa.table(rows, schema=schema))


def write_zip(experiment: Experiment, path: Path) -> None:
    """The log as CSV and its description, in one file for everybody who may read results."""
    with TemporaryDirectory() as folder, ZipFile(path, "w", ZIP_DEFLATED) as file:
        log = export_experiment(experiment, Path(folder) / f"{experiment.name}.csv", named=False)
        for written in (log, description_path(log)):
            file.write(written, written.name)


@dataclass(frozen=True)
class ExportedTest:
    """A test as it stood when it was exported; the sums are counted from its rows.

    Attributes
    ----------
    exported : when that was
    days, series : as `Storage.days` and `Storage.series` give them
    """

    snapshot: Snapshot
    days: tuple[DaySums, ...]
    series: tuple[SeriesSums, ...]
    trace: Trace
    exported: int


def read_export(path: str | Path) -> ExportedTest:
    """Read what `export_experiment` wrote."""
    path = Path(path)
    experiment, records, counts, trace, exported = read_description(description_path(path))
    metrics = Metrics.of(experiment.config)
    columns = {record.index: columns_of(record.segment) for record in records}
    sums = {index: RunningTally(columns[index]) for index in columns}
    series = RunningSeries(metrics)
    for page in _checked(path, _read(path, experiment), counts):
        for row in page:
            if _segment(row) not in sums:
                raise InvalidInputError(f"{path} has rows of a segment that was never opened.")
            sums[_segment(row)].add(row)
            if metrics:
                series.add(row)
    all_series = series.sums(columns)
    snapshot = Snapshot(
        experiment,
        tuple((record, sums[record.index].tally()) for record in records),
        tuple(sorted({place_of(each.number)[0] for each in trace.corrections if each.late})),
        tuple(part for part in all_series if part.series in metrics.steering),
    )
    days = (part for index in sorted(sums) for part in sums[index].day_sums(index))
    return ExportedTest(snapshot, tuple(days), all_series, trace, exported)


def _columns(experiment: Experiment) -> list[str]:
    """Arms that share features need every row's whole allocation.

    Of very many arms it would be longer than all the rest; the description has it. Covariates
    have columns of their own for `analyze`.
    """
    arms, columns = experiment.arms, list(COLUMNS)
    config = experiment.storage.find(experiment.name).config
    if not arms.large and not is_one_hot(arms.coordinates):
        columns.append("probabilities")
    if Metrics.of(config):
        columns.append("events")
    return columns + _covariates(config)


def _covariates(config: Mapping[str, Any]) -> list[str]:
    """The names of covariates that have a column: those that no other column has."""
    taken = {*COLUMNS, "probabilities", "events"}
    return [name for name in config.get("covariates", ()) if name not in taken]


def _tables(
    experiment: Experiment, until: Snapshot | None, counts: Counts | None
) -> Iterator[dict[str, list[Any]]]:
    """The log as columns, page by page; times are datetimes."""
    columns, arms = _columns(experiment), experiment.arms
    covariates = _covariates(experiment.storage.find(experiment.name).config)
    ends = None if until is None else {s.index: s.handed for s, _ in until.segments}
    segments: dict[int, dict[str, Any]] = {}
    for page in experiment.storage.pages(experiment.key):
        if ends is not None:
            page = [row for row in page if _position(row) < ends.get(_segment(row), 0)]
        if counts is not None:
            _count(page, counts)
        played = [_segment(row) for row in page]
        unknown = set(played) - segments.keys()
        for index, record in experiment.storage.segments(experiment.key, unknown).items():
            segment = record.segment
            segments[index] = {
                "block": segment.block if segment.order == "blocks" else 1,
                "policy_version": record.policy_version,
            }
            if "probabilities" in columns:
                weights = segment.dense(arms.size).weights[0].tolist()
                segments[index]["probabilities"] = json.dumps(weights)
        values: dict[str, list[Any]] = {
            "timestamp": [to_datetime(row.created) for row in page],
            "unit": [row.unit for row in page],
            "arm": [arms.names[row.arm] for row in page],
            "probability": [row.probability for row in page],
            "reward": [row.reward for row in page],
            "segment": played,
            "position": [_position(row) for row in page],
            "id": [id_of(experiment.tag, row.number, row.unit) for row in page],
            "rewarded_at": [_datetime(row.rewarded) for row in page],
            "received_at": [_datetime(row.received or row.rewarded) for row in page],
            "excluded": [row.excluded for row in page],
            "events": [json.dumps(row.events) if row.events else None for row in page],
        }
        for name in covariates:
            known = ({e.metric: e.value for e in row.events}.get(name) for row in page)
            values[name] = list(known)
        yield {
            name: values[name] if name in values else [segments[index][name] for index in played]
            for name in columns
        }


def _segment(row: LogRow) -> int:
    return place_of(row.number)[0]


def _position(row: LogRow) -> int:
    return place_of(row.number)[1]


def _datetime(time: int | None) -> datetime | None:
    return None if time is None else to_datetime(time)


def _count(page: Iterable[LogRow], counts: Counts) -> None:
    for row in page:
        count = counts.setdefault(_segment(row), [0, 0])
        count[0] += 1
        count[1] += row.reward is not None
        if row.events:
            count += [0] * (3 - len(count))
            count[2] += len(row.events)


def _described(
    path: Path, snapshot: Snapshot, counts: Counts, trace: Trace, now: int
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "exported": now,
        "log": path.name,
        "rows": {str(index): found for index, found in counts.items()},
        "experiment": {k: v for k, v in asdict(snapshot.experiment).items() if k != "key"},
        "segments": [segment_to(record) for record, _ in snapshot.segments],
        "audit": [asdict(entry) for entry in trace.entries],
        "corrections": [list(astuple(each)) for each in trace.corrections],
    }


def read_description(
    path: Path,
) -> tuple[ExperimentRecord, list[SegmentRecord], Counts, Trace, int]:
    """The experiment, its segments, counts, history and the time, from the file beside a log."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error}. An export has this file beside its rows; the "
            "experiment's settings and segments are in it."
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(
            f"{path} is not the description of an exported experiment; expected the file that "
            "export wrote beside the rows."
        )
    try:
        experiment = ExperimentRecord(key=0, **data["experiment"])
        check_choice(experiment.state, "state", get_args(ExperimentState))
        segments = [segment_from(entry) for entry in data["segments"]]
        counts = {int(index): list(map(int, found)) for index, found in data["rows"].items()}
        trace = Trace(
            tuple(AuditEntry(**entry) for entry in data["audit"]),
            tuple(Correction(*each) for each in data["corrections"]),
        )
        return experiment, segments, counts, trace, int(data["exported"])
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{path} is incomplete or damaged: {error!r}; export the experiment again."
        ) from None


def _checked(path: Path, log: Iterable[list[LogRow]], counts: Counts) -> Iterator[list[LogRow]]:
    """The rows, if they are those that were exported: each once, in order, none missing."""
    read: Counts = {}
    last = -1
    for page in log:
        for row in page:
            if row.number <= last:
                raise InvalidInputError(
                    f"{path} has rows twice or out of order, around place {place_of(row.number)}."
                )
            last = row.number
        _count(page, read)
        yield page
    if read != counts:
        rows, described = (sum(n for n, *_ in count.values()) for count in (read, counts))
        raise InvalidInputError(
            f"{path} has {rows:,} rows, but its description is of {described:,}, or of other "
            "rewards or events; it was cut short or changed, or they do not belong together."
        )


def _read(path: Path, experiment: ExperimentRecord) -> Iterator[list[LogRow]]:
    arm_of, tag = cache(_finder(experiment.config["arms"])), experiment.tag
    batch: list[LogRow] = []
    for line, row in enumerate(_rows(path), start=2):
        try:
            batch.append(_row(row, tag, arm_of))
        except SteadyArmError:
            raise
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{path}, row {line}: {error}.") from None
        if len(batch) >= PAGE:
            yield batch
            batch = []
    yield batch


def _row(row: Mapping[str, Any], tag: str, arm_of: Callable[[str], int]) -> LogRow:
    """A row as it is stored; ValueError or the like if it cannot be one."""
    parsed = parse_assignment_id(row["id"], tag)
    if parsed is None or parsed[1] != check_of(row["unit"] or ""):
        raise ValueError(f"{row['id']!r} is no id of this experiment and unit")
    recorded = row["reward"] not in (None, "")
    rewarded = _time(row["rewarded_at"]) if recorded else None
    received = _time(row["received_at"]) if recorded and row.get("received_at") else rewarded
    return LogRow(
        parsed[0],
        row["unit"] or "",
        arm_of(row["arm"]),
        float(row["probability"]),
        _time(row["timestamp"]),
        float(row["reward"]) if recorded else None,
        rewarded,
        None if received == rewarded else received,
        int(row["excluded"]) if row.get("excluded") not in (None, "") else None,
        tuple(sorted(_event(*each) for each in json.loads(row.get("events") or "[]"))),
    )


def _event(metric: Any, event: Any, value: Any, at: Any, received: Any) -> MetricEvent:
    """An event as it is stored; ValueError or the like if it cannot be one."""
    if not isinstance(metric, str) or not isinstance(event, str):
        raise ValueError(f"{metric!r} and {event!r} do not name an event")
    times = [None if time is None else to_micros(time, LATEST) for time in (at, received)]
    if times[0] is None:
        raise ValueError(f"the event {event!r} of {metric!r} has no time")
    return MetricEvent(metric, event, finite_number(value, "an event"), times[0], times[1])


def _finder(arms: Mapping[str, Any]) -> Callable[[str], int]:
    """How the arm of a name is found; LookupError or ValueError if there is none."""
    names = names_in(arms)
    if isinstance(names, LazyNames):
        return names.index
    return {name: k for k, name in enumerate(names)}.__getitem__


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            for group in file.iter_batches():
                yield from group.to_pylist()
        return
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                guarded = {name: csv_text(row[name]) for name in GUARDS if row.get(name)}
                yield row | guarded
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}") from None


def _time(value: Any) -> int:
    return to_micros(
        value if isinstance(value, datetime) else datetime.fromisoformat(value), LATEST
    )
