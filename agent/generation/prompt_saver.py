"""Writes prompts to the prompt store, on a thread of its own: a slow disk delays only saves.

Called on the event loop's thread only, and replies there. At most as many saves wait as requests
hold slots.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ...shared.inference import Notice
from ..engine.prompt_store.prompt_store import Ignored, PromptStore
from ..engine.prompt_store.stored_prompt import StoredPrompt

logger = logging.getLogger(__name__)


class PromptSaver:
    """Without a `store` nothing may be saved; the preparer says so to clients."""

    def __init__(self, store: PromptStore | None = None) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="save")

    def save(self, key: str, prompt: StoredPrompt, reply: Callable[[Notice | None], None]) -> None:
        """Store `prompt` under `key`; `reply` gets `None` when it is done, or why it failed."""
        if self._store is None:
            raise RuntimeError("a prompt came to be stored where there is no store")
        future = self._thread.submit(_saved, self._store, key, prompt)
        asyncio.wrap_future(future).add_done_callback(partial(_reply, reply))

    def close(self) -> None:
        """Begin no save any more; blocks until the present one is written."""
        self._thread.shutdown(cancel_futures=True)


def _saved(store: PromptStore, key: str, prompt: StoredPrompt) -> Notice | None:
    try:
        ignored = store.save(key, prompt)
    except Exception:  # the boundary of saving: everything is logged and the client told
        logger.exception("a prompt could not be saved")
        ignored = Ignored("the agent failed to save the prompt; its log has the details")
    return None if ignored is None else ignored.notice


def _reply(reply: Callable[[Notice | None], None], future: asyncio.Future[Notice | None]) -> None:
    if not future.cancelled():
        reply(future.result())
