"""One client's end of a request: its events, as fast as it reads them."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from ...shared.inference import Event, RequestId


class Stream:
    """Yields any number of `Token` and `Notice`, then one `Done` or `Failed`, then stops.

    To be used in a `with`: leaving it before the end cancels the request.
    """

    id: RequestId

    def __aiter__(self) -> AsyncIterator[Event]:
        raise NotImplementedError

    def close(self) -> None:
        """The reader is gone. Does nothing after the end or a second time."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
