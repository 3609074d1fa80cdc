"""Continues an answer that another agent began: its tokens are replayed through the answer.

The balancer counts the items that the client received. Items beyond those counts are sent at once.
If log-probabilities are requested, tokens whose log-probabilities were not delivered are generated
again with the same ids: only the engine can compute the probabilities.

If a server or an engine with other weights began the answer, only its text is known, since token
ids differ. The text is tokenised again, and its tokens are replayed as if this model had generated
them. The client was told a token count so far: `max_tokens` and usage count on from that number.

Replaying many tokens takes seconds, so it runs on the threads that prepare requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....shared.continuation import Continuation
from ....shared.errors import AgentLost, EngineFailed, RequestError
from ....shared.inference import Notice, RequestId
from ....shared.messages import Item, Piece
from ...engine.grammar.constraint import ConstraintError
from ...engine.loaded_model import Vocab
from .answer import Answer
from .delivered import Delivered, MiscountError
from .prepared import Parsing, Prepared

RESUMED_ANEW = Notice(
    "resumed_anew",
    "another agent continues the answer, and could not restore the state of its sampling "
    "(mirostat, XTC): what follows may differ from what the first agent would have written",
)

_BEFORE = "\n"
"""Text put before a text that is tokenised: some tokenisers add a space to the first text."""

_CHARACTERS_PER_TOKEN = 16
"""Cost of replaying a token, in characters of a prompt. Replaying takes 3 to 15 microseconds.

Log-probabilities and grammars take further time.
"""


@dataclass(frozen=True, slots=True)
class Resume:
    """A request to continue; its balancer calls it `name`."""

    name: RequestId
    continuation: Continuation

    @property
    def work(self) -> int:
        """The cost of replaying: the length in characters of a prompt that takes as long."""
        return max(_CHARACTERS_PER_TOKEN * self.num_tokens, len(self.continuation.text))

    @property
    def num_tokens(self) -> int:
        """The number of tokens that the answer has so far."""
        return len(self.continuation.packed_tokens) // 4 or self.continuation.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A continued answer: send `items` first, then run the sequence `prepared`.

    If the answer is over, the engine is not needed.
    """

    prepared: Prepared
    answer: Answer
    items: tuple[Item, ...]


Outcome = Prepared | Resumed | RequestError
"""The result of a preparation, or its error."""


def resumed(prepared: Prepared, resume: Resume, vocab: Vocab, context_size: int) -> Resumed:
    """Return `prepared` continued after the delivered part of the answer.

    Raises `EngineFailed` if the answer cannot be continued there, or `AgentLost` if only its text
    is known.
    """
    is_by_text = has_text_only(resume.continuation)
    try:
        if is_by_text:
            prepared, resume = _retokenised(prepared, resume, vocab)
        tokens = _checked(prepared, resume.continuation, vocab, context_size)
        replay = _Replay(resume, prepared, tokens, vocab.piece)
        return replay.resumed()
    except (ValueError, MiscountError, ConstraintError) as error:
        failure = AgentLost if is_by_text else EngineFailed
        raise failure(f"the answer cannot be continued at this agent: {error}") from error


def _retokenised(prepared: Prepared, resume: Resume, vocab: Vocab) -> tuple[Prepared, Resume]:
    """Return `prepared` and `resume` for an answer of which only the text is known."""
    text = resume.continuation.text
    prepared, continuation = retokenised(prepared, resume.continuation, vocab)
    check_retokenised(Answer(resume.name, prepared, vocab.piece).replay(continuation.tokens), text)
    return prepared, replace(resume, continuation=continuation)


def _checked(
    prepared: Prepared, continuation: Continuation, vocab: Vocab, context_size: int
) -> tuple[int, ...]:
    """Return the tokens of `continuation`.

    Raises `ValueError`, which says what is wrong with the tokens.
    """
    if len(continuation.packed_tokens) % 4:
        raise ValueError("its token ids are not whole 32-bit numbers")
    tokens = continuation.tokens
    if (largest := max(tokens, default=0)) >= vocab.size:
        raise ValueError(f"there is no token {largest}; ids go up to {vocab.size - 1}")
    if ends := vocab.end_tokens.intersection(tokens):
        raise ValueError(f"the token {min(ends)} would have ended it")
    sequence, num_prompt = prepared.sequence, len(prepared.sequence.prompt)
    if sequence.max_tokens is not None and len(tokens) > sequence.max_tokens:
        raise ValueError(f"{len(tokens)} tokens are more than `max_tokens`")
    if sequence.shift is None and num_prompt + len(tokens) > context_size:
        raise ValueError(
            f"with {len(tokens)} tokens after a prompt of {num_prompt} it is longer than the "
            f"context of {context_size}"
        )
    return tokens


class _Replay:
    """Replays the `tokens` of one answer. The client has received all of them."""

    def __init__(
        self,
        resume: Resume,
        prepared: Prepared,
        tokens: tuple[int, ...],
        piece: Callable[[int], bytes],
    ) -> None:
        self._name = resume.name
        self._continuation = resume.continuation
        self._prepared = prepared
        self._tokens = tokens
        self._piece = piece

    def resumed(self) -> Resumed:
        answer, items = self._after(len(self._tokens))
        if not answer.is_past_delivered:
            self._check_end()
        num_said = len(self._tokens)
        if not answer.is_explained or any(isinstance(item, Piece) for item in items):
            num_said = self._num_explained()
        if num_said < len(self._tokens):
            answer, items = self._after(num_said)
        return Resumed(prepared=self._prepared_after(num_said), answer=answer, items=tuple(items))

    def _check_end(self) -> None:
        answer, _ = self._after(len(self._tokens))
        if not answer.would_be_past_delivered():
            raise MiscountError("more was delivered than its tokens contain")

    def _answer(self) -> Answer:
        delivered = Delivered.of(self._continuation, len(self._tokens))
        return Answer(self._name, self._prepared, self._piece, delivered=delivered)

    def _after(self, count: int) -> tuple[Answer, list[Item]]:
        """Return the answer after the first `count` tokens, and the new items among them."""
        answer = self._answer()
        return answer, answer.replay(self._tokens[:count])

    def _num_explained(self) -> int:
        """Return how many first tokens have log-probabilities that were all delivered."""
        if self._prepared.sequence.sampling.top_log_probs is None:
            return len(self._tokens)
        answer, count = self._answer(), 0
        for number, token in enumerate(self._tokens, 1):
            if any(isinstance(item, Piece) for item in answer.replay((token,))):
                break
            if answer.is_explained:
                count = number
        return count

    def _prepared_after(self, num_said: int) -> Prepared:
        """Return the preparation for a sequence that continues after the first `num_said` tokens.

        The remaining tokens are forced.
        """
        sequence, notices = self._prepared.sequence, self._prepared.notices
        said, forced = self._tokens[:num_said], self._tokens[num_said:]
        constraint = sequence.constraint
        if constraint is not None:
            constraint.after(self._tokens)  # what is forced has to fit as well
            constraint = constraint.after(said)
        if said and not sequence.sampling.can_resume:
            notices = (*notices, RESUMED_ANEW)
        sequence = replace(
            sequence,
            constraint=constraint,
            said=said,
            forced=forced,
            # All of an echoed prompt came before a token did.
            scores_prompt=sequence.scores_prompt and not self._tokens,
        )
        return replace(self._prepared, sequence=sequence, notices=notices)


# ---- an answer of which only the text is known


def has_text_only(continuation: Continuation) -> bool:
    """Return whether only the text of the answer is known."""
    return bool(continuation.text or continuation.num_tokens)


def retokenised(
    prepared: Prepared, continuation: Continuation, vocab: Vocab
) -> tuple[Prepared, Continuation]:
    """Return `prepared` and the continuation for an answer's text, in tokens of this model.

    Raises `ValueError` if this model could not have written the text.
    """
    _check_parsing(prepared.parsing)
    tokens = _tokens_of(continuation.text, vocab)
    more = continuation.num_tokens - len(tokens)
    own = Continuation.after(tokens, num_characters=len(continuation.text))
    return _recounted(prepared, more, len(tokens)), own


def check_retokenised(items: list[Item], text: str) -> None:
    """Raise `ValueError` unless `items` have only content, and their text begins `text`."""
    pieces = [item for item in items if isinstance(item, Piece)]
    said = "".join(piece.text for piece in pieces)
    if len(pieces) < len(items) or any(each.kind != "content" for each in pieces):
        raise ValueError("this model would not read its beginning as content")
    if not text.startswith(said):
        raise ValueError("this model would read its beginning as another text")


def _check_parsing(parsing: Parsing | None) -> None:
    """Raise `ValueError` if the model writes more than content: its text is not enough then."""
    if parsing is None:
        return
    if parsing.is_thinking:
        raise ValueError("this model would begin by reasoning")
    if parsing.family.has_channels or parsing.family.wrappers:
        raise ValueError(f"models of the family {parsing.family.name} write more than the text")


def _tokens_of(text: str, vocab: Vocab) -> tuple[int, ...]:
    encoded = text.encode(errors="replace")
    tokens = vocab.tokenize(text, add_special=False, parse_special=False)
    if _spelt(tokens, vocab) == encoded:
        return tokens
    head = vocab.tokenize(_BEFORE, add_special=False, parse_special=False)
    whole = vocab.tokenize(_BEFORE + text, add_special=False, parse_special=False)
    rest = whole[len(head) :]
    if whole[: len(head)] != head or _spelt(rest, vocab) != encoded:
        raise ValueError("this model has no tokens for exactly its text")
    return rest


def _spelt(tokens: tuple[int, ...], vocab: Vocab) -> bytes:
    return b"".join(map(vocab.piece, tokens))


def _recounted(prepared: Prepared, more: int, num_tokens: int) -> Prepared:
    """Return `prepared` with limits in tokens of this model.

    The client was told `more` tokens than this model has for the same text (negative if fewer).
    """
    sequence, stop = prepared.sequence, prepared.stop
    most, sampling = sequence.max_tokens, sequence.sampling
    sequence = replace(
        sequence,
        max_tokens=None if most is None else max(num_tokens, most - more),
        sampling=replace(sampling, min_tokens=max(0, sampling.min_tokens - more)),
    )
    stop = replace(stop, min_tokens=max(0, stop.min_tokens - more))
    return replace(prepared, sequence=sequence, stop=stop, num_more=more)
