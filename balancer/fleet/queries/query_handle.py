"""One client's end of a query: its results, all at once.

Invariant: it is settled at most once.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ....shared.errors import RequestError
from ....shared.inference import RequestId
from ....shared.queries import Result

Outcome = tuple[Result, ...] | RequestError


class QueryHandle:
    """One task awaits it, in a `with`: leaving that before it is settled withdraws the query."""

    def __init__(self, id: RequestId, on_close: Callable[[RequestId], None]) -> None:
        """`on_close` is called once, and only if the reader goes before the end has come."""
        self.id = id
        self._on_close = on_close
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    def settle(self, outcome: Outcome) -> None:
        """The end. Raises `asyncio.InvalidStateError` when it has come already."""
        if not self._is_closed:
            self._outcome.set_result(outcome)

    async def results(self) -> tuple[Result, ...]:
        """A result for each part, in their order. Raises `RequestError`."""
        outcome = await asyncio.shield(self._outcome)
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome

    def close(self) -> None:
        """The reader is gone. Does nothing after the end or a second time."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._outcome.done():
            self._outcome.cancel()
            self._on_close(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
