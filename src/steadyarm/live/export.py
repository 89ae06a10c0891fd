"""Exports of live experiments: the log as CSV or Parquet, and a description beside it.

The columns are those that `analyze` reads; if the experiment has metrics a further one has all
events, as JSON. The description is JSON with the experiment's record, its segments with their
sums, audit entries and corrections. `read_export` reads it back.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from datetime import datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from zipfile import ZIP_DEFLATED, ZipFile

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.estimators import is_one_hot
from steadyarm.segments import Segment
from steadyarm.storages.counting import Metrics
from steadyarm.storages.records import (
    AuditEntry,
    Correction,
    DaySums,
    EarlySums,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Tally,
    Trace,
    id_of,
    place_of,
    to_datetime,
)
from steadyarm.validation import check_choice, whole_number
from steadyarm.wording import csv_cell

if TYPE_CHECKING:
    from steadyarm.live.experiment import Experiment

READ = ("timestamp", "unit", "arm", "probability", "reward", "segment", "block")  # by analyze
GUARDS = ("unit", "arm")  # texts that users chose; in CSV files they are guarded against formulas
COLUMNS = (*READ, "position", "policy_version", "id", "rewarded_at", "received_at", "excluded")
TIMES = ("timestamp", "rewarded_at", "received_at")
FORMAT = 1


def segment_to(record: SegmentRecord) -> dict[str, Any]:
    """A segment with its allocation and reference, floats to the bit."""
    fields = {name: value for name, value in vars(record).items() if name != "segment"}
    return fields | record.segment.to_dict()


def segment_from(values: Mapping[str, Any]) -> SegmentRecord:
    """The segment that `segment_to` wrote."""
    segment = Segment.from_dict(values).check()
    whole_number(values["rounds"], "rounds", least=1)
    rest = {name: value for name, value in values.items() if name not in segment.to_dict()}
    rest["early"] = EarlySums.read(values["early"])
    return SegmentRecord(segment=segment, **rest)


def description_path(log: Path) -> Path:
    """The path of the description of the experiment of a log."""
    return log.with_name(f"{log.name}.experiment.json")


def export_experiment(experiment: Experiment, path: str | Path) -> Path:
    """Write the log into a .csv or .parquet file, and a description beside it.

    Neither file exists before both are complete.
    """
    path = Path(path)
    description = description_path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InvalidInputError(f"{path} ends with {path.suffix!r}; expected .csv or .parquet.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = [at.with_name(f".{at.name}.{os.getpid()}.tmp") for at in (path, description)]
    test = _read_live(experiment)
    write = csv_chunks if path.suffix == ".csv" else parquet_chunks
    digest = sha256()
    try:
        with temporary[0].open("wb") as file:
            for chunk in write(experiment, test.snapshot):
                digest.update(chunk)
                file.write(chunk)
        described = _describe_log(experiment, test, path.name, digest.hexdigest(), named=True)
        temporary[1].write_text(described, encoding="utf-8")
        os.replace(temporary[0], path)
        os.replace(temporary[1], description)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error}") from None
    finally:
        for file_left in temporary:
            file_left.unlink(missing_ok=True)
    return path


def _read_live(experiment: Experiment) -> ExportedTest:
    """The test as it stands now; its log is written up to this moment."""
    storage, key = experiment.storage, experiment.key
    trace = storage.trace(key, experiment.name)
    snapshot = storage.snapshot(key, everything=True)
    now, days, series = experiment.now(), storage.days(key), storage.series(key)
    return ExportedTest(snapshot, days, series, trace, now)


def _describe_log(
    experiment: Experiment, test: ExportedTest, log: str, digest: str, named: bool
) -> str:
    """The description of a log that was written; it must not have been corrected meanwhile.

    named : whether the audit entries say who did what and why, which not every reader may know
    """
    if experiment.storage.trace(experiment.key, experiment.name) != test.trace:
        raise InvalidInputError(
            "the experiment was corrected while it was exported; export it again."
        )
    if not named:
        entries = tuple(map(_unnamed, test.trace.entries))
        test = replace(test, trace=replace(test.trace, entries=entries))
    return json.dumps({"log": log, "sha256": digest} | _describe(test))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _unnamed(entry: AuditEntry) -> AuditEntry:
    """The entry without its author, and without details but those of a test that stopped itself."""
    itself = entry.action == "experiment.stopped" and "look" in entry.detail
    return replace(entry, author="", detail=entry.detail if itself else {})


def csv_chunks(experiment: Experiment, until: Snapshot | None = None) -> Iterator[bytes]:
    """The log as a CSV file, some thousand lines at a time.

    until : leave out assignments made after this
    """
    yield (",".join(_columns(experiment)) + "\r\n").encode()
    for rows in _tables(experiment, until):
        for name in GUARDS:
            rows[name] = [csv_cell(text) for text in rows[name]]
        for name in TIMES:
            rows[name] = [time and time.isoformat() for time in rows[name]]
        text = io.StringIO(newline="")
        csv.writer(text).writerows(zip(*rows.values(), strict=True))
        yield text.getvalue().encode()


def parquet_chunks(experiment: Experiment, until: Snapshot | None = None) -> Iterator[bytes]:
    """The log as a Parquet file, row group by row group; `until` is as for `csv_chunks`."""
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
    written = _ChunkFile()
    with parquet.ParquetWriter(written, schema) as writer:
        for rows in _tables(experiment, until):
            writer.write_table(pa.table(rows, schema=schema))
            yield written.take()
    yield written.take()


def zip_chunks(experiment: Experiment) -> Iterator[bytes]:
    """The log as CSV and its description, in one file for everybody who may read results."""
    test, written, digest = _read_live(experiment), _ChunkFile(), sha256()
    name = f"{experiment.name}.csv"
    with ZipFile(written, "w", ZIP_DEFLATED) as file:
        with file.open(name, "w", force_zip64=True) as log:
            for chunk in csv_chunks(experiment, test.snapshot):
                digest.update(chunk)
                log.write(chunk)
                yield written.take()
        described = _describe_log(experiment, test, name, digest.hexdigest(), named=False)
        file.writestr(description_path(Path(name)).name, described)
    yield written.take()


class _ChunkFile(io.RawIOBase):
    """A file that gives what was written since the last time, and keeps nothing."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


@dataclass(frozen=True)
class ExportedTest:
    """A test as it stood when it was exported.

    Attributes
    ----------
    snapshot, days, series, trace : as the methods of `Storage` give them
    exported : when that was
    """

    snapshot: Snapshot
    days: tuple[DaySums, ...]
    series: tuple[SeriesSums, ...]
    trace: Trace
    exported: int


def read_export(path: str | Path) -> ExportedTest:
    """Read the test that `export_experiment` wrote; its log must not have changed since."""
    path = Path(path)
    data = _read_json(description_path(path))
    if data.get("sha256") != _digest(path):
        raise InvalidInputError(
            f"{path} was changed after it was exported, or its description belongs to another "
            "file; export the experiment again."
        )
    return _read_test(description_path(path), data)


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


def _tables(experiment: Experiment, until: Snapshot | None) -> Iterator[dict[str, list[Any]]]:
    """The log as columns, page by page; times are datetimes."""
    columns, arms = _columns(experiment), experiment.arms
    covariates = _covariates(experiment.storage.find(experiment.name).config)
    ends = None if until is None else {s.index: s.used for s, _ in until.segments}
    segments: dict[int, dict[str, Any]] = {}
    for page in experiment.storage.pages(experiment.key):
        if ends is not None:
            page = [row for row in page if _position(row) < ends.get(_segment(row), 0)]
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


def _describe(test: ExportedTest) -> dict[str, Any]:
    snapshot = test.snapshot
    return {
        "format": FORMAT,
        "exported": test.exported,
        "experiment": {k: v for k, v in asdict(snapshot.experiment).items() if k != "key"},
        "segments": [
            segment_to(record) | {"tally": asdict(tally)} for record, tally in snapshot.segments
        ],
        "corrected": snapshot.corrected,
        "unmatched": snapshot.unmatched,
        "days": [asdict(part) for part in test.days],
        "series": [asdict(part) for part in test.series],
        "audit": [asdict(entry) for entry in test.trace.entries],
        "corrections": [astuple(correction) for correction in test.trace.corrections],
    }


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error}. It holds settings and segments of the exported "
            "experiment; keep it beside the log."
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(
            f"{path} is not the description of an exported experiment; expected the file that "
            "export wrote beside the rows."
        )
    return data


def _read_test(path: Path, data: Mapping[str, Any]) -> ExportedTest:
    try:
        experiment = ExperimentRecord(key=0, **data["experiment"])
        check_choice(experiment.state, "state", get_args(ExperimentState))
        tallies = [Tally(**_freeze(entry.pop("tally"))) for entry in data["segments"]]
        segments = zip(map(segment_from, data["segments"]), tallies, strict=True)
        days = tuple(
            DaySums(**_freeze(part | {"tally": Tally(**_freeze(part["tally"]))}))
            for part in data["days"]
        )
        series = tuple(SeriesSums(**_freeze(part)) for part in data["series"])
        steering = Metrics.of(experiment.config).steering
        snapshot = Snapshot(
            experiment,
            tuple(segments),
            tuple(data["corrected"]),
            tuple(part for part in series if part.series in steering),
            tuple(data["unmatched"]),
        )
        trace = Trace(
            tuple(AuditEntry(**entry) for entry in data["audit"]),
            tuple(Correction(*correction) for correction in data["corrections"]),
        )
        return ExportedTest(snapshot, days, series, trace, int(data["exported"]))
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{path} is incomplete or damaged: {error!r}; export the experiment again."
        ) from None


def _freeze(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record as JSON has them, with tuples in place of lists."""
    return {k: tuple(value) if isinstance(value, list) else value for k, value in values.items()}
