"""What preparation makes of a request: all that the engine and the transcript need to know."""

from dataclasses import dataclass

from ...shared.errors import RequestError
from ..engine.sampling import Sampling
from ..engine.sequence import ContextShift


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`prompt` holds at least one token and, without a `shift`, leaves room for an answer's."""

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    shift: ContextShift | None = None


Outcome = Prepared | RequestError
"""What becomes of a preparation."""
