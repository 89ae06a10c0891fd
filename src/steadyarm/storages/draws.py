"""Draws: the arms of positions, drawn in chunks and cached: an assignment costs a lookup."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import NamedTuple

from steadyarm.segments import Columns, Segment, compact_columns, drawn_together
from steadyarm.storages.records import SegmentRecord, place_of

CHUNK = 1024  # positions drawn at a time, unless more of them can only be drawn together
KEPT = 2**26  # bytes of cached chunks; the most that a test may have to draw together
SEGMENTS = 4096  # number of segments whose chunk length is cached


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
    kept : bytes of all cached chunks, at most KEPT unless a single one has more
    """

    def __init__(self) -> None:
        self.kept = 0
        self._chunks: OrderedDict[tuple[int, int, int], _Chunk] = OrderedDict()
        self._lengths: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._lock = Lock()

    def places(
        self, key: int, seed: int, numbers: Iterable[int], read: Callable[[int], SegmentRecord]
    ) -> list[tuple[int, float]]:
        """Arm and probability of each number; `read` returns segments that are not cached."""
        found = []
        at, start, stop = -1, 0, 0
        for number in numbers:
            index, position = place_of(number)
            if at != index or not start <= position < stop:  # mostly they are consecutive
                columns, segment, start = self._around(key, seed, index, position, read)
                at, stop = index, start + len(columns)
            column = int(columns[position - start])
            found.append((segment.arm_at(column), float(segment.weights[0, column])))
        return found

    def _around(
        self, key: int, seed: int, index: int, position: int, read: Callable[[int], SegmentRecord]
    ) -> _Chunk:
        with self._lock:
            if known := self._lengths.get((key, index)):
                place = key, index, position // known
                if place in self._chunks:
                    self._chunks.move_to_end(place)
                    return self._chunks[place]
        segment = read(index).segment
        together = drawn_together(segment)
        length = -(-CHUNK // together) * together  # whole blocks
        start = position // length * length
        stop = min(start + length, int(segment.rounds[0]))
        chunk = _Chunk(compact_columns(segment, seed, index, start, stop), segment, start)
        with self._lock:
            self._keep((key, index), length, start // length, chunk)
        return chunk

    def _keep(self, whose: tuple[int, int], length: int, number: int, chunk: _Chunk) -> None:
        self._lengths[whose] = length
        self._lengths.move_to_end(whose)
        if len(self._lengths) > SEGMENTS:  # its chunks are not found any more, and expire
            self._lengths.popitem(last=False)
        place = (*whose, number)
        if place not in self._chunks:  # another thread may have drawn it meanwhile
            self._chunks[place] = chunk
            self.kept += chunk.size
        while self.kept > KEPT and len(self._chunks) > 1:
            self.kept -= self._chunks.popitem(last=False)[1].size
