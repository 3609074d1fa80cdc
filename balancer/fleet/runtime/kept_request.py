"""One request that outlives its connection: what was asked, its events, and who reads them."""

from collections.abc import Callable

from ....shared.inference import Done, Event, Failed, Token, Waiting
from ..kept_record import KeptRecord
from .stream import Stream

EVENT_BYTES = 256
"""What an event counts for besides its text, and each token's log-probabilities too."""


class KeptRequest:
    """One request's events so far."""

    def __init__(
        self,
        record: KeptRecord,
        on_change: Callable[["KeptRequest", int], None],
        *,
        note: bytes = b"",
    ) -> None:
        """`on_change` is told by how many bytes the events grew.

        `note` is that of one which was asked for at another run of the balancer.
        """
        self.record = record
        self.id = record.id
        self.note = note
        self.end: Done | Failed | None = None
        self.num_bytes = len(note)
        self.used_at = 0.0
        self.events: list[Event] = []
        """So far, without those that say that it waits."""
        self.is_elsewhere = False
        """Whether another balancer runs it."""
        self._is_kept = True
        self._on_change = on_change
        self._readers: dict[Stream, None] = {}

    @property
    def is_read(self) -> bool:
        """Whether anybody reads it."""
        return bool(self._readers)

    def put(self, event: Event) -> None:
        """Another event: keep it, and pass it on."""
        if isinstance(event, Done | Failed):
            self.end = event
        for reader in list(self._readers):
            reader.put(event)
        if self.end is not None:
            self._readers.clear()
        if self._is_kept and not isinstance(event, Waiting):
            size = _size(event)
            self.events.append(event)
            self.num_bytes += size
            self._on_change(self, size)

    def forget(self) -> None:
        """Keep no further events; present readers still get theirs."""
        self._is_kept = False
        if self.end is None:
            self.events = []

    def attach(self) -> Stream:
        """Its events from the first one on, none merged. Closing the stream cancels nothing."""
        stream = Stream(
            self.id,
            lambda _: self._detach(stream),
            merges=False,
            created_at=self.record.created_at,
            model=self.record.model,
        )
        for event in self.events:
            stream.put(event)
        if self.end is None:
            self._readers[stream] = None
        return stream

    def _detach(self, stream: Stream) -> None:
        self._readers.pop(stream, None)


def _size(event: Event) -> int:
    if not isinstance(event, Token):
        return EVENT_BYTES
    num_explained = sum(1 + len(each.top) for each in event.log_probs)
    return EVENT_BYTES * (1 + num_explained) + 2 * len(event.text)
