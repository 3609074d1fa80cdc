"""What preparation makes of a request: all that the engine and the transcript need to know."""

from dataclasses import dataclass

from ...shared.errors import RequestError
from ..engine.sampling import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`prompt` holds at least one token and leaves room for one more below the slot's ceiling."""

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]


Outcome = Prepared | RequestError
"""What becomes of a preparation."""
