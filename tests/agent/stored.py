"""Stored prompts for tests that do not look into them."""

from collections.abc import Sequence

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt


def whole(tokens: Sequence[int], state: bytes = b"state") -> StoredPrompt:
    """`tokens` with a state of one piece."""
    return StoredPrompt(Prompt(tuple(tokens)), (Piece(len(tokens), state),))
