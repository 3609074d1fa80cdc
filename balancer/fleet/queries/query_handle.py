"""A client's handle of one query: it gets all results at once.

Invariant: it is settled at most once.
"""

import asyncio
from collections.abc import Callable
from typing import Self

from ....shared.errors import RequestError
from ....shared.inference import RequestId
from ....shared.queries import Result

Outcome = tuple[Result, ...] | RequestError


class QueryHandle:
    """The handle of one query.

    One task awaits it, in a `with` block; leaving the block earlier withdraws the query.
    """

    def __init__(self, id: RequestId, on_close: Callable[[RequestId], None]) -> None:
        """`on_close` is called once, and only if the reader leaves before the end."""
        self.id = id
        self._on_close = on_close
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome. Raises `asyncio.InvalidStateError` if it was set before."""
        if not self._is_closed:
            self._outcome.set_result(outcome)

    async def results(self) -> tuple[Result, ...]:
        """Wait for a result of each part, in order. Raises `RequestError`."""
        outcome = await asyncio.shield(self._outcome)
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Note that the reader has left. Has no effect after the end or a second time."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._outcome.done():
            self._outcome.cancel()
            self._on_close(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
