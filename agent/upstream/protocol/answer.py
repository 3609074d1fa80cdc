"""One answer of an upstream server: chunks in, neutral items out.

Invariant: there is exactly one end, `Ended`, after the server's last chunk, and no item after it.

These servers do not send token ids, so pieces have id 0 for each token. Only the number of tokens
counts, since an answer from an upstream is continued by its text. If the server reports no counts
while it streams, a chunk counts as one token, and the end corrects the count.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from ....shared.errors import shortened
from ....shared.inference import (
    MAX_COUNT,
    MAX_TOP_LOGPROBS,
    FinishReason,
    LogProb,
    Rates,
    RequestId,
    TokenKind,
    TokenLogProbs,
    Usage,
)
from ....shared.inference.events import MAX_TOKEN_BYTES
from ....shared.messages import (
    MAX_NAME,
    MAX_WORDS,
    Called,
    CallStarted,
    Ended,
    Item,
    Noticed,
    Piece,
    PromptRead,
)
from .continuing import Rest
from .failures import UpstreamFault, words_of

Json = dict[str, Any]

DONE = b"[DONE]"
MAX_MISSING = 2**16
"""Maximum tokens that are counted at the end because they did not arrive one by one."""

_REASONING = ("reasoning_content", "reasoning")
_FINISHED: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


@dataclass(slots=True)
class _Call:
    """A call that is being written."""

    id: str
    name: str
    index: int
    arguments: list[str] = field(default_factory=list)


class UpstreamAnswer:
    """The answer to the request `id`. `one_call`: it ends before a second call begins.

    If another agent began the answer, `rest` is the remaining part.
    """

    def __init__(
        self,
        id: RequestId,
        *,
        one_call: bool = False,
        rest: Rest | None = None,
        most_tokens: int = MAX_COUNT,
    ) -> None:
        """Begin an answer. `most_tokens` limits the token count that a server may report."""
        self._id = id
        self._most_tokens = most_tokens
        self._one_call = one_call
        self._rest = rest
        self._call: _Call | None = None
        self._num_calls = 0
        self._num_tokens = 0
        self._num_reasoning = 0
        self._usage: Usage | None = None
        self._finish: FinishReason | None = None
        self._stop_string: str | None = None
        self._is_prompt_reported = False
        self.is_over = False
        """True once the server's answer is complete, so that `ended` may be called."""
        self.has_begun = False
        """True once any part of the answer has arrived."""

    @property
    def num_tokens(self) -> int:
        """The tokens that arrived from this server so far, as far as known."""
        return self._num_tokens

    def take(self, data: bytes) -> list[Item]:
        """Return the items of one event. Raises `UpstreamFault` if it is invalid."""
        if data == DONE:
            self.is_over = self._finish is not None
            if not self.is_over:
                raise UpstreamFault("its answer ended without a reason")
            return []
        if self.is_over or not data:
            return []
        try:
            chunk = from_json(data)
        except ValueError as error:
            raise UpstreamFault(f"a chunk is not JSON: {error}") from error
        try:
            return list(self._taken(chunk))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise UpstreamFault("a chunk does not have the shape of OpenAI's API") from error

    def closed(self) -> None:
        """Note the end of the stream. Raises `UpstreamFault` if the answer is incomplete."""
        if self._finish is None:
            raise UpstreamFault("it closed the connection in the middle of the answer")
        self.is_over = True

    def ended(self, rates: Rates) -> list[Item]:
        """Return the last items, once the answer `is_over`."""
        reason = self._finish or "stop"
        if self._num_calls and reason == "stop":
            reason = "tool_calls"
        usage = self._usage or self._counted()
        items: list[Item] = [*self._close_call(), *self._unseen(usage)]
        if not self._is_prompt_reported and usage.prompt_tokens:
            items.append(self._prompt_read(usage))
        return [*items, self._end(reason, usage, rates)]

    def cancelled(self, rates: Rates) -> Ended:
        """Return the end of an answer that was cancelled."""
        return self._end("cancelled", self._usage or self._counted(), rates)

    def full(self) -> Ended:
        """Return the end of an answer that already has its maximum tokens."""
        return self._end("length", Usage(), Rates())

    @property
    def usage(self) -> Usage:
        """This server's counts so far."""
        return self._usage or self._counted()

    # ---- one chunk

    def _taken(self, chunk: Json) -> Iterator[Item]:
        if chunk.get("error"):
            raise UpstreamFault(words_of(str(chunk["error"]).encode()) or "it reports an error")
        known = self._num_tokens
        counted = self._read_usage(chunk.get("usage"))
        if counted is not None and not self._is_prompt_reported and counted.prompt_tokens:
            yield self._prompt_read(counted)
        for choice in chunk.get("choices") or ():
            new = max(0, counted.completion_tokens - known) if counted else None
            yield from self._chosen(choice, new)

    def _chosen(self, choice: Json, num_new: int | None) -> Iterator[Item]:
        delta = choice.get("delta") or {}
        log_probs = tuple(log_probs_of(choice.get("logprobs")))
        pieces = list(self._pieces(choice, delta))
        for place, (kind, text) in enumerate(pieces):
            first = place == 0
            new = (len(log_probs) or (1 if num_new is None else num_new)) if first else 0
            yield self._piece(text, kind, new, log_probs if first else ())
        for call in delta.get("tool_calls") or ():
            if self.is_over:
                return
            yield from self._called(call, num_new)
        if reason := choice.get("finish_reason"):
            yield from self._finished(reason, choice)

    def _pieces(self, choice: Json, delta: Json) -> Iterator[tuple[TokenKind, str]]:
        for name in _REASONING:
            if text := _text(delta.get(name)):
                if self._rest is not None:
                    raise UpstreamFault("it began to reason again in the middle of the answer")
                yield "reasoning", text
                break
        if text := _text(delta.get("content") or choice.get("text")):
            yield "content", text if self._rest is None else self._rest.joined(text)

    def _piece(
        self, text: str, kind: TokenKind, num_new: int, log_probs: tuple[TokenLogProbs, ...]
    ) -> Piece:
        self.has_begun = True
        self._num_tokens += num_new
        if kind == "reasoning":
            self._num_reasoning += num_new
        return Piece(
            id=self._id,
            text=text,
            kind=kind,
            tokens=(0,) * min(num_new, MAX_MISSING),
            log_probs=log_probs or None,
        )

    # ---- calls

    def _called(self, call: Json, num_new: int | None) -> Iterator[Item]:
        function = call.get("function") or {}
        index = call.get("index") or 0
        name = _text(function.get("name"))
        is_new = self._call is None or index != self._call.index
        if is_new and name:
            yield from self._close_call()
            if self._one_call and self._num_calls:
                self._finish, self.is_over = "tool_calls", True
                return
            yield self._start_call(call, name, index)
        elif is_new:
            raise UpstreamFault("it continues a call that had ended")
        if text := _written(function.get("arguments")):
            self._open_call.arguments.append(text)
            yield self._piece(text, "tool_call", 1 if num_new is None else num_new, ())

    @property
    def _open_call(self) -> _Call:
        if self._call is None:
            raise UpstreamFault("arguments came before the name of the tool")
        return self._call

    def _start_call(self, call: Json, name: str, index: int) -> CallStarted:
        self.has_begun = True
        id = _text(call.get("id")) or f"call_{self._id}_{self._num_calls}"
        id, name = shortened(id, MAX_NAME), shortened(name, MAX_NAME)
        self._num_calls += 1
        self._call = _Call(id, name, index)
        return CallStarted(id=self._id, call_id=id, name=name)

    def _close_call(self) -> Iterator[Item]:
        call, self._call = self._call, None
        if call is not None:
            arguments = "".join(call.arguments) or "{}"
            yield Called(id=self._id, call_id=call.id, name=call.name, arguments=arguments)

    # ---- the end

    def _finished(self, reason: str, choice: Json) -> Iterator[Item]:
        if reason in ("abort", "error"):
            raise UpstreamFault(f"it gave up the answer ({reason})")
        self._finish = _FINISHED.get(reason, "stop")
        matched = choice.get("stop_reason", choice.get("matched_stop"))
        self._stop_string = matched[:MAX_WORDS] if isinstance(matched, str) else None
        if reason == "content_filter":
            message = "the upstream server's content filter ended the answer"
            yield Noticed(id=self._id, code="content_filter", message=message)

    def _unseen(self, usage: Usage) -> Iterator[Item]:
        """Yield tokens that had no chunk of their own: several in one chunk, or without text."""
        missing = min(usage.completion_tokens - self._num_tokens, MAX_MISSING)
        if missing > 0 and self.has_begun:
            yield self._piece("", "content", missing, ())

    def _end(self, reason: FinishReason, usage: Usage, rates: Rates) -> Ended:
        stopped_by = self._stop_string if reason == "stop" else None
        return Ended(
            id=self._id,
            finish_reason=reason,
            stop_string=stopped_by,
            usage=self._whole(usage),
            rates=rates,
        )

    # ---- counts

    def _read_usage(self, usage: Json | None) -> Usage | None:
        if not usage:
            return None
        prompt = usage.get("prompt_tokens_details") or {}
        answer = usage.get("completion_tokens_details") or {}
        num_prompt = _count(usage.get("prompt_tokens"))
        num_answer = min(_count(usage.get("completion_tokens")), self._most_tokens)
        self._usage = Usage(
            prompt_tokens=num_prompt,
            cached_tokens=min(_count(prompt.get("cached_tokens")), num_prompt),
            completion_tokens=num_answer,
            reasoning_tokens=min(
                _count(answer.get("reasoning_tokens") or usage.get("reasoning_tokens"))
                or self._num_reasoning,
                num_answer,
            ),
        )
        return self._usage

    def _counted(self) -> Usage:
        return Usage(completion_tokens=self._num_tokens, reasoning_tokens=self._num_reasoning)

    def _whole(self, usage: Usage) -> Usage:
        return usage if self._rest is None else self._rest.whole(usage)

    def _prompt_read(self, usage: Usage) -> PromptRead:
        self._is_prompt_reported = True
        whole = self._whole(usage)
        return PromptRead(
            id=self._id, prompt_tokens=whole.prompt_tokens, cached_tokens=whole.cached_tokens
        )


def _text(value: Any) -> str:
    """Return text, empty for null. Raises `TypeError` for other types."""
    if value is None or isinstance(value, str):
        return value or ""
    raise TypeError("must be a string")


def _count(value: Any) -> int:
    return min(max(0, int(value or 0)), MAX_COUNT)


def _written(arguments: Any) -> str:
    """Return a call's arguments as text; some servers send them as an object."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return to_json(arguments).decode()


LEAST_LOG_PROB = -9999.0
"""Used by servers for minus infinity, which JSON does not have."""


def log_probs_of(log_probs: Json | None) -> Iterator[TokenLogProbs]:
    """Yield the log-probabilities of each token of a chunk; ids that the server omits are 0.

    Raises `KeyError`, `TypeError`, `IndexError` or `AttributeError` for an unknown format.
    """
    if not log_probs:
        return
    for entry in log_probs.get("content") or ():
        top = entry.get("top_logprobs") or ()
        yield TokenLogProbs(_of_chat(entry), tuple(map(_of_chat, top[:MAX_TOP_LOGPROBS])))
    tops = log_probs.get("top_logprobs") or ()
    for place, token in enumerate(log_probs.get("tokens") or ()):
        top = (tops[place] if place < len(tops) else None) or {}
        likely = [_of_text(text, value) for text, value in top.items()]
        chosen = _of_text(token, log_probs["token_logprobs"][place])
        yield TokenLogProbs(chosen, tuple(likely[:MAX_TOP_LOGPROBS]))


def _of_chat(entry: Json) -> LogProb:
    given, id = entry.get("bytes"), entry.get("id")
    piece = bytes(given) if isinstance(given, list) else entry["token"].encode()
    token = id if isinstance(id, int) and 0 <= id <= MAX_COUNT else 0
    return LogProb(token, piece[:MAX_TOKEN_BYTES], _bounded(entry["logprob"]))


def _of_text(token: str, value: float | None) -> LogProb:
    return LogProb(0, token.encode()[:MAX_TOKEN_BYTES], _bounded(value))


def _bounded(value: float | None) -> float | None:
    return None if value is None else min(0.0, max(LEAST_LOG_PROB, float(value)))
