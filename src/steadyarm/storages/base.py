"""Storage: where live experiments are kept. The contract for every backend.

Each method is one transaction: when it returns, its effect is on disk (if the backend has one);
when it raises, it has had no effect. Any number of threads and processes may call at once.
`steadyarm.testing.storages` tests all that follows on any backend.

**Positions.** The arm at a position of a segment is a pure function of the experiment's seed, the
segment's index and the position; a storage stores it, and never chooses it. A segment's counter
`handed` runs from 0 to its rounds and never goes back. A position below the counter is used by
exactly one assignment. Only the segment opened last gives new positions.

**Units.** If the experiment's config says ``"sticky": "unit"`` a unit keeps its first assignment
for ever, even when requests race. Otherwise each request is a new assignment.

**Outside of the test.** What an experiment shows to units that are not part of its test is
JSON-like and means nothing to a storage. `show_outside` sets it if it is still what the caller saw,
so that of several processes one decides. From then on nothing new is assigned, whatever the state.
`assign` and `known` return it.

**Rewards.** An assignment has one reward, the first that was recorded. Sums per segment and arm are
exact fractions, so that they do not depend on the order of rewards. A reward counts in its own
segment, or is refused if the policy has observed that segment already. The sums of a segment that
plays some of very many arms (`Segment.arms`) have one column for each of these arms; assignments
and the log give the arm itself.

**Days.** The same sums are kept by the day (UTC) of the assignment, whenever its reward comes, with
the time that passed until rewards came and the number of rewards that came too late. The tally of a
segment is exactly the sum of its days. Late rewards count nowhere else, and no decision rests on
them.

**Metrics.** Beside its reward an assignment may have values of further metrics, and each value may
be made of several events. The config declares them: "metrics" is a list with "name", "several"
("first", "last", "sum" or "max"), "window" and "grace" (microseconds or null) and "cap" of each;
the one whose "role" is "primary" describes the reward itself, and nothing is late if its "missing"
is "fail". `measure` records events. Each is kept as it was reported and counts once, however often
and in whatever order it comes: an event is known by its key, and a metric with "first" has one
event for each assignment. The value of an assignment is the first event that was recorded, the one
that happened last (of two at the same time the one with the larger key), the largest, or the sum,
which is exact and rounded once; a value above the cap counts as the cap. Where the reward is made
of events or has a cap, the log gives what it counts as, and tallies change by the exact difference
when it does; such a reward has happened when its last event did. No decision rests on further
metrics: their segments are never closed, and a late event is counted with them.

**Covariates.** Metrics whose role is "covariate" are an exception: decisions rest on them, so they
are refused like rewards if the policy has observed their segment, and nobody voids or corrects
them. Snapshots have the sums of their series, and a decision is refused if these have changed.

**Series.** `series` gives the sums of each further metric by segment and day, as `days` does for
the reward, and for each list of names in "products" of the config the sums of the products of these
values, where an assignment has all of them. "reward" names the primary metric there, and in
`measure`; "reward?" in a product is 1 where there is a reward. Assignments without a value are in
no series. An experiment whose config declares no metrics has none, and keeps no events.

**Decisions.** Only `decide` opens, supersedes and closes segments. It stores a whole decision if
nothing that the decision rests on has changed, and nothing otherwise: so the policy observes each
segment exactly once, whichever process notices first. A decision must not supersede one segment and
open another: the new segment would give the new positions, and the rest of the superseded block
would never be assigned. Only segments in blocks or drawn independently are superseded, because a
shuffled one plays its arms as planned only as a whole. Other decisions are refused
(InvalidInputError). An opened segment may rest on rewards of segments that stay open
(`SegmentRecord.early`), which are kept with it as they were read: these may change meanwhile.

**Corrections.** A reward is voided or corrected, the assignments of a unit or of a period are
excluded and included again, all with a reason; sums and days follow in the same transaction. An
excluded assignment counts nowhere but in `assigned` and `excluded` of its tally, and its segment
does not wait for it; a reward that comes for it later is stored, and counts if the assignment is
included again. Each change is an entry of the audit log, with a `Correction` for each assignment
that it touched, which says how that stood before. Corrections never touch a policy's state, which
knows what it has observed. A value that is made of events is corrected as a whole: the new one
stands, what is reported after that is a conflict, and the events stay in the log. If it is voided
its events are removed, and events that are reported after that count. Exclusion concerns all
values of an assignment. An erased unit gets a random name in all tables; rewards that name one
of its assignments still count.

**Tokens and sessions.** A storage is open until its first token is added, and closed for ever after
that, even when all tokens are removed: a service on it then admits nobody. The last token, and the
last one with the scope admin, is removed only if the caller insists; if two callers remove the last
two at once, one is refused. A session ends when it is removed or expires, or with its token.

**Audit log.** Each change by an operator is noted in the same transaction: who, when and what.
Entries are only ever appended, and become visible in the order of their ids, so a reader who goes
on after the last id seen misses none.

**Time.** Times are whole microseconds since 1970. A storage has one clock, `now`, which all of its
processes share: the database's, or that of the machine. Callers read it and give times; no other
method reads a clock, except `restore` for its entry of the audit log. A reward carries the time
when it happened (see `records.happened`), which is compared with the time of its assignment by the
same clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steadyarm.storages.changes import (
    NO_TRACE,
    AuditEntry,
    Change,
    Corrected,
    Correction,
    Pruned,
    SessionRecord,
    TokenRecord,
    Trace,
)
from steadyarm.storages.records import (
    AssignmentResult,
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    Measured,
    Outcome,
    Pages,
    Progress,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Summary,
    Target,
)

if TYPE_CHECKING:
    from steadyarm.storages.webhooks import Webhooks


class Storage(ABC):
    """Where experiments are kept; the module says what all methods guarantee.

    Attributes
    ----------
    in_memory : it belongs to one process, and ends with it
    """

    in_memory = False

    webhooks: Webhooks

    # Experiments

    @abstractmethod
    def create(self, record: ExperimentRecord, *, by: str = "") -> ExperimentRecord:
        """Add an experiment without segments; returns its record with the key that it got.

        ExperimentExistsError if the name is taken. The audit log gets an entry
        "experiment.created", by `by`.
        """

    @abstractmethod
    def find(self, name: str) -> ExperimentRecord:
        """The experiment of that name, or UnknownExperimentError with similar names."""

    @abstractmethod
    def summaries(self, only: int | None = None) -> list[Summary]:
        """Short records of all experiments, in the order of their creation; cheap.

        only : the key of a single experiment; the list is empty if there is none
        """

    @abstractmethod
    def move(
        self,
        key: int,
        to: ExperimentState,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> ExperimentRecord:
        """Change the state as `MOVED` allows it, else WrongStateError; it may stay the same.

        The audit log gets an entry such as "experiment.paused" if the state changes, by `by` and
        with `detail`.
        """

    @abstractmethod
    def show_outside(
        self,
        key: int,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        action: str,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> bool:
        """Set what is shown outside of the test; False if it is not `before`, and then nothing.

        The audit log gets an entry `action`, by `by` and with `detail`.
        """

    @abstractmethod
    def restore(
        self, name: str, snapshot: Snapshot, rows: Pages, trace: Trace = NO_TRACE, *, by: str = ""
    ) -> ExperimentRecord:
        """An experiment as it stood elsewhere: its record with a new key, all segments, all rows.

        Tallies, days and series are counted from the rows, and tallies in the snapshot are ignored;
        rows do not know of rewards and events that came too late. Positions below a segment's
        counter that no row uses are released. ExperimentExistsError if the name is taken.

        The entries of its audit log are appended, each marked as imported, and then an entry
        "experiment.imported", by `by`; rows and corrections get the new ids of their entries.
        """

    # Decisions

    @abstractmethod
    def snapshot(self, key: int, everything: bool = False) -> Snapshot:
        """The experiment with the segments that are open and the last one; or with all of them."""

    @abstractmethod
    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        """How far the open segments have come, in the order of their opening; cheap.

        exhausted : only those whose counter is at its end, since no others can be over; cheaper
        """

    @abstractmethod
    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        """Store a decision made on that version; False if something has changed, and then nothing.

        That is: the version is another; a segment to be closed is closed already, or has
        positions that are not assigned, or another tally, or other sums of covariates; `supersede`
        is not the last segment; the index of `opened` is not the next one.
        """

    # Traffic

    @abstractmethod
    def assign(
        self,
        key: int,
        units: Sequence[str],
        values: Sequence[Mapping[str, float]] = (),
        *,
        now: int,
    ) -> AssignmentResult:
        """The assignment of each unit, an old one or a new one.

        When positions run out, a unit gets None: open another segment and ask again. Units without
        an assignment get None, too, if the experiment is not running or shows something outside of
        its test. A unit named twice in one call of a sticky experiment gets one assignment, new
        only the first time.

        values : attributes and covariates of each unit, by the names of their metrics, which are
            stored with new assignments; empty if no unit has any
        """

    @abstractmethod
    def known(self, key: int, units: Sequence[str]) -> AssignmentResult:
        """The assignments that units have (none if units are not sticky); only reads."""

    @abstractmethod
    def experiments_of(
        self, units: Sequence[str], keys: Sequence[int]
    ) -> tuple[frozenset[int], ...]:
        """The keys, among those given, of the experiments that each unit has an assignment in.

        Experiments whose units are not sticky, and those that do not exist, are never among them.
        One read, at a price that hardly grows with the number of experiments.
        """

    @abstractmethod
    def reward(
        self, key: int, rewards: Sequence[Event], window: int | None, now: int, grace: int = 0
    ) -> tuple[Outcome, ...]:
        """Record rewards of targets (units only if they are sticky), with one outcome each.

        WrongStateError if the experiment is archived.

        window : microseconds after an assignment in which its reward must happen; None for no limit
        grace : microseconds after its window in which the reward may still arrive
        """

    @abstractmethod
    def measure(self, key: int, events: Sequence[Measured], now: int) -> tuple[Outcome, ...]:
        """Record events of metrics, with one outcome each; see the module.

        WrongStateError if the experiment is archived. InvalidInputError, and nothing is recorded,
        if it has no such metric, or an event has no key although there may be several.
        """

    # Corrections

    @abstractmethod
    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        """Make a correction; see the module and `Change`.

        UnknownAssignmentError if there is no such assignment or unit; InvalidInputError if nothing
        would change, or a period lies in the future; WrongStateError if the experiment is
        archived, unless a unit is erased.
        """

    @abstractmethod
    def corrections(
        self, key: int, after: tuple[int, int] = (0, -1), most: int = 10_000
    ) -> list[Correction]:
        """All corrections, assignment by assignment, in the order of entry and number.

        after : entry and number of the last one seen
        """

    # Reading

    @abstractmethod
    def days(self, key: int) -> tuple[DaySums, ...]:
        """Sums by segment and day, in that order, without days on which nothing was assigned."""

    @abstractmethod
    def series(self, key: int) -> tuple[SeriesSums, ...]:
        """Sums of metrics by segment, day and name, in that order, without those of nothing."""

    @abstractmethod
    def log(self, key: int, after: int = -1, most: int = 10_000) -> list[LogRow]:
        """The next assignments after a number, in the order of numbers, with rewards and events."""

    @abstractmethod
    def extreme(self, key: int) -> tuple[str, float] | None:
        """The unit with the reward furthest from 0, and this reward; None without rewards."""

    @abstractmethod
    def segments(self, key: int, indices: Iterable[int]) -> dict[int, SegmentRecord]:
        """Segments by their index."""

    @abstractmethod
    def find_assignments(self, key: int, targets: Sequence[Target]) -> list[LogRow | None]:
        """Assignments of targets (units only if they are sticky); None for those unknown."""

    def pages(self, key: int) -> Iterator[list[LogRow]]:
        """The whole log, some thousand rows at a time."""
        after = -1
        while page := self.log(key, after):
            yield page
            after = page[-1].number

    def history(self, name: str) -> list[AuditEntry]:
        """All entries of the audit log about the experiment of that name."""
        entries: list[AuditEntry] = []
        while page := self.audit(entries[-1].id if entries else 0, experiment=name):
            entries += page
        return entries

    def trace(self, key: int, name: str) -> Trace:
        """The same with all corrections, which may be as many as there are assignments."""
        corrections, last = list[Correction](), (0, -1)
        while page := self.corrections(key, last):
            corrections += page
            last = page[-1].entry, page[-1].number
        return Trace(tuple(self.history(name)), tuple(corrections))

    # Tokens of the service, and sessions of people

    @abstractmethod
    def closed(self) -> bool:
        """Whether there has ever been a token."""

    @abstractmethod
    def add_token(self, token: TokenRecord, *, by: str = "") -> None:
        """Add a token and close the storage; InvalidInputError if the name is taken.

        The audit log gets an entry "token.created" with the token's time, by `by`.
        """

    @abstractmethod
    def tokens(self) -> list[TokenRecord]:
        """All tokens, in the order of their creation."""

    @abstractmethod
    def remove_token(
        self, name: str, *, now: int, by: str = "", lock_out: bool = False
    ) -> TokenRecord:
        """Remove a token and end its sessions; returns its record.

        InvalidInputError if there is none of that name; or if no token would be left, or none with
        the scope admin where there was one, unless `lock_out` is true. The audit log gets an entry
        "token.removed", by `by`.
        """

    @abstractmethod
    def add_session(self, session: SessionRecord) -> None:
        """Add a session, and remove those that had expired when it was created.

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

        Tests it with a write at most once a second, and repeats the last result in between. Ends
        within three seconds.
        """

    @abstractmethod
    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> Pruned:
        """Remove what nobody needs any more.

        That is: expired sessions. Works in many transactions, so that traffic goes on; the next
        call finishes what an interrupted one has left.

        archived_before : a time; experiments that were archived before it are deleted, except for
            their audit log
        dry : only return which experiments would be deleted
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections; the storage must not be used after that."""
