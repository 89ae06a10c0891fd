"""Segment and SegmentStats: the one idea that policies, simulation and live tests share.

A segment is a run of consecutive rounds during which one allocation over the arms is fixed; its
statistics are sums per arm. Both are written over a batch of independent trials (leading axis n);
a live test is a batch of one. A segment has a column for every arm or, on a large set, for those
that it plays. `columns_between` says what each position of a live segment plays, and `Draws` caches
it in chunks, so that an assignment costs a lookup.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.kernels import block_plays
from steadyarm.validation import check_choice, whole_number

__all__ = [
    "CACHED",
    "Columns",
    "Direction",
    "Draws",
    "Order",
    "Segment",
    "SegmentStats",
    "arms_between",
    "columns_between",
    "compact_columns",
    "count_drawn_together",
]

Order = Literal["iid", "shuffled", "blocks"]
"""How arms are drawn within a segment: "iid" independently in every round, "shuffled" exact
numbers of plays in random order, "blocks" in permuted blocks."""
Direction = Literal["maximize", "minimize"]
"""Whether high or low rewards are wanted."""
PIECES, LEAST_PART = 60, 10  # a live test is cut into parts this short, to see drift
CHUNK = 1024  # positions that have a random stream, unless a block is longer
CACHED = 2**26  # bytes of cached chunks; the most that a test may have to draw together
LENGTHS = 4096  # number of segments whose chunk length is cached
Integers = NDArray[np.int64]
Columns = NDArray[np.unsignedinteger[Any]]  # of as few bytes as they need


@dataclass(frozen=True)
class Segment:
    """An allocation and for how many rounds it holds.

    Attributes
    ----------
    weights : (n, m) probabilities of the arms in any one round, m = K unless `arms` is given
    rounds : (n,) number of rounds; a trial that has ended has 0
    order : "iid" draws every round independently; "shuffled" plays each arm exactly
        ``weights * rounds`` times (whole numbers) in uniformly random order; "blocks" cuts the
        rounds into blocks, in each of which arm k is played ``block * weights[k]`` times, rounded
        up or down at random so that the expectation is exact, in uniformly random order
    block : length of a block; the last one may be cut off
    reference : (n, r) parameter that rewards are compared with, fixed when the segment opens;
        None for zero
    arms : (m,) which arms the columns are, in rising order; None for all of them

    Examples
    --------
    >>> segment = Segment(np.array([[0.75, 0.25]]), np.array([8]), order="blocks", block=4)
    >>> segment.trials, segment.rounds.tolist()
    (1, [8])
    >>> arms_between(segment, seed=1, index=0, start=0, stop=8).tolist()
    [0, 0, 0, 1, 0, 0, 0, 1]
    """

    weights: NDArray[np.float64]
    rounds: NDArray[np.int64]
    order: Order = "iid"
    block: int = 1
    reference: NDArray[np.float64] | None = None
    arms: NDArray[np.int64] | None = None

    @classmethod
    def shuffled(cls, counts: NDArray[np.int64]) -> Segment:
        """The segment that plays each arm exactly `counts` times, (n, K), in random order."""
        rounds = counts.sum(axis=1)
        return cls(counts / np.maximum(rounds, 1)[:, None], rounds, "shuffled")

    @property
    def counts(self) -> NDArray[np.int64]:
        """(n, K) planned plays of each arm: exact if shuffled, expected and rounded if iid."""
        return np.rint(self.weights * self.rounds[:, None]).astype(np.int64)

    @property
    def planned(self) -> NDArray[np.int64]:
        """The input of the kernels: (n, K) counts if shuffled, else (n, 1) rounds."""
        return self.counts if self.order == "shuffled" else self.rounds[:, None]

    @property
    def block_code(self) -> int:
        """The order as the kernels know it: 0 shuffled, 1 independent, else length of a block."""
        return {"shuffled": 0, "iid": 1, "blocks": max(self.block, 2)}[self.order]

    @property
    def trials(self) -> int:
        """The batch size n."""
        return len(self.rounds)

    @property
    def columns(self) -> int:
        """The number of arms with a column."""
        return int(self.weights.shape[1])

    def arm_at(self, column: int) -> int:
        """The arm of a column."""
        return column if self.arms is None else int(self.arms[column])

    def column_of(self, arm: int) -> int:
        """The column of an arm; InvalidInputError if it has none."""
        if self.arms is None:
            return arm
        column = int(np.searchsorted(self.arms, arm))
        if column == self.arms.size or self.arms[column] != arm:
            raise InvalidInputError(f"the segment does not play arm {arm}.")
        return column

    def to_dict(self) -> dict[str, Any]:
        """A batch of one as numbers, texts and lists; floats keep their bits in JSON.

        Session files, exports, leases and databases all store a segment in this form.
        """
        return {
            "arms": None if self.arms is None else self.arms.tolist(),
            "weights": self.weights[0].tolist(),
            "rounds": int(self.rounds[0]),
            "order": self.order,
            "block": self.block,
            "reference": None if self.reference is None else self.reference.tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Segment:
        """The segment that `to_dict` wrote; other keys of the mapping are ignored.

        Weights and reference may have their leading axis of one, or lack it.

        Parameters
        ----------
        data : the result of `to_dict`

        Returns
        -------
        Segment

        Examples
        --------
        >>> half = Segment(np.array([[0.5, 0.5]]), np.array([6]), "blocks", block=2)
        >>> Segment.from_dict(half.to_dict()).weights.tolist()
        [[0.5, 0.5]]
        """
        check_choice(data["order"], "order", get_args(Order))
        arms, reference = data.get("arms"), data.get("reference")
        if arms is not None:
            arms = np.array([whole_number(arm, "an arm") for arm in arms], dtype=np.int64)
        if reference is not None:
            reference = np.array(reference, dtype=np.float64).reshape(1, -1)
        return cls(
            np.array(data["weights"], dtype=np.float64).reshape(1, -1),
            np.array([whole_number(data["rounds"], "rounds")]),
            data["order"],
            whole_number(data["block"], "block", least=1),
            reference,
            arms,
        )

    def trial(self, i: int) -> Segment:
        """Trial i alone, as a batch of one."""
        one = slice(i, i + 1)
        reference = None if self.reference is None else self.reference[one]
        return replace(
            self, weights=self.weights[one], rounds=self.rounds[one], reference=reference
        )

    def dense(self, arms: int) -> Segment:
        """The same with a column for every one of so many arms."""
        if self.arms is None:
            return self
        weights = np.zeros((self.trials, arms))
        weights[:, self.arms] = self.weights
        return replace(self, weights=weights, arms=None)

    def check(self, arms: int | None = None) -> Segment:
        """The segment itself, if it is a proper one; for segments that anybody's code made.

        arms : size of the arm set; None if it is not known
        """
        if self.arms is not None:
            _check_arms(self.arms, arms)
        elif arms is None:
            arms = self.columns
        shape = (self.trials, arms if self.arms is None else len(self.arms))
        if self.weights.shape != shape or not np.issubdtype(self.rounds.dtype, np.integer):
            raise InvalidInputError(
                f"the policy's segment has weights of shape {self.weights.shape} and rounds of "
                f"type {self.rounds.dtype}; expected shape {shape} and whole numbers."
            )
        total = self.weights.sum(axis=1)
        proper = (self.weights >= 0).all(axis=1) & (np.abs(total - 1) < 1e-6)  # False for nan
        if not (proper | (self.rounds == 0)).all() or (self.rounds < 0).any():
            raise InvalidInputError(
                "the policy's segment has weights that are no probabilities (negative, nan or "
                f"not summing to one: sums from {total.min():g} to {total.max():g}) or a negative "
                "number of rounds; run steadyarm.testing.policies on the policy."
            )
        if self.order == "shuffled" and (self.counts.sum(axis=1) != self.rounds).any():
            raise InvalidInputError(
                "the policy's segment is shuffled, but its weights times its rounds are no whole "
                "numbers that sum to the rounds; make it with Segment.shuffled(counts), or use "
                'order="blocks".'
            )
        return self

    def check_within(self, start: NDArray[np.int64], budget: int) -> None:
        """Refuse to play beyond the budget, from rounds `start` (n,) on."""
        if (start + self.rounds > budget).any():
            raise InvalidInputError(
                f"the segment ends in round {int((start + self.rounds).max())}, but the budget "
                f"is {budget}; a policy must keep its budget."
            )

    def lasting(self, rounds: int) -> Segment:
        """The same allocation over another number of rounds.

        A shuffled segment holds its exact numbers of plays only as a whole. Over fewer rounds it
        is the beginning of one block of its own length, so that each play is as likely to be left
        out as any other; over more rounds it is repeated block by block.

        Examples
        --------
        >>> plan = Segment.shuffled(np.array([[3, 1]]))
        >>> part = plan.lasting(2)
        >>> part.order, part.block, part.weights.tolist(), part.rounds.tolist()
        ('blocks', 4, [[0.75, 0.25]], [2])
        """
        segment = self if (self.rounds == rounds).all() else self.in_blocks()
        return replace(segment, rounds=np.full(self.trials, rounds, dtype=np.int64))

    def in_blocks(self) -> Segment:
        """A shuffled segment as one block of its own length; any other segment as it is.

        Both play the same numbers of each arm in uniformly random order. The block remains valid
        when its rounds or weights are changed, which a shuffled segment does not.
        """
        if self.order != "shuffled":
            return self
        lengths = np.unique(self.rounds)
        if lengths.size != 1 or lengths[0] < 1:
            raise InvalidInputError(
                f"the shuffled segment has {lengths.tolist()} rounds in its trials; only a segment "
                "of one length can be cut or continued. Take one trial with Segment.trial(i)."
            )
        return replace(self, order="blocks", block=int(lengths[0]))

    def part_length(self, budget: int, pieces: int = PIECES) -> int:
        """The length of parts of a live test, in whole blocks: about a sixtieth of the budget.

        Parameters
        ----------
        budget : rounds of the test
        pieces : into how many parts a whole test would be cut

        Returns
        -------
        int : a number of rounds
        """
        block = self.block if self.order == "blocks" else 1
        return block * max(1, round(max(LEAST_PART, budget / pieces) / block))

    def parts(self, budget: int, pieces: int = PIECES) -> Iterator[Segment]:
        """The segment in parts of about equal length, in whole blocks: their sums show drift.

        A shuffled segment stays whole, since its parts would not have its exact numbers of plays.

        Parameters
        ----------
        budget : rounds of the test
        pieces : into how many parts a whole test would be cut

        Examples
        --------
        >>> long = Segment(np.array([[0.5, 0.5]]), np.array([100]), order="blocks", block=10)
        >>> [int(part.rounds[0]) for part in long.parts(budget=2400)]
        [40, 30, 30]
        """
        if self.order == "shuffled":
            yield self
            return
        block = self.block if self.order == "blocks" else 1
        blocks = -(-self.rounds // block)
        count = int(-(-blocks.max() * block // self.part_length(budget, pieces)))
        begin = np.zeros_like(self.rounds)
        for i in range(1, count + 1):
            end = np.minimum(-(-blocks * i // count) * block, self.rounds)
            yield replace(self, rounds=end - begin)
            begin = end

    def cut_after(self, used: int) -> Segment:
        """The segment that ends with the block in which `used` positions end; the first at least.

        It must not be shuffled.
        """
        block = self.block if self.order == "blocks" else 1
        return self.lasting(min(int(self.rounds[0]), -(-max(used, 1) // block) * block))

    def continue_blocks(self, most: int) -> Segment | None:
        """The segment that goes on with the same allocation over at most `most` rounds.

        A shuffled segment goes on in whole repetitions, which keep its exact numbers of plays;
        None if not even one fits.
        """
        if self.order != "shuffled":
            return self.lasting(most)
        length = int(self.rounds[0])
        whole = most // length * length
        return replace(self.in_blocks(), rounds=np.array([whole])) if whole else None


@dataclass(frozen=True)
class SegmentStats:
    """The rewards of a segment: sums per arm, which can be added and come in any order.

    Attributes
    ----------
    counts : (n, K) how often each arm was played
    sums : (n, K) sum of its rewards
    squares : (n, K) sum of its squared rewards, or None without standard errors

    Examples
    --------
    >>> first = SegmentStats(np.array([[2, 1]]), np.array([[1.0, 1.0]]))
    >>> second = SegmentStats(np.array([[0, 3]]), np.array([[0.0, 2.0]]))
    >>> total = first + second
    >>> total.counts.tolist(), total.sums.tolist()
    ([[2, 4]], [[1.0, 3.0]])
    """

    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    squares: NDArray[np.float64] | None = None

    @classmethod
    def empty(cls, trials: int, arms: int) -> SegmentStats:
        """Nothing played yet.

        Parameters
        ----------
        trials : n, number of trials
        arms : K, number of arms

        Returns
        -------
        SegmentStats : all zero, with squares
        """
        shape = (trials, arms)
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape))

    def __add__(self, other: SegmentStats) -> SegmentStats:
        squares = (
            None if self.squares is None or other.squares is None else self.squares + other.squares
        )
        return SegmentStats(self.counts + other.counts, self.sums + other.sums, squares)

    def negate(self) -> SegmentStats:
        """The statistics of the same plays with every reward's sign turned."""
        return replace(self, sums=-self.sums)


def arms_between(
    segment: Segment, seed: int, index: int, start: int, stop: int
) -> NDArray[np.int64]:
    """Arms played at positions start..stop-1 of a live segment: see `columns_between`.

    Parameters
    ----------
    segment : a live segment, which is a batch of one
    seed : the seed of the test
    index : number of the segment in its test, from 0
    start, stop : range of positions

    Returns
    -------
    (stop - start,) indices of arms

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([6]))
    >>> arms_between(fair, seed=7, index=0, start=0, stop=6).tolist()
    [0, 1, 0, 0, 0, 0]
    """
    columns = columns_between(segment, seed, index, start, stop)
    return columns if segment.arms is None else segment.arms[columns]


def columns_between(
    segment: Segment, seed: int, index: int, start: int, stop: int
) -> NDArray[np.int64]:
    """Columns of the arms played at positions start..stop-1 of a live segment (a batch of one).

    A pure function of (seed, index of the segment in its test, position): the whole test can be
    replayed from its seed, and any range of positions can be drawn without those before it.

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([6]))
    >>> columns_between(fair, seed=7, index=0, start=0, stop=6).tolist()
    [0, 1, 0, 0, 0, 0]
    >>> columns_between(fair, seed=7, index=0, start=1, stop=3).tolist()
    [1, 0]
    """
    return compact_columns(segment, seed, index, start, stop).astype(np.int64)


def compact_columns(segment: Segment, seed: int, index: int, start: int, stop: int) -> Columns:
    """The same in the smallest whole numbers that hold a column; an array of its own, no view."""
    if segment.trials != 1:
        raise InvalidInputError(
            f"the segment is a batch of {segment.trials} trials; a live segment is a batch of 1."
        )
    kind = np.min_scalar_type(segment.columns - 1)
    if segment.order == "blocks":
        length = count_drawn_together(segment)
        parts = [
            _blocks(segment, seed, index, group)[max(start - group * length, 0) :]
            for group in range(start // length, max(-(-stop // length), start // length + 1))
        ]
        return np.concatenate(parts)[: max(stop - start, 0)].astype(kind)
    key = np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(2, np.uint64)
    if segment.order == "shuffled":
        planned = np.repeat(np.arange(segment.columns, dtype=kind), segment.counts[0])
        np.random.Generator(np.random.Philox(key=key)).shuffle(planned)
        return planned if len(planned) == stop - start else planned[start:stop].copy()
    # Philox makes four numbers per step of its counter: jump to start's step, drop those before it.
    step, skip = divmod(start, 4)
    generator = np.random.Generator(np.random.Philox(key=key, counter=step))
    uniform = generator.random(skip + stop - start)[skip:]
    cumulative = np.cumsum(segment.weights[0])
    arms = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    last = np.flatnonzero(segment.weights[0])[-1]  # rounding may point beyond the last arm
    columns: Columns = np.minimum(arms, last).astype(kind)
    return columns


def count_drawn_together(segment: Segment) -> int:
    """The number of positions of a live segment that share one random stream.

    Those of all rounds where they are shuffled; those of some whole blocks.
    """
    if segment.order == "shuffled":
        return int(segment.rounds[0])
    return segment.block * max(CHUNK // segment.block, 1) if segment.order == "blocks" else 1


def _blocks(segment: Segment, seed: int, index: int, group: int) -> Integers:
    """Columns of all positions of a group of blocks."""
    length = segment.block
    place = np.random.SeedSequence(seed, spawn_key=(index, group))
    rng = np.random.Generator(np.random.Philox(place))
    begin = rng.random(count_drawn_together(segment) // length)
    plays = block_plays(segment.weights, length, begin[:, None])
    columns = np.tile(np.arange(segment.columns), len(begin))
    drawn = np.repeat(columns, plays.ravel()).reshape(len(begin), length)
    return rng.permuted(drawn, axis=1).ravel()


def _check_arms(arms: NDArray[np.int64], count: int | None) -> None:
    rising = arms.ndim == 1 and bool((np.diff(arms) > 0).all())
    if not rising or not arms.size or arms[0] < 0 or (count is not None and arms[-1] >= count):
        largest = "" if count is None else f" to {count - 1}"
        raise InvalidInputError(
            f"the policy's segment plays arms that are no rising indices from 0{largest}."
        )


class _Chunk(NamedTuple):
    """Columns of positions start..start+len-1, and the segment whose columns they are."""

    columns: Columns
    segment: Segment
    start: int

    @property
    def size(self) -> int:
        """Bytes, with those of the allocation, although the chunks of a segment share it."""
        return self.columns.nbytes + self.segment.weights.nbytes


class Draws:
    """Arms and probabilities of positions; allocations never change, so they are read once.

    A superseded segment only gets shorter, so its draws stay valid. The least recently used chunk
    is dropped first, so that memory does not grow with the budget.

    Attributes
    ----------
    kept : bytes of all cached chunks, at most CACHED unless a single one has more
    """

    def __init__(self) -> None:
        self.kept = 0
        self._chunks: OrderedDict[tuple[int, int, int], _Chunk] = OrderedDict()
        self._lengths: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._lock = Lock()

    def at(
        self, key: int, seed: int, places: Iterable[tuple[int, int]], read: Callable[[int], Segment]
    ) -> list[tuple[int, float]]:
        """Arm and probability of each (segment, position); `read` returns segments not cached."""
        found = []
        at, start, stop = -1, 0, 0
        for index, position in places:
            if at != index or not start <= position < stop:  # mostly they are consecutive
                columns, segment, start = self._around(key, seed, index, position, read)
                at, stop = index, start + len(columns)
            column = int(columns[position - start])
            found.append((segment.arm_at(column), float(segment.weights[0, column])))
        return found

    def _around(
        self, key: int, seed: int, index: int, position: int, read: Callable[[int], Segment]
    ) -> _Chunk:
        with self._lock:
            if known := self._lengths.get((key, index)):
                place = key, index, position // known
                if place in self._chunks:
                    self._chunks.move_to_end(place)
                    return self._chunks[place]
        segment = read(index)
        length = max(count_drawn_together(segment), CHUNK)
        start = position // length * length
        stop = min(start + length, int(segment.rounds[0]))
        chunk = _Chunk(compact_columns(segment, seed, index, start, stop), segment, start)
        with self._lock:
            self._keep((key, index), length, start // length, chunk)
        return chunk

    def _keep(self, whose: tuple[int, int], length: int, number: int, chunk: _Chunk) -> None:
        self._lengths[whose] = length
        self._lengths.move_to_end(whose)
        if len(self._lengths) > LENGTHS:  # its chunks are not found any more, and expire
            self._lengths.popitem(last=False)
        place = (*whose, number)
        if place not in self._chunks:  # another thread may have drawn it meanwhile
            self._chunks[place] = chunk
            self.kept += chunk.size
        while self.kept > CACHED and len(self._chunks) > 1:
            self.kept -= self._chunks.popitem(last=False)[1].size
