"""Evidence from the sums of a log: by own probability, or by the whole allocation of a row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.faults import Fault
from steadyarm.analysis.log import PREFIX, Log
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import is_one_hot
from steadyarm.files import description_path
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.health import Finding, assignment_finding
from steadyarm.inference.sampling_variance import LoggedSegment
from steadyarm.inference.srm import srm_from_sums
from steadyarm.segments import Direction, Order, Segment, SegmentStats

# Evidence from sums by period and arm, for separate arms: a row needs only its own probability.


Floats = NDArray[np.float64]
SUMS = ("s", "ss", "i0", "i02", "i1", "i2", "w", "w2", "ww")


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums (J, K) by bucket and arm, named as `propensity_sums` does.

    Attributes
    ----------
    buckets : (J,) in order of time
    n, m : (J, K) rows, and rows with a reward
    sums : the other sums by name
    least : (K,) least probability of each arm
    level : (J,) if rewards are adjusted for covariates, the variance of what all arms share of it
    """

    buckets: list[Any]
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    sums: dict[str, Floats]
    least: Floats
    level: Floats | None = None


def tally_rows(rows: list[dict[str, Any]], names: Sequence[str]) -> Tally:
    """Arrays of what a database returned: several rows of a bucket and arm, or none, are fine."""
    buckets = sorted({row["bucket"] for row in rows})
    place = {bucket: j for j, bucket in enumerate(buckets)}
    arm = {name: k for k, name in enumerate(names)}
    shape = (len(buckets), len(names))
    n, m = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    sums = {name: np.zeros(shape) for name in SUMS}
    least = np.ones(len(names))
    for row in rows:
        where = place[row["bucket"]], arm[row["arm"]]
        n[where] += int(row["n"])
        m[where] += int(row["m"])
        for name in SUMS:
            sums[name][where] += float(row[name] or 0.0)
        least[where[1]] = min(least[where[1]], float(row["least"]))
    return Tally(buckets, n, m, sums, least)


def tally_evidence(
    arms: ArmSet,
    tally: Tally,
    period: NDArray[np.int64],
    direction: Direction,
    reference: bool,
) -> Evidence:
    """Scores and their squares, by period.

    A row of arm k has the score v + e_k (r - v_k) / p. Its reference v is the mean reward of each
    arm in earlier buckets, fixed before the row's arm was drawn, so scores stay unbiased. In the
    first bucket it is the mean of all rewards of that bucket, which moves the result by about one
    row's share in all rows.
    """
    J, K = int(period.max()) + 1, arms.size
    rounds, scores = np.zeros((1, J), dtype=np.int64), np.zeros((1, J, K))
    squares, fit = np.zeros((1, J, K, K)), ReferenceFit(arms)
    seen, total = np.zeros(K), np.zeros(K)
    for j, piece in enumerate(period):
        m, s = tally.m[j], tally.sums["s"][j]
        v = fit.to(seen, total, s.sum() / max(m.sum(), 1)) if reference else np.zeros(K)
        i1, i2, w, w2, ww = (tally.sums[name][j] for name in ("i1", "i2", "w", "w2", "ww"))
        c = w - v * i1
        count = int(m.sum())
        rounds[0, piece] += count
        scores[0, piece] += count * v + c
        mixed = np.outer(v, c)
        level = count * np.outer(v, v) + mixed + mixed.T
        squares[0, piece] += level + np.diag(np.maximum(ww - 2 * v * w2 + v**2 * i2, 0.0))
        if tally.level is not None:
            squares[0, piece] += tally.level[j]
        seen, total = seen + m, total + s
    return Evidence(arms, rounds, scores, squares, direction=direction)


def logged_segments(
    tally: Tally, period: NDArray[np.int64], count_missing: bool
) -> list[LoggedSegment]:
    """Rows and rewards by period. Allocations are not known: shares of the rows stand for them."""
    pieces = []
    for j in range(int(period.max()) + 1):
        n, m = tally.n[period == j].sum(axis=0), tally.m[period == j].sum(axis=0)
        segment = Segment((n / max(n.sum(), 1))[None], np.array([n.sum()]))
        pieces.append(LoggedSegment(segment, n[None], None, (m if count_missing else n)[None]))
    return pieces


def assignments_of(names: Sequence[str], tally: Tally, of: str = "visits") -> Finding:
    """Whether the rows of each arm, each standing for 1/p, stand for all rows.

    of : what rows are, for people
    """
    sums, squares = tally.sums["i0"].sum(axis=0), tally.sums["i02"].sum(axis=0)
    counts = tally.n.sum(axis=0)
    test = srm_from_sums(
        names, int(counts.sum()), sums, squares - sums, 1 / tally.least, counts, of
    )
    used = ", and see whether the logged probabilities are those that were used."
    found = assignment_finding(test, used)
    unseen = not (sums > 0).all()
    return replace(found, status="warn") if unseen and found.status == "ok" else found


# What the description beside an exported log says of the test.


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
    description = description_path(Path(source))
    if not description.is_file():
        return None
    from steadyarm.live.export import read_description  # which imports all that storages keep

    try:
        snapshot = read_description(description)[0]
        config = snapshot.experiment.config
        arms = ArmSet.from_dict(config["arms"])
        weights = {
            str(record.index): record.segment.dense(arms.size).weights[0]
            for record, _ in snapshot.segments
        }
        window, grace = config.get("reward_window"), config.get("reward_grace") or 0.0
        return Described(
            Path(source),
            snapshot.experiment.name,
            arms,
            config["direction"],
            int(config["budget"]),
            config.get("control"),
            weights,
            str(config.get("missing") or "fail"),
            None if window is None else float(window) + float(grace),
            snapshot.experiment.state in ("stopped", "archived"),
        )
    except (InvalidInputError, LookupError, TypeError) as error:
        raise InvalidInputError(
            f"{Path(source).name} cannot be read together with the description beside it: {error} "
            "Export the test again, or give the variants (arms, on the command line --arms FILE)."
        ) from None


# Evidence from rows whose whole allocation is known: by segment, or by period and vector.


SUM_TO_ONE = 1e-6
MOST_PIECES = 400  # of evidence; more are put together
KNOWN_ORDER = "in order of the arms or by name"
UNKNOWN_ORDER = (
    "by name, or in order of the arms, which is taken to be that of the alphabet; if it is another "
    "one, give the arms in it (on the command line --arms FILE). A log that SteadyArm exported "
    "needs its description, LOG.experiment.json, beside it instead"
)


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows with one allocation.

    Attributes
    ----------
    order : pieces with a smaller one ended before this one began
    first : time of the first row
    weights : (K,) the allocation
    n, m, s, ss : (K,) rows, rows with reward, sums of rewards and of their squares
    block : length of permuted blocks; 1 if rows were drawn independently
    segment_key : the segment, where the log has segments
    rows : the sums that the piece was made from
    level : if rewards are adjusted for covariates, the variance of what all arms share of it
    listed : whether the rows of each arm count as a random choice of so many of all rows
    """

    order: Any
    first: Any
    weights: Floats
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    s: Floats
    ss: Floats
    block: int = 1
    segment_key: Any = None
    rows: Sequence[Mapping[str, Any]] = ()
    level: float = 0.0
    listed: bool = False

    @property
    def segment(self) -> Segment:
        """The allocation over the rows with a reward."""
        if self.listed:
            total = self.m.sum()
            return Segment((self.m / total)[None], np.array([total]), "shuffled")
        order: Order = "blocks" if self.block > 1 else "iid"
        rounds = np.array([self.m.sum()])
        return Segment(self.weights[None], rounds, order, max(self.block, 1))

    @property
    def stats(self) -> SegmentStats:
        """The sums of the rows with a reward."""
        return SegmentStats(self.m[None], self.s[None], self.ss[None])

    @property
    def logged(self) -> LoggedSegment:
        """What health checks need."""
        segment = replace(self.segment, rounds=np.array([self.n.sum()]))
        return LoggedSegment(segment, self.n[None], None, self.m[None])


def vector_of(
    row: dict[str, Any], arms: ArmSet, shares: Mapping[str, Floats] | None = None
) -> tuple[Floats | None, str]:
    """The allocation that a row of sums has in its keys, or what is wrong with it.

    shares : allocations that are known from elsewhere, by what stands in their place
    """
    names = arms.names
    if "probabilities" in row:
        value = row["probabilities"]
        if shares and value in shares:
            return shares[value], ""
        try:
            value = json.loads(value) if isinstance(value, str) else value
            if isinstance(value, dict):
                unknown = set(value) - set(names)
                if unknown:
                    return None, f"has the arm {sorted(unknown)[0]!r}, which is not one of the test"
                value = [value.get(name, 0.0) for name in names]
            weights = np.array(value, dtype=np.float64)
        except (TypeError, ValueError):
            return None, "is not a list of numbers"
    else:
        values = [row[PREFIX + name] for name in names]
        weights = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    if weights.shape != (len(names),):
        return None, f"has {weights.size} entries for {len(names)} arms"
    if not ((weights >= 0) & (weights <= 1)).all():
        return None, "has an entry that is not between 0 and 1"
    if abs(weights.sum() - 1) > SUM_TO_ONE:
        return None, f"sums to {weights.sum():.6g}, not to 1"
    arm = row["arm"]
    if arm in names and weights[names.index(arm)] <= 0:
        return None, f"gives the row's own arm {arm!r} probability 0: it was never possible"
    if arm in names and row.get("least") is not None:
        own = weights[names.index(arm)]
        if max(own - row["least"], row["largest"] - own) > SUM_TO_ONE:
            other = row["least"] if own - row["least"] > SUM_TO_ONE else row["largest"]
            return None, f"gives the row's arm {own:g}, but its probability is {other:g}"
    return weights / weights.sum(), ""


def vector_arms(log: Log) -> ArmSet | None:
    """The arms that columns p_NAME name, or None."""
    names = [name.removeprefix(PREFIX) for name in log.vector]
    return ArmSet.one_hot(names) if len(names) > 1 and not log.has("probabilities") else None


def check_vector(log: Log, arms: ArmSet) -> None:
    """Columns p_NAME must be there for every arm."""
    lacking = [PREFIX + name for name in arms.names if PREFIX + name not in log.vector]
    if lacking:
        raise InvalidInputError(
            f"{log.name} has no column {', '.join(lacking[:8])}; expected one for every arm."
        )


def vector_fault(row: dict[str, Any], problem: str, order: str) -> Fault:
    """The fault that names the rows with this vector and arm, and says which order is expected."""
    keys = [key for key in row if key == "probabilities" or key.startswith(PREFIX)]

    def where(t: Any) -> Any:
        same = t.arm == row["arm"]
        for key in keys:
            same &= t[key].isnull() if row[key] is None else t[key] == row[key]
        return same

    text = str(row["probabilities"]) if "probabilities" in row else ""
    return Fault(
        f"the probabilities {text[:60]}{' ' if text else ''}{problem}",
        f"expected one probability for every arm, {order}",
        "probabilities",
        where,
    )


def allocation_pieces(
    rows: list[dict[str, Any]],
    arms: ArmSet,
    segments: bool,
    shares: Mapping[str, Floats] | None = None,
    order: str = KNOWN_ORDER,
) -> tuple[list[Piece], list[tuple[Fault, int]]]:
    """Pieces in order of time, and the faults of vectors found on the way.

    shares : allocations that are known from elsewhere, by the segment's number as text, or by what
        stands in the column probabilities
    order : of the entries of vectors, for messages
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    faults: list[tuple[Fault, int]] = []
    vectors: dict[Any, Floats] = {}
    with_vector = bool(rows) and any(k == "probabilities" or k.startswith(PREFIX) for k in rows[0])
    for row in rows:
        key: tuple[Any, ...] = (row["segment"],) if segments else (row["bucket"],)
        if with_vector:
            weights, problem = vector_of(row, arms, shares)
            if weights is None:
                faults.append((vector_fault(row, problem, order), int(row["n"])))
                continue
            key += (tuple(weights),)
            vectors[key] = weights
        groups.setdefault(key, []).append(row)
    if faults:
        return [], faults
    pieces = [
        _piece(key, group, arms, vectors.get(key), segments, shares or {})
        for key, group in groups.items()
    ]
    return sorted(pieces, key=lambda piece: (piece.first, piece.order)), []


def _piece(
    key: Any,
    group: list[dict[str, Any]],
    arms: ArmSet,
    weights: Floats | None,
    segments: bool,
    shares: Mapping[str, Floats],
) -> Piece:
    K = arms.size
    n, m = np.zeros(K, dtype=np.int64), np.zeros(K, dtype=np.int64)
    s, ss, least, largest = np.zeros(K), np.zeros(K), np.full(K, np.inf), np.zeros(K)
    for row in group:
        k = arms.names.index(row["arm"])
        n[k] += int(row["n"])
        m[k] += int(row["m"])
        s[k] += row["s"] or 0.0
        ss[k] += row["ss"] or 0.0
        if weights is None:
            least[k], largest[k] = min(least[k], row["least"]), max(largest[k], row["largest"])
    if weights is None:
        weights = _recovered(key[0], arms, n, least, largest, shares.get(str(key[0])))
    first = min(row["first"] for row in group)
    blocks = {int(row.get("block") or 1) for row in group}
    if len(blocks) > 1 or min(blocks) < 1:
        raise InvalidInputError(
            f"segment {key[0]} has blocks of lengths {sorted(blocks)}; expected one length, or 1 "
            "for independent draws."
        )
    order, name = (first, key[0]) if segments else (key[0], None)
    return Piece(order, first, weights, n, m, s, ss, blocks.pop(), name, group)


class IncompleteAllocationError(InvalidInputError):
    """Not every arm of a segment was seen in it, so that its allocation cannot be put together."""


def _recovered(
    segment: Any,
    arms: ArmSet,
    n: NDArray[np.int64],
    least: Floats,
    largest: Floats,
    known: Floats | None,
) -> Floats:
    """The allocation of a segment from the probabilities of its rows, or the known one."""
    seen = n > 0
    for k in np.flatnonzero(seen & (largest - least > SUM_TO_ONE)).tolist():
        raise InvalidInputError(
            f"segment {segment}: the probability of {arms.names[k]!r} goes from {least[k]:g} to "
            f"{largest[k]:g}; within a segment it must be one. Give every allocation its own "
            "segment, or the whole vector in a column probabilities."
        )
    weights = np.where(seen, largest, 0.0)
    if known is not None:
        for k in np.flatnonzero(seen & (np.abs(weights - known) > SUM_TO_ONE)).tolist():
            raise InvalidInputError(
                f"segment {segment}: the probability of {arms.names[k]!r} is {weights[k]:g} in the "
                f"log, but {known[k]:g} in the description beside it; they do not belong together. "
                "Export the test again, or give the variants (arms, on the command line --arms "
                "FILE)."
            )
        return known
    if abs(weights.sum() - 1) > SUM_TO_ONE:
        unseen = [name for name, there in zip(arms.names, seen, strict=True) if not there]
        raise IncompleteAllocationError(
            f"segment {segment}: the probabilities of the arms seen in it sum to "
            f"{weights.sum():.6g}, not to 1"
            + (f" (not seen: {', '.join(unseen[:8])})" if unseen else "")
            + "; give the whole vector in a column probabilities, or one column p_NAME for every "
            "arm. A log that SteadyArm exported needs its description, LOG.experiment.json, beside "
            "it, and no other arms."
        )
    return np.asarray(weights / weights.sum())


def allocation_evidence(
    arms: ArmSet,
    pieces: list[Piece],
    direction: Direction,
    reference: bool,
    adjusted: bool = False,
) -> tuple[Evidence, list[Piece]]:
    """The evidence of the pieces that have a reward, and which these are.

    The reference is the least-squares fit to earlier pieces where they determine it, and the mean
    reward where they do not, or before there are any.

    adjusted : whether the pieces' rewards are adjusted for covariates
    """
    used, fit = [piece for piece in pieces if piece.m.sum()], ReferenceFit(arms)
    seen, total = np.zeros(arms.size), np.zeros(arms.size)
    played: list[tuple[Segment, SegmentStats]] = []
    waiting: list[Piece] = []
    order, m = None, np.zeros(arms.rank)
    for piece in used:
        if piece.order != order:  # what came before is known now
            for done in waiting:
                seen, total = seen + done.m, total + done.s
            waiting, order = [], piece.order
            if reference:
                m = fit.to(seen, total, piece.s.sum() / piece.m.sum())
        waiting.append(piece)
        segment = replace(piece.segment, reference=m[None] if reference else None)
        played.append((segment, piece.stats))
    binary, levels = None, None
    if adjusted:
        binary, levels = False, [np.array([piece.level]) for piece in used]
    return _gathered(Evidence.from_segments(arms, played, direction, binary, levels)), used


class ReferenceFit:
    """The least-squares fit to earlier rewards where they determine it; else their mean."""

    def __init__(self, arms: ArmSet) -> None:
        self._X = arms.coordinates
        self._separate = is_one_hot(self._X)
        self.flat: Floats = np.ones(arms.size)  # that gives every arm the value one
        if not self._separate:
            flat, *_ = np.linalg.lstsq(self._X, np.ones(arms.size), rcond=None)
            self.flat = np.asarray(flat, dtype=np.float64)

    def to(self, counts: Floats, sums: Floats, default: float) -> Floats:
        """(r,) from the number and sum (K,) of earlier rewards; `default` if there is none."""
        X, seen = self._X, counts.sum()
        common = sums.sum() / seen if seen else default
        if self._separate:
            return np.where(counts > 0, sums / np.maximum(counts, 1), common)
        m = common * self.flat
        gram = (X * counts[:, None]).T @ X
        inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
        return np.asarray(m + inverse @ (X.T @ sums - gram @ m))


def _gathered(evidence: Evidence) -> Evidence:
    """Neighbouring pieces put together until there are at most `MOST_PIECES`."""
    J = evidence.rounds.shape[1]
    if J <= MOST_PIECES:
        return evidence
    starts = (np.arange(MOST_PIECES) * J) // MOST_PIECES

    def add(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, starts, axis=1))

    return replace(
        evidence,
        rounds=np.asarray(np.add.reduceat(evidence.rounds, starts, axis=1)),
        scores=add(evidence.scores),
        squares=add(evidence.squares),
        within=None if evidence.within is None else add(evidence.within),
        weights=None,
        references=None,
    )
