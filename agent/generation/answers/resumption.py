"""Goes on with an answer that another agent began: its tokens pass through the answer again.

What was delivered is counted by the balancer; what of the tokens gives more is sent at once. Where
log-probabilities are wanted, tokens of which they were not delivered are generated again, as they
were: only the engine can tell how likely they were.

Of an answer that a server began, or an engine with other weights, only the text is known:
`retelling` has it as tokens.

With many tokens this takes seconds, so it is done where requests are prepared.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....shared.continuation import Continuation
from ....shared.errors import AgentLost, EngineFailed, RequestError
from ....shared.inference import Notice, RequestId
from ....shared.messages import Item, Piece
from ...engine.grammar.constraint import ConstraintError
from ...engine.loaded_model import Vocab
from ...engine.sampling.resumed_chance import can_resume
from .answer import Answer
from .delivered import Delivered, MiscountError
from .prepared import Prepared
from .retelling import check_retold, is_told, retold

RESUMED_ANEW = Notice(
    "resumed_anew",
    "another agent goes on with the answer, and could not restore the state of its sampling "
    "(mirostat, XTC): what follows may differ from what the first agent would have written",
)

_CHARACTERS_PER_TOKEN = 16
"""A token takes 3 to 15 microseconds to replay, with log-probabilities and a grammar more."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with the request that its balancer calls `name`."""

    name: RequestId
    continuation: Continuation

    @property
    def work(self) -> int:
        """How long it takes, in characters of a prompt that takes as long to prepare."""
        return max(_CHARACTERS_PER_TOKEN * self.num_tokens, len(self.continuation.text))

    @property
    def num_tokens(self) -> int:
        """How many tokens the answer has so far."""
        return len(self.continuation.packed_tokens) // 4 or self.continuation.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """`items` come first; then the engine goes on after `said`, with what is `forced`.

    An answer that is over needs no engine.
    """

    prepared: Prepared
    answer: Answer
    items: tuple[Item, ...]
    said: tuple[int, ...]
    forced: tuple[int, ...]


Outcome = Prepared | Resumed | RequestError
"""A preparation succeeds, or fails."""


def resumed(prepared: Prepared, resume: Resume, vocab: Vocab, context_size: int) -> Resumed:
    """`prepared` after what was delivered.

    Raises `EngineFailed` if it cannot go on after that, by its text `AgentLost`.
    """
    is_by_text = is_told(resume.continuation)
    try:
        if is_by_text:
            prepared, resume = _retold(prepared, resume, vocab)
        tokens = _checked(prepared, resume.continuation, vocab, context_size)
        replay = _Replay(resume, prepared, tokens, vocab.piece)
        return replay.resumed()
    except (ValueError, MiscountError, ConstraintError) as error:
        failure = AgentLost if is_by_text else EngineFailed
        raise failure(f"the answer cannot go on at this agent: {error}") from error


def _retold(prepared: Prepared, resume: Resume, vocab: Vocab) -> tuple[Prepared, Resume]:
    """The same, of an answer of which only the text is known."""
    text = resume.continuation.text
    prepared, continuation = retold(prepared, resume.continuation, vocab)
    check_retold(Answer(resume.name, prepared, vocab.piece).replay(continuation.tokens), text)
    return prepared, replace(resume, continuation=continuation)


def _checked(
    prepared: Prepared, continuation: Continuation, vocab: Vocab, context_size: int
) -> tuple[int, ...]:
    """The tokens of `continuation`. Raises `ValueError` that says what is wrong with them."""
    if len(continuation.packed_tokens) % 4:
        raise ValueError("its token ids are not whole numbers of 32 bits")
    tokens = continuation.tokens
    if (largest := max(tokens, default=0)) >= vocab.size:
        raise ValueError(f"there is no token {largest}; ids go up to {vocab.size - 1}")
    if ends := vocab.end_tokens.intersection(tokens):
        raise ValueError(f"the token {min(ends)} would have ended it")
    if prepared.max_tokens is not None and len(tokens) > prepared.max_tokens:
        raise ValueError(f"{len(tokens)} tokens are more than `max_tokens`")
    if prepared.shift is None and len(prepared.prompt) + len(tokens) > context_size:
        raise ValueError(
            f"with {len(tokens)} tokens after a prompt of {len(prepared.prompt)} it is longer than "
            f"the context of {context_size}"
        )
    return tokens


class _Replay:
    """One answer's `tokens`, which were all delivered."""

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
        said = self._tokens[:num_said]
        return Resumed(
            prepared=self._prepared_after(said),
            answer=answer,
            items=tuple(items),
            said=said,
            forced=self._tokens[num_said:],
        )

    def _check_end(self) -> None:
        answer, _ = self._after(len(self._tokens))
        if not answer.would_be_past_delivered():
            raise MiscountError("more of it was delivered than its tokens give")

    def _answer(self) -> Answer:
        delivered = Delivered.of(self._continuation, len(self._tokens))
        return Answer(self._name, self._prepared, self._piece, delivered=delivered)

    def _after(self, count: int) -> tuple[Answer, list[Item]]:
        """The answer after the first `count` tokens, and what of them is new."""
        answer = self._answer()
        return answer, answer.replay(self._tokens[:count])

    def _num_explained(self) -> int:
        """How many tokens need not be generated again, because nothing of them is to be sent."""
        if self._prepared.sampling.top_log_probs is None:
            return len(self._tokens)
        answer, count = self._answer(), 0
        for number, token in enumerate(self._tokens, 1):
            if any(isinstance(item, Piece) for item in answer.replay((token,))):
                break
            if answer.is_explained:
                count = number
        return count

    def _prepared_after(self, said: tuple[int, ...]) -> Prepared:
        prepared = self._prepared
        constraint = prepared.constraint
        if constraint is not None:
            constraint.after(self._tokens)  # what is forced has to fit as well
            constraint = constraint.after(said)
        is_anew = bool(said) and not can_resume(prepared.sampling)
        return replace(
            prepared,
            constraint=constraint,
            notices=(*prepared.notices, RESUMED_ANEW) if is_anew else prepared.notices,
        )
