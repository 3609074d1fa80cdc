"""An answer that one agent begins and another ends, and what a client gets of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sequence import SequenceEnd, SequenceId, SequenceOutput, SequenceStats
from arriero.agent.generation.answers.answer import Answer
from arriero.agent.generation.answers.prepared import Prepared
from arriero.agent.generation.answers.resumption import Resume, Resumed, resumed
from arriero.shared.continuation import Continuation
from arriero.shared.inference import Notice, Rates, RequestId, TokenLogProbs
from arriero.shared.messages import Called, CallStarted, Ended, Item, Noticed, Piece, PromptRead
from tests.agent.generation.outputs import said_and_forced

R = RequestId("r")
CONTEXT = 4096
STATS = SequenceStats(
    prompt_tokens=3,
    cached_tokens=0,
    completion_tokens=1,
    prefill_tokens=3,
    prefill_seconds=1.0,
    decode_seconds=None,
)


class Pieces:
    """A vocabulary: token `n` stands for the piece `n`, and one more ends an answer."""

    bos_text = eos_text = ""
    suppressed_tokens: frozenset[int] = frozenset()
    control_texts: tuple[str, ...] = ()
    fill_in = None

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self.size = len(pieces) + 1
        self.end_tokens = frozenset({len(pieces)})

    def piece(self, token: int) -> bytes:
        return self._pieces[token] if token < len(self._pieces) else b""

    def name(self, token: int) -> bytes:
        return self.piece(token)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        raise NotImplementedError


def likelihood(token: int) -> LogProbs:
    return LogProbs(token, -float(token + 1), ((token, -float(token + 1)),))


@dataclass
class Engine:
    """Says `tokens`, in steps of the sizes `groups`, then ends by itself."""

    prepared: Prepared
    tokens: Sequence[int]
    groups: Sequence[int]
    end: int | None
    """The token that ends the answer; `None` where its length does."""

    def outputs(self, *, scores_prompt: bool) -> Iterable[SequenceOutput]:
        explains = self.prepared.sequence.sampling.top_log_probs is not None
        if scores_prompt:
            prompt = [likelihood(token) for token in self.prepared.sequence.prompt.tokens[1:]]
            for size in (1, len(prompt)):
                part, prompt = tuple(prompt[:size]), prompt[size:]
                yield SequenceOutput(SequenceId(1), prompt_log_probs=part)
        start, sizes = 0, list(self.groups)
        while True:
            stop = start + (sizes.pop(0) if sizes else 1)
            tokens, start = tuple(self.tokens[start:stop]), stop
            is_last = stop >= len(self.tokens)
            chosen = (*tokens, self.end) if is_last and self.end is not None else tokens
            yield SequenceOutput(
                SequenceId(1),
                tokens,
                self._end() if is_last else None,
                stats=STATS,
                log_probs=tuple(map(likelihood, chosen)) if explains else (),
            )
            if is_last:
                return

    def _end(self) -> SequenceEnd:
        return SequenceEnd("length" if self.end is None else "stop", STATS)


def steps_of(answer: Answer, outputs: Iterable[SequenceOutput]) -> list[list[Item]]:
    """The items of `answer` as the engine gives `outputs`: step by step, and the end alone."""
    steps: list[list[Item]] = []
    for output in outputs:
        if answer.is_over:
            break
        steps.append(answer.take(output))
    *items, end = steps.pop()
    return [*steps, items, [end]]


def answer_of(answer: Answer, outputs: Iterable[SequenceOutput]) -> list[Item]:
    """All items of `answer` as the engine gives `outputs`."""
    return [item for step in steps_of(answer, outputs) for item in step]


def counted(items: Sequence[Item]) -> Continuation:
    """What a balancer says of `items` that it delivered."""
    pieces = [item for item in items if isinstance(item, Piece)]
    said = [piece for piece in pieces if piece.kind != "prompt"]
    echoed = [piece for piece in pieces if piece.kind == "prompt"]
    return Continuation.after(
        (token for piece in said for token in piece.tokens),
        num_characters=sum(len(piece.text) for piece in said),
        num_log_probs=sum(len(piece.log_probs or ()) for piece in said),
        num_prompt_characters=sum(len(piece.text) for piece in echoed),
        num_prompt_log_probs=sum(len(piece.log_probs or ()) for piece in echoed),
        num_calls_started=sum(isinstance(item, CallStarted) for item in items),
        num_calls=sum(isinstance(item, Called) for item in items),
    )


def resume(prepared: Prepared, continuation: Continuation, vocab: Pieces) -> Resumed:
    return resumed(prepared, Resume(R, continuation), vocab, CONTEXT)


def moved(
    prepared: Prepared, vocab: Pieces, delivered: Sequence[Item], engine: Engine
) -> list[list[Item]]:
    """What comes after `delivered` from an agent whose engine goes on as `engine` would have."""
    going_on = resume(prepared, counted(delivered), vocab)
    said, forced = said_and_forced(going_on)
    num_said, num_forced = len(said), len(forced)
    assert said == tuple(engine.tokens[:num_said])
    assert forced == tuple(engine.tokens[num_said : num_said + num_forced])
    rest = Engine(prepared, engine.tokens[num_said:], engine.groups, engine.end)
    scores = prepared.echo is not None and not (num_said or num_forced)
    outputs = rest.outputs(scores_prompt=scores)
    if going_on.answer.is_over:
        *items, end = going_on.items
        return [items, [end]]
    return [list(going_on.items), *steps_of(going_on.answer, outputs)]


@dataclass
class Told:
    """What a client can tell of an answer, however it was cut into pieces."""

    said: list[tuple[str, str]] = field(default_factory=list)
    """Text by kind, calls that begin and calls that end, in order."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[TokenLogProbs] = field(default_factory=list)
    prompt_log_probs: list[TokenLogProbs] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    """Each once: a balancer leaves out repeated ones."""
    end: Item | None = None

    @classmethod
    def by(cls, items: Iterable[Item]) -> "Told":
        told = cls()
        for item in items:
            assert told.end is None, "nothing follows the end"
            told.hear(item)
        return told

    def hear(self, item: Item) -> None:
        match item:
            case Piece(kind="prompt"):
                self._say("prompt", item.text)
                self.prompt_log_probs += item.log_probs or ()
            case Piece():
                self._say(item.kind, item.text)
                self.tokens += item.tokens
                self.log_probs += item.log_probs or ()
            case CallStarted():
                self.said.append(("call", f"{item.call_id} {item.name}"))
            case Called():
                self.said.append(("called", f"{item.call_id} {item.name} {item.arguments}"))
            case Noticed():
                notice = Notice(item.code, item.message)
                self.notices += [] if notice in self.notices else [notice]
            case PromptRead():
                pass
            case Ended():
                self.end = replace(item, rates=Rates())  # the second agent's are of its own
            case _:
                raise AssertionError(item)

    def _say(self, kind: str, text: str) -> None:
        if self.said and self.said[-1][0] == kind:
            self.said[-1] = (kind, self.said[-1][1] + text)
        elif text:
            self.said.append((kind, text))
