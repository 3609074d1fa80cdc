"""Tests what an upstream server can do, and so which requests it gets, and in which form.

Each probe is one small request and a verdict on its answer. Many servers accept fields and ignore
them, so a verdict looks for an effect of the field if there is one.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import pi, sin
from typing import Any

from pydantic_core import from_json

from ....shared.inference.abilities import ABILITIES, Ability
from ....shared.reports.model_info import ModelInfo, Task, Upstream
from .answer import DONE
from .bodies import CHAT, TEXT, Json, Server
from .continuing import fingerprint_of
from .dialects import Dialect
from .event_lines import EventLines
from .listing import ListedModel

RATE = 16_000


SECONDS = 0.5
"""Length of the test sound in seconds; servers refuse an empty sound."""


_PITCH = 440


_LOUDNESS = 9_000


def tone() -> str:
    """Return a short sound, to test audio: a WAV file in base64, 16 bits, one channel."""
    count = int(RATE * SECONDS)
    samples = (int(_LOUDNESS * sin(2 * pi * _PITCH * at / RATE)) for at in range(count))
    data = struct.pack(f"<{count}h", *samples)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    return b64encode(struct.pack("<4sI", b"RIFF", len(body)) + body).decode()


MAX_TOKENS = 32
"""Maximum tokens of an answer to the probe of `ignore_eos`."""

MAX_CONSTRAINED = 128
"""Maximum tokens of a constrained answer; only models that think first use all of them."""

EMBEDDINGS = "/embeddings"

_ASKED = [{"role": "user", "content": "Answer with the one word: yes"}]
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}
_RED = (  # a PNG of 64 by 64 pixels: some models read none that are smaller than their patches
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYr"
    "sKZeS0BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3"
    "AAAAAElFTkSuQmCC"
)
_PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_RED}"}}
_SEEN = [{"role": "user", "content": [{"type": "text", "text": "Which colour?"}, _PICTURE]}]
_HEARD = [
    {"type": "text", "text": "What do you hear?"},
    {"type": "input_audio", "input_audio": {"data": tone(), "format": "wav"}},
]
_ONLY = '{"arriero":"probe"}'
_SCHEMA = {
    "type": "object",
    "properties": {"arriero": {"type": "string", "enum": ["probe"]}},
    "required": ["arriero"],
    "additionalProperties": False,
}
_IDS = [5, 6, 7]

Verdict = Callable[[Json], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A request and its verdict. The ability `shows` is proven if the answer passes.

    Post `body` to `path`; if the server accepts it, `is_right` judges the answer.
    """

    shows: Ability | str
    path: str
    body: Mapping[str, Any]
    is_right: Verdict = lambda _: True


def first_probe(model: str) -> Probe:
    """Return the probe for chat, which most other probes need."""
    body = {**_few(model), "messages": _ASKED}
    return Probe(shows="messages", path=CHAT, body=body, is_right=_has_choice)


def probes_of(model: str, dialect: Dialect) -> tuple[Probe, ...]:
    """Return all other probes for the model called `model` on a server of this dialect."""
    known = (_end_probe(model),) if "ignore_eos" in dialect.sampling else ()
    return (*_text_probes(model), *_field_probes(model), *_constraint_probes(model), *known)


def _few(model: str) -> Json:
    return {"model": model, "max_tokens": 4}


def _chat(model: str, **more: Any) -> Json:
    return {**_few(model), "messages": _ASKED} | more


def _text_probes(model: str) -> tuple[Probe, ...]:
    text = {**_few(model), "prompt": "One, two, three,"}
    vector = {"model": model, "input": "a"}
    return (
        Probe(shows="prompt", path=TEXT, body=text, is_right=_has_choice),
        Probe(shows="token_ids", path=TEXT, body=text | {"prompt": _IDS}, is_right=_counts_ids),
        Probe(shows="embed", path=EMBEDDINGS, body=vector, is_right=_is_vector),
    )


def _field_probes(model: str) -> tuple[Probe, ...]:
    counting = {"stream": True, "stream_options": {"include_usage": True}}
    scored = {"logprobs": True, "top_logprobs": 1}
    heard = _chat(model, messages=[{"role": "user", "content": _HEARD}])
    return (
        Probe(shows="seed", path=CHAT, body=_chat(model, seed=1), is_right=_has_choice),
        Probe(shows="counts", path=CHAT, body=_chat(model, **counting), is_right=_counts),
        Probe(shows="logprobs", path=CHAT, body=_chat(model, **scored), is_right=_has_log_probs),
        Probe(shows="tools", path=CHAT, body=_chat(model, tools=[_TOOL]), is_right=_has_choice),
        Probe(shows="vision", path=CHAT, body=_chat(model, messages=_SEEN), is_right=_has_choice),
        Probe(shows="audio", path=CHAT, body=heard, is_right=_has_choice),
    )


def _constraint_probes(model: str) -> tuple[Probe, ...]:
    named = {"name": "answer", "schema": _SCHEMA, "strict": True}
    shape = {"response_format": {"type": "json_schema", "json_schema": named}}
    forced = {"tools": [_TOOL], "tool_choice": "required"}
    schema = _chat(model, max_tokens=MAX_CONSTRAINED, **shape)
    called = _chat(model, max_tokens=MAX_CONSTRAINED, **forced)
    return (
        Probe(shows="json_schema", path=CHAT, body=schema, is_right=_keeps_to_schema),
        Probe(shows="forced_calls", path=CHAT, body=called, is_right=_calls),
    )


def _end_probe(model: str) -> Probe:
    body = _chat(model, max_tokens=MAX_TOKENS, ignore_eos=True)
    return Probe(shows="ignore_eos", path=CHAT, body=body, is_right=_goes_on)


def read(body: bytes) -> Json:
    """Return the answer; for a stream, all its chunks as `chunks`."""
    if not body.startswith(b"data:"):
        document: Json = from_json(body)
        return document
    events = EventLines().push(body + b"\n")
    return {"chunks": [from_json(each) for each in events if each and each != DONE]}


def passes(probe: Probe, body: bytes) -> bool:
    """Return whether the answer `body` passes `probe`."""
    try:
        return probe.is_right(read(body))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False


def _choice(answer: Json) -> Json:
    choice: Json = answer["choices"][0]
    return choice


def _has_choice(answer: Json) -> bool:
    return bool(_choice(answer))


def _counts(answer: Json) -> bool:
    return any("usage" in each and each["usage"] for each in answer["chunks"])


def _counts_ids(answer: Json) -> bool:
    """Return whether the server counted the ids as tokens, not as texts or digits."""
    return bool(len(_IDS) <= answer["usage"]["prompt_tokens"] <= len(_IDS) + 1)


def _has_log_probs(answer: Json) -> bool:
    return bool(_choice(answer)["logprobs"]["content"][0]["top_logprobs"])


def _calls(answer: Json) -> bool:
    """Return whether the answer is a call, or was cut off while the model still thought."""
    message = _choice(answer)["message"]
    return bool(message.get("tool_calls")) or _only_thought(message, answer)


def _keeps_to_schema(answer: Json) -> bool:
    message = _choice(answer)["message"]
    if _only_thought(message, answer):
        return True
    text = "".join(message["content"].split())
    is_cut = _choice(answer).get("finish_reason") == "length"
    return bool(text == _ONLY or (is_cut and text and _ONLY.startswith(text)))


def _only_thought(message: Json, answer: Json) -> bool:
    """Return whether the answer was cut off within reasoning: the field is accepted."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    is_cut = _choice(answer).get("finish_reason") == "length"
    return bool(thought) and not message.get("content") and is_cut


def _goes_on(answer: Json) -> bool:
    """Return whether the answer is long. A one-word answer ends at once unless the end
    is ignored.
    """
    return bool(answer["usage"]["completion_tokens"] >= MAX_TOKENS)


def _is_vector(answer: Json) -> bool:
    return len(answer["data"][0]["embedding"]) > 0


LEAST_SAID = 8
"""Minimum characters of the second half that must be present and equal."""
MOST_SAID = 24
"""Characters that are compared; later ones may differ if a server uses other batches."""

_QUESTION = {"role": "user", "content": "Count from one to thirty in words, with commas."}


def opening_probe(model: str) -> Probe:
    """Return a deterministic question, whose answer `going_on_probe` uses.

    The server then gets the first half of its answer, and should generate the second half. A
    server that takes the half for a finished message begins a new message. Both answers are
    streamed like answers to requests, because some servers repeat the half in answers that are not
    streamed.
    """
    return Probe(shows="opening", path=CHAT, body=_body(model, []))


def going_on_probe(model: str, dialect: Dialect, opening: bytes) -> Probe | None:
    """Return the probe for continuing an answer; `None` if `opening` is unsuitable."""
    halves = cut(opening)
    if halves is None:
        return None
    first, second = halves
    given = {"role": "assistant", "content": first}
    return Probe(
        shows="continue_final_message",
        path=CHAT,
        body=_body(model, [given]) | dict(dialect.continues),
        is_right=lambda answer: _agree(_said(answer), second),
    )


def cut(opening: bytes) -> tuple[str, str] | None:
    """Return the answer's halves, cut before a word; `None` if it is too short or repetitive."""
    try:
        text = _said(read(opening))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None
    place = text.find(" ", len(text) // 2)
    first, second = text[:place], text[place:]
    if place <= 0 or not first.strip() or len(second) < LEAST_SAID:
        return None
    if first != first.rstrip() or first.startswith(second[:LEAST_SAID].strip()):
        return None
    return first, second


def _body(model: str, given: list[Json]) -> Json:
    messages: list[Any] = [_QUESTION, *given]
    few = {"max_tokens": MAX_TOKENS, "temperature": 0, "stream": True}
    return {"model": model, "messages": messages, **few}


def _said(answer: Json) -> str:
    choices = [choice for chunk in answer["chunks"] for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def _agree(one: str, other: str) -> bool:
    num = min(len(one), len(other), MOST_SAID)
    return num >= LEAST_SAID and one[:num] == other[:num]


OLD_NAMES: Mapping[str, str] = {"max_tokens": "max_completion_tokens"}
"""Fields with another name in newer models of OpenAI, and their new names."""

_TOKENS: frozenset[Ability] = frozenset(("tokenize", "detokenize"))
_COUNTS: frozenset[Ability] = frozenset(("count_tokens",))


def wants_new_names(message: str) -> bool:
    """Return whether a server's refusal demands the new name of `max_tokens`."""
    return OLD_NAMES["max_tokens"] in message


def with_new_names(probe: Probe) -> Probe:
    """Return the probe with the new names."""
    body = {OLD_NAMES.get(name, name): value for name, value in probe.body.items()}
    return replace(probe, body=body)


def server_of(
    model: ListedModel, dialect: Dialect, shown: Collection[str], *, has_new_names: bool
) -> Server:
    """Return the server's properties from the probes that it passed (`shown`)."""
    return Server(
        dialect=dialect,
        model=model.id,
        abilities=_abilities(dialect, shown),
        counts_at_end="counts" in shown,
        renamed=OLD_NAMES if has_new_names else {},
        refused=frozenset() if "seed" in shown else frozenset(("seed",)),
        embeds="embed" in shown,
    )


def _abilities(dialect: Dialect, shown: Collection[str]) -> frozenset[Ability]:
    tried = frozenset(each for each in ABILITIES if each in shown)
    tokens = _TOKENS if dialect.tokenizer is not None else frozenset()
    counts = _COUNTS if dialect.counter is not None else frozenset()
    return tried | dialect.abilities | tokens | counts


def info_of(server: Server, model: ListedModel, name: str, address: str) -> ModelInfo:
    """Return the description for balancers: the model under the `name` that clients use."""
    tasks: tuple[Task, ...] = ()
    if server.abilities & {"messages", "prompt"}:
        tasks += ("generate",)
    if server.abilities >= {"messages", "vision"}:
        tasks += ("vision",)
    if server.abilities >= {"messages", "audio"}:
        tasks += ("audio",)
    if server.embeds:
        tasks += ("embed",)
    return ModelInfo(
        name=name,
        architecture=server.dialect.kind,
        parameters=0,
        size_bytes=0,
        context_size=model.context_size,
        tasks=tasks,
        fingerprint=fingerprint_of(server, model),
        upstream=Upstream(
            kind=server.dialect.kind, address=address, abilities=tuple(sorted(server.abilities))
        ),
    )
