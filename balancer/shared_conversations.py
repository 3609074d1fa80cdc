"""Conversations as the daemon wires them up: in memory, and in a store that balancers share."""

import time
from typing import Any

from pydantic import TypeAdapter

from .api.anthropic.threads import Thread
from .api.conversation_store import MAX_ENTRIES, ConversationStore
from .api.conversations import Conversations
from .api.openai.responses.stored import Stored
from .durable.conversation_keeper import ConversationKeeper
from .persistence import Persistence
from .settings import BalancerSettings
from .store.conversations import ConversationBounds

KINDS: dict[type, tuple[str, TypeAdapter[Any]]] = {
    Stored: ("response", TypeAdapter(Stored)),
    Thread: ("thread", TypeAdapter(Thread)),
}
"""Their names, and how they are written. What changes in a later version gets another name."""


def open_conversations(
    settings: BalancerSettings, persistence: Persistence
) -> tuple[Conversations, ConversationKeeper | None]:
    """Those of this balancer, and what shares them with others, if there may be any."""
    memory = ConversationStore(
        max_bytes=settings.responses_limit, max_age=settings.responses_max_age
    )
    if persistence.peers is None or settings.responses_limit == 0:
        return Conversations(memory), None
    bounds = ConversationBounds(
        num=MAX_ENTRIES, num_bytes=settings.responses_limit, age=settings.responses_max_age
    )

    def forget_here(id: str, kind: type, owner: str | None) -> bool:
        return memory.forget(id, kind, time.monotonic(), owner=owner)

    keeper = ConversationKeeper(persistence.store.conversations, bounds, KINDS, forget_here)
    return Conversations(memory, keeper), keeper
