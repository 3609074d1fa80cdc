"""An answer of which only the text is known, as this model's tokens.

A server told the text, or an engine whose token ids mean nothing here. The text is cut into tokens
anew, and these pass through the answer as if this model had said them. The client was told how many
tokens it had so far: `max_tokens` and usage count on from there.
"""

from dataclasses import replace

from ....shared.continuation import Continuation
from ....shared.messages import Item, Piece
from ...engine.loaded_model import Vocab
from .prepared import Prepared, Reading

_BEFORE = "\n"
"""Some tokenisers put a space before a text; before this, that does not touch the text."""


def is_told(continuation: Continuation) -> bool:
    """Whether only the text of the answer is known."""
    return bool(continuation.text or continuation.num_tokens)


def retold(
    prepared: Prepared, continuation: Continuation, vocab: Vocab
) -> tuple[Prepared, Continuation]:
    """`prepared` for an answer that has the tokens of the continuation.

    Raises `ValueError` where the text is none that this model would have written.
    """
    _check_reading(prepared.reading)
    tokens = _tokens_of(continuation.text, vocab)
    more = continuation.num_tokens - len(tokens)
    own = Continuation.after(tokens, num_characters=len(continuation.text))
    return _recounted(prepared, more, len(tokens)), own


def check_retold(items: list[Item], text: str) -> None:
    """Raises `ValueError` unless the tokens gave a beginning of `text`, all of it content."""
    pieces = [item for item in items if isinstance(item, Piece)]
    said = "".join(piece.text for piece in pieces)
    if len(pieces) < len(items) or any(each.kind != "content" for each in pieces):
        raise ValueError("this model would read its beginning as something else than text")
    if not text.startswith(said):
        raise ValueError("this model would read its beginning as another text")


def _check_reading(reading: Reading | None) -> None:
    """Where a model writes something around its content, the text alone is not what it said."""
    if reading is None:
        return
    if reading.is_thinking:
        raise ValueError("this model would begin by reasoning")
    if reading.family.has_channels or reading.family.wrappers:
        raise ValueError(f"models of the family {reading.family.name} write more than the text")


def _tokens_of(text: str, vocab: Vocab) -> tuple[int, ...]:
    wanted = text.encode(errors="replace")
    tokens = vocab.tokenize(text, add_special=False, parse_special=False)
    if _spelt(tokens, vocab) == wanted:
        return tokens
    head = vocab.tokenize(_BEFORE, add_special=False, parse_special=False)
    whole = vocab.tokenize(_BEFORE + text, add_special=False, parse_special=False)
    rest = whole[len(head) :]
    if whole[: len(head)] != head or _spelt(rest, vocab) != wanted:
        raise ValueError("this model has no tokens for exactly its text")
    return rest


def _spelt(tokens: tuple[int, ...], vocab: Vocab) -> bytes:
    return b"".join(map(vocab.piece, tokens))


def _recounted(prepared: Prepared, more: int, num_tokens: int) -> Prepared:
    """With bounds in tokens of this model, of which the client was told `more`, or fewer."""
    most, stop, sampling = prepared.max_tokens, prepared.stop, prepared.sampling
    return replace(
        prepared,
        num_more=more,
        max_tokens=None if most is None else max(num_tokens, most - more),
        stop=replace(stop, min_tokens=max(0, stop.min_tokens - more)),
        sampling=replace(sampling, min_tokens=max(0, sampling.min_tokens - more)),
    )
