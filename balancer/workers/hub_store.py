"""The peers' side of a store that tells no news: the parent of the workers does.

A `PeerStore` of one worker. Its session is the parent itself, so it is lost only with the worker.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from ..store.news.records import News, decoded, encoded
from ..store.peers.port import Beat, Peer, PeerSession
from ..store.port import StoreAway
from .messages import Beating, Granted, Lead, Leave, Peers, Spread
from .place import Pipes

TIMEOUT = 3.0
"""Seconds that the parent has for an answer."""

_IDS = count(1)
"""Of questions, over all sessions of this process."""


class HubPeerStore:
    """Over the pipes to the parent."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes

    async def open_session(
        self, on_news: Callable[[News], None], on_lost: Callable[[], None]
    ) -> PeerSession:
        def heard(text: str) -> None:
            if (news := decoded(text)) is not None:
                on_news(news)

        self._pipes.on_news = heard
        return HubSession(self._pipes)

    async def tell(self, *news: News) -> None:
        self.spread(news)

    def spread(self, news: Sequence[News]) -> None:
        """Tell all workers, this one among them."""
        self._pipes.say(Spread(tuple(encoded(each) for each in news)))


class HubSession:
    """A `PeerSession`."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._asked: asyncio.Future[Peers | Granted] | None = None
        self._id = 0
        pipes.on_answer = self._answered

    async def beat(self, beat: Beat) -> Sequence[Peer]:
        answer = await self._ask(Beating(self._next_id(), beat))
        return answer.peers if isinstance(answer, Peers) else ()

    async def lead(self, above: int) -> int | None:
        answer = await self._ask(Lead(self._next_id(), above))
        return answer.epoch if isinstance(answer, Granted) else None

    async def leave(self, run: str) -> None:
        self._pipes.say(Leave())

    def close(self) -> None:
        self._pipes.say(Leave())

    def _next_id(self) -> int:
        self._id = next(_IDS)
        return self._id

    def _answered(self, answer: Peers | Granted) -> None:
        """What comes too late is not looked at."""
        if self._asked is not None and not self._asked.done() and answer.id == self._id:
            self._asked.set_result(answer)

    async def _ask(self, question: Beating | Lead) -> Peers | Granted:
        self._asked = asyncio.get_running_loop().create_future()
        self._pipes.say(question)
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._asked
        except TimeoutError as error:
            raise StoreAway("the parent of the workers does not answer") from error
