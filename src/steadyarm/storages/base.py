"""Storage: where live experiments are kept. The contract, for every backend.

Every method is one transaction: when it returns, what it says has happened is on disk (as far as
the backend has one); when it raises, nothing has. Any number of threads and processes may call at
once. `steadyarm.testing.storages` tests all of what follows on any backend.

**Places.** A place is a position in a segment. The arm of a place is a pure function of the
experiment's seed, the segment's index and the position; a storage stores it, never chooses it. A
segment's counter `handed` runs from 0 to its rounds and never goes back. A position below the
counter is used by exactly one assignment, or leased to one holder, or released; a released one is
handed out before new ones are. The segment opened last gives new positions, all others only those
that were released.

**Leases.** `assign` and `lease` may give positions ahead of their use, so that many workers do not
queue for one counter. A lease that has expired is released by whoever needs positions next, less
what was used of it. Its holder may go on using it until that happens, and learns of it then:
nothing is handed out twice.

**Units.** If the experiment's config says ``"sticky": "unit"`` a unit keeps its first assignment
for ever, also when requests race. Otherwise every request is a new assignment.

**Rewards.** An assignment has one reward; the first one told. Sums per segment and arm are kept
exactly (as fractions), so that they depend on what was told and not on the order. A reward is
counted in its own segment, or refused if that was handed to the policy already. Where a segment
plays some of very many arms (`Segment.arms`) its sums have a column for each of these, in their
order, and the work is that of these few; assignments and the log give the arm itself.

**Days.** The same sums are kept by the day (UTC) of the assignment, whenever its reward comes, with
how long rewards were waited for and how many came too late. A segment's tally is the sum of its
days, exactly. What came too late counts nowhere else, and no decision rests on it.

**Decisions.** Opening, superseding and closing segments happens in `decide` alone, which stores
a whole decision if nothing it rests on has changed, and else nothing: so each segment is handed to
the policy exactly once, whichever process notices first. A decision never supersedes and opens at
once: the new segment would give the new positions, and the rest of the superseded block would be
stranded. Only segments in blocks or drawn independently are superseded; a shuffled one plays its
arms as planned only as a whole. A decision that does either is refused (InvalidInputError).

**Corrections.** A reward is voided or corrected, the assignments of a unit or of a period are
excluded and included again, all with a reason; sums and days follow in the same transaction. What
is excluded counts nowhere but in `assigned` and `excluded` of its tally, and its segment does not
wait for it; a reward that comes for it later is stored, and counts if it is included again. Every
change is an entry of the audit log, with a `Correction` for each assignment that it touched, from
which it can be told how that stood before. Corrections never touch a policy's state: it knows what
it was handed. An erased unit has another name, which is random, in all that is kept; rewards that
are told by the ids of its assignments still count.

**Tokens and sessions.** A storage is open until its first token is added, and closed for ever after
that, also when all tokens are removed: a service on it then lets nobody in. The last token, and the
last one with the scope admin, is removed only by a caller who says that this is meant; of two who
remove the last two at once, one is refused. A session ends when it is removed or expires, or with
its token.

**Audit log.** What operators change is noted in the same transaction: who, when and what. Entries
are only ever appended, and become visible in the order of their ids, so whoever reads on after the
last id seen misses none.

**Time.** Times are whole microseconds since 1970. A storage has one clock, `now`, which all of its
processes share: the database's, or that of the machine. Callers read it and give times; no other
method reads a clock, but for entries of the audit log where no time is given. A reward carries when
it happened (see `records.happened`), which is compared with the time of its assignment by the same
clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steadyarm.storages.changes import Change, Corrected, Correction, Trace
from steadyarm.storages.records import (
    Assigned,
    AuditEntry,
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    Handed,
    Lease,
    LogRow,
    Outcome,
    Progress,
    Pruned,
    SegmentRecord,
    SessionRecord,
    Snapshot,
    Summary,
    Target,
    TokenRecord,
)

__all__ = ["Storage"]


class Storage(ABC):
    """A place where experiments are kept; see the module for what all methods promise."""

    # Experiments

    @abstractmethod
    def create(
        self,
        name: str,
        tag: str,
        state: ExperimentState,
        config: Mapping[str, Any],
        policy_state: Mapping[str, Any],
        now: int,
        *,
        by: str = "",
    ) -> ExperimentRecord:
        """A new experiment without segments; ExperimentExistsError if the name is taken.

        The audit log gets an entry "experiment.created", by `by`.
        """

    @abstractmethod
    def find(self, name: str) -> ExperimentRecord:
        """The experiment of that name; UnknownExperimentError, naming similar ones, if none is."""

    @abstractmethod
    def experiments(self) -> list[ExperimentRecord]:
        """All experiments, in the order of their creation."""

    @abstractmethod
    def summaries(self, only: int | None = None) -> list[Summary]:
        """All experiments in short, in the order of their creation; cheap.

        only : the key of the one that is wanted; an empty list if there is none
        """

    @abstractmethod
    def move(
        self, key: int, to: ExperimentState, *, now: int | None = None, by: str = ""
    ) -> ExperimentRecord:
        """Change the state if `MOVES` allows it, else WrongStateError; where it is, it may stay.

        The audit log gets an entry such as "experiment.paused" if the state changes, by `by`.

        now : when; by default the time by the storage's clock
        """

    @abstractmethod
    def restore(
        self,
        name: str,
        snapshot: Snapshot,
        rows: Iterable[Sequence[LogRow]],
        trace: Trace | None = None,
        *,
        now: int | None = None,
        by: str = "",
    ) -> ExperimentRecord:
        """An experiment as it stood elsewhere: its record (with a new key), all segments, all rows.

        Tallies and days are counted anew from the rows, tallies in the snapshot are ignored; of
        rewards that came too late rows know nothing. Positions below a segment's counter that no
        row uses are released. ExperimentExistsError if the name is taken.

        Entries of its audit log are appended, each marked as imported, and an entry
        "experiment.imported", by `by`; rows and corrections get the new ids of their entries.

        now : when; by default the time by the storage's clock
        """

    # Decisions

    @abstractmethod
    def snapshot(self, key: int, everything: bool = False) -> Snapshot:
        """The experiment with the segments that are open and the last one; or with all of them."""

    @abstractmethod
    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        """How far the open segments are, in the order of their opening; cheap.

        exhausted : only of those whose counter is at its end, for no others can be over; cheaper
        """

    @abstractmethod
    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        """Store a decision made on that version; False, and nothing stored, if things have changed.

        That is: the version is another; a segment to be closed is closed already, or has
        positions that are not assigned, or another tally; `supersede` is not the last segment;
        the index of `opened` is not the next one.
        """

    # Traffic

    @abstractmethod
    def assign(
        self,
        key: int,
        units: Sequence[str],
        held: Sequence[Lease] = (),
        ahead: int = 0,
        *,
        expires: int,
        now: int,
    ) -> Handed:
        """Give every unit its assignment, an old one or a new one.

        New positions come from the leases `held` by the caller, then from those released, then
        from the counter; up to `ahead` more of the counter's are leased to the caller if new ones
        are taken, as far as `records.room_ahead` allows. Leases
        in `held` that were released meanwhile are not used. Where positions run out the unit
        gets None: open another segment and ask again. WrongStateError if new assignments are
        needed and the experiment is not running. A unit named twice in one call of a sticky
        experiment gets one assignment, new only the first time.
        """

    @abstractmethod
    def lease(self, key: int, wanted: int, *, expires: int, now: int) -> tuple[Lease, ...]:
        """Up to that many positions of the last segment and of released ones, for local use.

        Nothing if positions ran out; WrongStateError if the experiment is not running.
        """

    @abstractmethod
    def report(
        self, key: int, lease: int, used: Sequence[tuple[int, str, int]], now: int
    ) -> tuple[Assigned | None, ...]:
        """Store what was handed out from a lease: position, unit and time of each.

        Gives the assignment that counts for each: the reported one; or, if the unit has another,
        that one (not new), and the position stays with the lease; or None if the position is not
        the lease's any more. Reporting the same again changes nothing, up to a day after the
        lease's end. WrongStateError if the experiment is archived; in any other state what was
        handed out in time counts.
        """

    @abstractmethod
    def release(self, key: int, leases: Iterable[int]) -> int:
        """Give back what is left of leases, by their ids; the number of positions released."""

    @abstractmethod
    def reward(
        self,
        key: int,
        rewards: Sequence[Event],
        window: int | None,
        now: int,
        grace: int = 0,
    ) -> tuple[Outcome, ...]:
        """Count rewards of targets (units only if they are sticky), one outcome each.

        WrongStateError if the experiment is archived.

        window : microseconds after an assignment in which its reward must happen; None for ever
        grace : microseconds after its window in which the reward may still arrive
        """

    # Corrections

    @abstractmethod
    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        """Correct what is stored, as the change says; see the module, and `Change`.

        UnknownAssignmentError if there is no such assignment or unit; InvalidInputError if nothing
        would change, or a period lies in the future; WrongStateError if the experiment is
        archived, unless a unit is erased.
        """

    @abstractmethod
    def corrections(
        self, key: int, after: tuple[int, int] = (0, -1), most: int = 10_000
    ) -> list[Correction]:
        """What was corrected, assignment by assignment, in the order of entry and number.

        after : entry and number of the last one seen
        """

    # Reading

    @abstractmethod
    def days(self, key: int) -> tuple[DaySums, ...]:
        """Sums by segment and day, in that order, without days on which nothing was handed out."""

    @abstractmethod
    def log(self, key: int, after: int = -1, most: int = 10_000) -> list[LogRow]:
        """The next assignments after a number, in the order of numbers, with their rewards."""

    @abstractmethod
    def segments(self, key: int, indices: Iterable[int]) -> dict[int, SegmentRecord]:
        """Segments by their index."""

    @abstractmethod
    def find_assignments(self, key: int, targets: Sequence[Target]) -> list[LogRow | None]:
        """Assignments of targets (units only if they are sticky); None for those unknown."""

    @abstractmethod
    def leases(self, key: int) -> tuple[Lease, ...]:
        """Leases that are out, expired or not; without what was released."""

    # Tokens of the service, and sessions of people

    @abstractmethod
    def closed(self) -> bool:
        """Whether there is a token or has ever been one."""

    @abstractmethod
    def add_token(self, token: TokenRecord, *, by: str = "") -> None:
        """Keep a token and close the storage; InvalidInputError if the name is taken.

        The audit log gets an entry "token.created" of the token's time, by `by`.
        """

    @abstractmethod
    def tokens(self) -> list[TokenRecord]:
        """All tokens, in the order of their creation."""

    @abstractmethod
    def remove_token(
        self, name: str, *, now: int, by: str = "", lock_out: bool = False
    ) -> TokenRecord:
        """Forget a token and end its sessions; what was kept of it.

        InvalidInputError if there is none of that name; or if no token would be left, or none with
        the scope admin where there was one, unless `lock_out` is true. The audit log gets an entry
        "token.removed", by `by`.
        """

    @abstractmethod
    def add_session(self, session: SessionRecord) -> None:
        """Keep a session, and forget those that have expired when it was created.

        InvalidInputError if there is no token with the session's hash.
        """

    @abstractmethod
    def find_session(self, id: str, now: int) -> SessionRecord | None:
        """The session with the hash of that id; None if it has ended or expired."""

    @abstractmethod
    def remove_session(self, id: str) -> None:
        """End a session, if there is one with the hash of that id."""

    # The audit log

    @abstractmethod
    def audit(
        self, after: int = 0, most: int = 10_000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """The next entries of the audit log after an id, in the order of their ids.

        experiment : only those of the experiment of that name
        """

    # The storage itself

    @abstractmethod
    def now(self) -> int:
        """The time by the storage's clock, whatever the clock of this process says; cheap."""

    @abstractmethod
    def check(self) -> None:
        """Return if the storage takes durable writes, raise StorageError if not.

        Proves it by a write, at most once a second: what it has found is said again in between.
        Ends within three seconds.
        """

    @abstractmethod
    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> Pruned:
        """Give expired leases back, and remove what nobody needs any more.

        That is: leases that ended more than a day ago and those of archived experiments, and
        expired sessions. Not one transaction, but many: traffic goes on meanwhile, and what an
        interrupted call has left the next one removes.

        archived_before : a time; experiments that were archived before it are deleted with all
            that belongs to them, except the audit log
        dry : only say which experiments would be deleted
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections; the storage is not used after that."""
