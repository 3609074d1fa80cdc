"""One response while it is generated. It is stored if it ends without an error."""

import time
from collections.abc import Awaitable, Callable

from .....shared.inference import Done, Event, RequestId, UsedTier
from ...conversations import Conversations
from .answer_types import Response
from .events import ResponseEvents
from .items import Item, Json, items_of, with_ids
from .requests import ResponsesRequest
from .stored import Stored, stored

AddTurn = Callable[[tuple[Item, ...]], None]
"""Adds the input and output of one turn to a conversation."""


class ResponseAnswer(ResponseEvents):
    """The answer to `requested`, which continues `previous`, by the model `served`.

    The answer has a `service_tier` and belongs to `owner`. When it has ended, `add_turn` adds its
    input and output to its conversation.
    """

    def __init__(
        self,
        id: RequestId,
        store: Conversations,
        requested: ResponsesRequest,
        previous: Stored | None,
        *,
        served: str,
        service_tier: UsedTier,
        created_at: int,
        owner: str | None,
        add_turn: AddTurn | None = None,
    ) -> None:
        self._add_turn = add_turn
        self._store = store
        self._owner = owner
        self._requested = requested
        self._previous = previous
        super().__init__(
            id,
            created_at=created_at,
            echo=requested.echo(served, service_tier),
            namespaces=requested.namespaces,
            is_background=requested.background,
        )

    def take(self, event: Event, _number: int = 0, /) -> list[Json]:
        """Return the API's events for `event`."""
        rendered = super().take(event)
        if isinstance(event, Done) and self._requested.store:
            # Stored before the end is sent: the client may continue the response at once.
            self._keep(self.response)
        is_whole = isinstance(event, Done) and event.finish_reason != "cancelled"
        if is_whole and self._add_turn is not None:
            given = with_ids(self._requested.input, self._id)
            self._add_turn((*given, *items_of(self.response["output"])))
        return rendered

    def stored(self) -> Awaitable[None]:
        """Return a future that is done when any balancer can continue the stored response."""
        conversation = self._requested.conversation_id
        return self._store.written(self.response["id"], *([conversation] if conversation else []))

    def _keep(self, response: Response) -> None:
        given = with_ids(self._requested.input, self._id)
        entry = stored(response, given, self._previous)
        self._store.put(response["id"], entry, time.monotonic(), owner=self._owner)
