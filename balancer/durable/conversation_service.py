"""Writes conversations to the store before their answers end, and finds those of other balancers.

So any balancer can continue a conversation once its client has the end of an answer. While the
store is away, answers do not wait: conversations are written later, within bounds. Until then only
the balancer where they began can continue them. A conversation that cannot be written stays at
that balancer.
"""

import asyncio
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ...shared.errors import StoreUnavailable
from ...shared.log import context
from ..store.conversations import ConversationBounds, SavedConversation, SavedConversations
from ..store.health import StoreHealth
from ..store.port import StoreAway
from ..store.records import StoreStatus
from ..store.write_behind import WriteBehind
from .conversation_backlog import ConversationBacklog, UnwrittenConversation

logger = logging.getLogger(__name__)

MAX_ID = 200
"""Maximum characters of an id; ids of this balancer have fewer."""

PATIENCE = 1.0
"""Maximum seconds that the end of an answer waits for its conversation to be written."""

TRIM_EVERY = 60.0
"""Seconds between two checks for conversations that exceed the bounds."""

TRIM_AGAIN = 5.0
"""Seconds until the next check if the store was away, so that its return is noticed soon."""


E = TypeVar("E")


class ConversationService:
    """The service of a balancer.

    `kinds` has the name and the format of each type of conversation.
    """

    def __init__(
        self,
        store: SavedConversations,
        bounds: ConversationBounds,
        kinds: Mapping[type, tuple[str, TypeAdapter[Any]]],
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._kinds = kinds
        self._adapters = dict(kinds.values())
        self.backlog = ConversationBacklog(bounds.num_bytes)
        self._health = StoreHealth("the store for conversations")
        self._writer: WriteBehind[str, Sequence[UnwrittenConversation]] = WriteBehind(
            self.backlog,
            self._write,
            health=self._health,
            loss=(
                "a conversation could not be written to the store, and other balancers cannot "
                "continue it"
            ),
            name_of=lambda id: {"id": id},
        )

    @property
    def num_waiting(self) -> int:
        """The number of conversations that are not written yet."""
        return len(self.backlog)

    def status(self) -> StoreStatus:
        """The store's status for conversations."""
        return self._writer.status()

    # ---- what the APIs ask for

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None:
        """Write a conversation soon."""
        name, _ = self._kinds[type(entry)]
        num = self.backlog.add(UnwrittenConversation(id, name, owner or "", entry, num_bytes))
        if num:
            self._health.failed(num)
            logger.warning(
                "%d conversations wait to be written, which is too many: they will not be "
                "stored, and other balancers cannot continue them",
                num,
            )
        self._writer.stir()

    async def written(self, id: str) -> None:
        """Wait for a short time until a conversation is written; do not wait while the store is
        away.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                while id in self.backlog and not self._health.is_away:
                    await self._writer.written()
        except TimeoutError:
            return

    async def has(self, id: str, kind: type, owner: str | None) -> bool:
        """Return whether a conversation is stored or waits to be written.

        Raises `StoreUnavailable`.

        The owner and the kind must match in the store. They are not checked if the conversation
        still waits.
        """
        if id in self.backlog or id in self.backlog.alone:
            return True
        name, _ = self._kinds[kind]
        with _away_told():
            return await self._store.use_conversation(id, name, owner or "")

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None:
        """Return the owner's conversation, whichever balancer stored it.

        Raises `StoreUnavailable`.
        """
        if len(id) > MAX_ID:
            return None
        name, adapter = self._kinds[kind]
        with _away_told():
            document = await self._store.find_conversation(id, name, owner or "")
        if document is None:
            return None
        try:
            found: E = await asyncio.to_thread(_opened, document, adapter)
        except (ValidationError, zlib.error):
            logger.exception(
                "a stored conversation cannot be read: it is damaged, or another version of "
                "Arriero wrote it",
                extra=context(id=id),
            )
            return None
        return found

    async def forget(self, id: str, kind: type, owner: str | None) -> bool:
        """Delete the owner's conversation everywhere except from memory.

        Returns whether it existed. Raises `StoreUnavailable`.
        """
        if len(id) > MAX_ID:
            return False
        name, _ = self._kinds[kind]
        waiting = self.backlog.get(id)
        is_owners = waiting is not None and (waiting.kind, waiting.owner) == (name, owner or "")
        if is_owners and id in self._writer.under_way:
            await self.written(id)  # or it would be stored after this
        if is_owners:
            self.backlog.drop(id)
        with _away_told():
            was_saved = await self._store.forget_conversation(id, name, owner or "")
        return was_saved or is_owners

    # ---- in the background

    async def run(self) -> None:
        """Write and trim, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run())
            tasks.create_task(self._trim_all())

    async def flush(self, within: float) -> None:
        """Wait at most `within` seconds until everything is written; `run` must be running."""
        await self._writer.flush(within)

    async def _write(self, ids: Sequence[str]) -> Sequence[UnwrittenConversation]:
        what = self.backlog.unwritten(ids)
        rows = await asyncio.to_thread(self._rows, what)
        await self._store.save_conversations(rows)
        return what

    def _rows(self, waiting: Sequence[UnwrittenConversation]) -> list[SavedConversation]:
        return [_row(each, self._adapters[each.kind]) for each in waiting]

    async def _trim_all(self) -> None:
        while True:
            try:
                await self._store.trim_conversations(self._bounds)
                self._health.wrote()
            except StoreAway as error:
                self._health.went_away(error)
            except Exception:  # the boundary of one look: the next one tries again
                self._health.failed()
                logger.exception("the balancer could not delete old conversations and tries again")
            await asyncio.sleep(TRIM_AGAIN if self._health.is_away else TRIM_EVERY)


@contextmanager
def _away_told() -> Iterator[None]:
    try:
        yield
    except StoreAway as error:
        raise StoreUnavailable(f"the store is away: {error}") from error


def _row(each: UnwrittenConversation, adapter: TypeAdapter[Any]) -> SavedConversation:
    document = zlib.compress(adapter.dump_json(each.entry), level=1)
    return SavedConversation(
        id=each.id,
        owner=each.owner,
        kind=each.kind,
        document=document,
        num_bytes=len(document),
    )


def _opened(document: bytes, adapter: TypeAdapter[Any]) -> Any:
    return adapter.validate_json(zlib.decompress(document))
