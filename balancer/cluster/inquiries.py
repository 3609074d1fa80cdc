"""Asks the other balancers, and answers them, by letters in the store that they share.

So a balancer needs neither the address nor a key of another balancer: all balancers that share the
store may ask.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..store.port import StoreAway
from .notifications import MOST_TEXT, Answered, Asked
from .peer_store import Peer, PeerStore
from .questions import Questions, Replies, TooLong, packed

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds in which other balancers can answer; a killed balancer counts as missing after that."""

MOST_ANSWERING = 16
"""Maximum answers being made or sent at once; further questions are not answered."""

Respond = Callable[[str, str], bytes | None]
"""Answers a question about a subject; `None` if the question is unknown."""


class Inquiries:
    """The questions and answers of one run of a balancer; `peers` lists all live balancers."""

    def __init__(
        self,
        store: PeerStore,
        run: str,
        peers: Callable[[], Sequence[Peer]],
        respond: Respond,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._store = store
        self._run = run
        self._peers = peers
        self._respond = respond
        self._patience = patience
        self._questions = Questions(run)
        self._ends: dict[str, asyncio.Event] = {}
        self._answers: set[asyncio.Task[None]] = set()

    @property
    def num_open(self) -> int:
        """The number of questions without all answers, and of answers being made."""
        return len(self._questions) + len(self._answers)

    async def ask(self, what: str, about: str = "{}") -> Replies:
        """Ask the other balancers, and return the answers that come within `PATIENCE`."""
        others = [(peer.beat.run, peer.beat.name) for peer in self._peers()]
        others = [(run, name) for run, name in others if run != self._run]
        if not others:
            return Replies()
        if not self._questions.has_room or len(about) > MOST_TEXT:
            return Replies(missing=tuple(sorted(name for _, name in others)))
        id = uuid.uuid4().hex
        self._questions.ask(id, others)
        self._ends[id] = asyncio.Event()
        try:
            await self._wait(id, Asked(id, self._run, what, about))
        finally:
            del self._ends[id]
            replies = self._questions.close(id)
        return replies

    async def _wait(self, id: str, question: Asked) -> None:
        with suppress(TimeoutError, StoreAway):
            async with asyncio.timeout(self._patience):
                await self._store.send(question)
                await self._ends[id].wait()

    def heard(self, notification: Asked | Answered) -> None:
        """Take a question or an answer of another balancer. The balancer's own letters are
        ignored.
        """
        match notification:
            case Answered():
                if (id := self._questions.heard(notification)) is not None:
                    self._ends[id].set()
            case Asked() if notification.by != self._run and len(self._answers) < MOST_ANSWERING:
                task = asyncio.create_task(self._answer(notification))
                self._answers.add(task)
                task.add_done_callback(self._answered)

    async def _answer(self, question: Asked) -> None:
        body = self._respond(question.what, question.about)
        if body is None:
            return
        try:
            answer = Answered(question.id, question.by, self._run, packed(body))
            await self._store.send(answer)
        except (TooLong, StoreAway) as error:
            logger.warning(
                "this balancer could not answer a question of another balancer: %s", error
            )

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "unexpected error while answering a question of another balancer", exc_info=error
            )

    def close(self) -> None:
        """Answer no more questions."""
        for task in self._answers:
            task.cancel()
