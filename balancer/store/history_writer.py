"""Writes the history to the store in the background."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from .health import StoreHealth
from .records import EndedRequest, SavedStep, UsageRow
from .store import Store
from .write_behind import WriteBehind

MAX_STEPS = 10_000
MAX_ENDINGS = 10_000
"""Maximum waiting steps and ended requests. The oldest are dropped first."""

MAX_USAGE = 20_000
"""Maximum waiting rows of usage, which is enough for at least two days."""

Record = SavedStep | EndedRequest | UsageRow


@dataclass(frozen=True, slots=True)
class HistoryBatch:
    """Records of the history."""

    steps: tuple[SavedStep, ...] = ()
    endings: tuple[EndedRequest, ...] = ()
    usage: tuple[UsageRow, ...] = ()
    """At most one row for each day, caller and model."""


def batch_of(records: Sequence[Record]) -> HistoryBatch:
    """Sort records by kind."""
    return HistoryBatch(
        tuple(each for each in records if isinstance(each, SavedStep)),
        tuple(each for each in records if isinstance(each, EndedRequest)),
        tuple(each for each in records if isinstance(each, UsageRow)),
    )


class HistoryBacklog:
    """The `Backlog` of the history."""

    def __init__(self) -> None:
        self._steps: list[SavedStep] = []
        self._endings: list[EndedRequest] = []
        self._usage: dict[tuple[int, str, str], UsageRow] = {}

    def __len__(self) -> int:
        return len(self._steps) + len(self._endings) + len(self._usage)

    @property
    def has_any(self) -> bool:
        """Whether anything waits to be written."""
        return len(self) > 0

    @property
    def unwritten(self) -> HistoryBatch:
        """Return steps and ended requests that are not known to be in the store."""
        return HistoryBatch(tuple(self._steps), tuple(self._endings))

    def append(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> int:
        """Add records.

        Returns the number of old records that were dropped because too many waited.

        For each day, caller and model, only the newest row of usage is written.
        """
        self._steps += steps
        self._endings += endings
        for row in usage:
            self._usage[row.day, row.caller, row.model] = row
        num = len(self)
        del self._steps[:-MAX_STEPS], self._endings[:-MAX_ENDINGS]
        for key in list(self._usage)[:-MAX_USAGE]:
            del self._usage[key]
        return num - len(self)

    def next_batch(self) -> Sequence[Record]:
        """Return all waiting records."""
        return (*self._steps, *self._endings, *self._usage.values())

    def written(self, items: Sequence[Record], _outcome: None) -> None:
        """Remove written records. A record that was replaced in the meantime still waits."""
        written = {id(each) for each in items}
        self._steps = [each for each in self._steps if id(each) not in written]
        self._endings = [each for each in self._endings if id(each) not in written]
        self._usage = {key: each for key, each in self._usage.items() if id(each) not in written}

    def lost(self, item: Record) -> None:
        """Remove `item`, which can never be written."""
        self.written([item], None)


class HistoryWriter(WriteBehind[Record, None]):
    """Writes the history of a balancer. `append` never waits, and may be called before `run`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._history = HistoryBacklog()
        super().__init__(
            self._history,
            self._append,
            health=StoreHealth("the store"),
            loss="a record of the history could not be written, and is lost",
            name_of=_name_of,
        )

    @property
    def keeps_history(self) -> bool:
        """Whether the store is on disk, so that the history survives the balancer's end."""
        return self._store.is_lasting

    def unwritten(self) -> HistoryBatch:
        """Return the appended history that is not known to be in the store, without usage."""
        return self._history.unwritten

    def append(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        """Add to the history, if the store is on disk."""
        if self.keeps_history and (steps or endings or usage):
            self.health.num_lost += self._history.append(steps, endings, usage)
            self.stir()

    async def _append(self, records: Sequence[Record]) -> None:
        batch = batch_of(records)
        await self._store.history.append_history(batch.steps, batch.endings, batch.usage)


def _name_of(record: Record) -> Mapping[str, object]:
    match record:
        case SavedStep():
            return {"record": "step", "at": record.at, "width": record.width}
        case EndedRequest():
            return {"record": "ended request", "id": record.id, "caller": record.caller}
        case UsageRow():
            return {
                "record": "usage",
                "day": record.day,
                "caller": record.caller,
                "of": record.model,
            }
        case _:
            assert_never(record)
