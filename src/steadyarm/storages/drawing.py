"""Draws: the arms of places, drawn in chunks and kept, so that an assignment costs a lookup."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from steadyarm.segments import Segment, columns_between
from steadyarm.storages.records import SegmentRecord, place_of

__all__ = ["Draws"]

CHUNK, KEPT = 1024, 256  # places drawn at a time, and chunks kept

WHOLE = -1  # the chunk of a segment that is drawn at once
Chunk = tuple[NDArray[np.int64], Segment, int]  # columns, their allocation, position of the first


class Draws:
    """Arms and probabilities of places; allocations never change, so they are read once.

    A superseded segment only gets shorter: what was drawn of it stays right.
    """

    def __init__(self) -> None:
        self._chunks: OrderedDict[tuple[int, int, int], Chunk] = OrderedDict()
        self._lock = Lock()

    def places(
        self,
        key: int,
        seed: int,
        numbers: Iterable[int],
        read: Callable[[int], SegmentRecord],
    ) -> list[tuple[int, float]]:
        """Arm and probability of every place; `read` gives segments that are not known yet."""
        found = []
        at: tuple[int, int] | None = None
        for number in numbers:
            index, position = place_of(number)
            if at != (index, position // CHUNK):  # mostly they follow each other
                at = index, position // CHUNK
                columns, segment, start = self._around(key, seed, index, position, read)
            column = int(columns[position - start])
            found.append((segment.arm_at(column), float(segment.weights[0, column])))
        return found

    def _around(
        self, key: int, seed: int, index: int, position: int, read: Callable[[int], SegmentRecord]
    ) -> Chunk:
        place, whole = (key, index, position // CHUNK), (key, index, WHOLE)
        with self._lock:
            for known in (place, whole):
                if known in self._chunks:
                    self._chunks.move_to_end(known)
                    return self._chunks[known]
        segment = read(index).segment
        rounds = int(segment.rounds[0])
        # A shuffled segment is drawn as a whole.
        shuffled = segment.order == "shuffled"
        start, stop = (0, rounds) if shuffled else _bounds(position, rounds)
        chunk = columns_between(segment, seed, index, start, stop), segment, start
        with self._lock:
            self._chunks[whole if shuffled else place] = chunk
            if len(self._chunks) > KEPT:
                self._chunks.popitem(last=False)
        return chunk


def _bounds(position: int, rounds: int) -> tuple[int, int]:
    start = position // CHUNK * CHUNK
    return start, min(start + CHUNK, rounds)
