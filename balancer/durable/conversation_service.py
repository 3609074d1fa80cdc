"""Writes conversations to the store after their answers have ended, and finds those of others.

No answer waits for a write. Who asks for a conversation that is not in the store yet asks the other
balancers: the one that has it answers once it is written. While the store is away, conversations
wait, within bounds, and are continued where they began. One that cannot be written costs itself.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ...shared.errors import StoreUnavailable
from ...shared.log import context
from ..cluster.questions import Replies, Reply
from ..store.conversations import ConversationBounds, SavedConversation, SavedConversations
from ..store.health import StoreHealth
from ..store.port import StoreAway
from ..store.records import StoreStatus
from ..store.write_behind import WriteBehind
from .conversation_backlog import ConversationBacklog, Unwritten, UnwrittenConversation

logger = logging.getLogger(__name__)

QUESTION = "conversation"
"""What this asks other balancers."""

MAX_ID = 200
"""Characters of an id: ours have fewer."""

PATIENCE = 1.0
"""Seconds that a call waits for a conversation to be written."""

TRIM_EVERY = 60.0
"""Seconds between two looks for conversations that are beyond the bounds."""

TRIM_AGAIN = 5.0
"""Seconds until the next look if the store was away, so that it is known soon that it is back."""


class About(TypedDict):
    """A conversation of this kind and owner; whether it is to be forgotten."""

    id: str
    kind: str
    owner: str
    is_unwanted: bool


class Presence(TypedDict):
    """Whether a conversation was here; it is saved or forgotten by now."""

    was_here: bool


ABOUT = TypeAdapter(About)
PRESENCE = TypeAdapter(Presence)

Ask = Callable[[str, str], Awaitable[Replies]]
"""Asks all other balancers."""

ForgetHere = Callable[[str, type, str | None], bool]
"""Deletes an owner's conversation of a kind from this balancer's memory; whether it was there."""

E = TypeVar("E")


async def no_others(_what: str, _about: str) -> Replies:
    """There are no others."""
    return Replies()


class ConversationService:
    """One for each balancer. `kinds` says how conversations of each type are named and written."""

    def __init__(
        self,
        store: SavedConversations,
        bounds: ConversationBounds,
        kinds: Mapping[type, tuple[str, TypeAdapter[Any]]],
        forget_here: ForgetHere,
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._kinds = kinds
        self._types = {name: kind for kind, (name, _) in kinds.items()}
        self._adapters = dict(kinds.values())
        self._forget_here = forget_here
        self._ask: Ask = no_others
        self.backlog = ConversationBacklog(bounds.num_bytes)
        self._health = StoreHealth("the store of conversations")
        self._writer: WriteBehind[str, Unwritten] = WriteBehind(
            self.backlog,
            self._write,
            health=self._health,
            loss="a conversation could not be written, and goes on here alone",
            name_of=lambda id: {"id": id},
        )

    def serve(self, ask: Ask) -> None:
        """From now on there may be others, who are asked so."""
        self._ask = ask

    @property
    def num_waiting(self) -> int:
        """Conversations that are not written yet."""
        return len(self.backlog)

    def status(self) -> StoreStatus:
        """How the store takes conversations."""
        return self._writer.status()

    # ---- what the APIs ask for

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None:
        """Have it written, soon."""
        name, _ = self._kinds[type(entry)]
        num = self.backlog.add(UnwrittenConversation(id, name, owner or "", entry, num_bytes))
        if num:
            self._health.failed(num)
            logger.warning("conversations that are not written, and go on here alone: %d", num)
        self._writer.stir()

    def use(self, id: str) -> None:
        """It was used here."""
        self.backlog.use(id)
        self._writer.stir()

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None:
        """The owner's conversation, whichever balancer stored it. Raises `StoreUnavailable`."""
        if len(id) > MAX_ID:
            return None
        await self._saved(id)
        about = self._about(id, kind, owner, is_unwanted=False)
        document = await self._read(about)
        if document is None and await self._others(about):
            # One of them had it and has written it by now, maybe before it was asked.
            document = await self._read(about)
        if document is None:
            return None
        try:
            found: E = await asyncio.to_thread(_opened, document, self._adapters[about["kind"]])
        except (ValidationError, zlib.error):
            logger.exception("a conversation is not readable", extra=context(id=id))
            return None
        return found

    async def forget(self, id: str, kind: type, owner: str | None) -> bool:
        """Delete it everywhere but from memory here; whether it was. Raises `StoreUnavailable`."""
        if len(id) > MAX_ID:
            return False
        about = self._about(id, kind, owner, is_unwanted=True)
        was_elsewhere = await self._others_have(about)
        was_waiting = await self._dropped(about)
        try:
            was_saved = await self._store.forget_conversation(id, about["kind"], about["owner"])
        except StoreAway as error:
            raise StoreUnavailable(f"the store is away: {error}") from error
        return was_saved or was_waiting or was_elsewhere

    # ---- what other balancers ask

    async def respond(self, text: str) -> bytes | None:
        """The answer to `QUESTION`; `None` to what this version does not know."""
        try:
            about = ABOUT.validate_json(text)
        except ValidationError:
            return None
        if about["kind"] not in self._types:
            return None
        was_here = await (
            self._forgotten(about) if about["is_unwanted"] else self._saved(about["id"])
        )
        return PRESENCE.dump_json(Presence(was_here=was_here))

    async def _forgotten(self, about: About) -> bool:
        kind, owner = self._types[about["kind"]], about["owner"] or None
        was_here = self._forget_here(about["id"], kind, owner)
        return await self._dropped(about) or was_here

    # ---- in the background

    async def run(self) -> None:
        """Write and trim, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run())
            tasks.create_task(self._trim_all())

    async def flush(self, within: float) -> None:
        """Wait until all is written, at most so many seconds; `run` has to run."""
        await self._writer.flush(within)

    async def _write(self, ids: Sequence[str]) -> Unwritten:
        what = self.backlog.unwritten(ids)
        rows = await asyncio.to_thread(self._rows, what.waiting)
        await self._store.save_conversations(rows, what.used)
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
                logger.exception("old conversations could not be deleted")
            await asyncio.sleep(TRIM_AGAIN if self._health.is_away else TRIM_EVERY)

    # ---- inside

    def _about(self, id: str, kind: type, owner: str | None, *, is_unwanted: bool) -> About:
        name, _ = self._kinds[kind]
        return About(id=id, kind=name, owner=owner or "", is_unwanted=is_unwanted)

    async def _read(self, about: About) -> bytes | None:
        try:
            return await self._store.find_conversation(about["id"], about["kind"], about["owner"])
        except StoreAway as error:
            raise StoreUnavailable(f"the store is away: {error}") from error

    async def _others_have(self, about: About) -> bool:
        return any(_was_there(each.body) for each in await self._others(about))

    async def _others(self, about: About) -> Sequence[Reply]:
        """What the other balancers say to it."""
        return (await self._ask(QUESTION, json.dumps(about))).replies  # in ASCII

    async def _dropped(self, about: About) -> bool:
        """It is not written any more, as far as it was its owner's; whether it was to be."""
        id = about["id"]
        waiting = self.backlog.get(id)
        if waiting is None or (waiting.kind, waiting.owner) != (about["kind"], about["owner"]):
            return False
        if id in self._writer.under_way:
            await self._saved(id)
        self.backlog.drop(id)
        return True

    async def _saved(self, id: str) -> bool:
        """Wait until it is written, if it is to be; whether it was and is."""
        if id not in self.backlog:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                while id in self.backlog:
                    if id in await self._writer.written():
                        return False
        except TimeoutError:
            return False
        return True


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


def _was_there(body: bytes) -> bool:
    try:
        return PRESENCE.validate_json(body)["was_here"]
    except ValidationError:
        return False
