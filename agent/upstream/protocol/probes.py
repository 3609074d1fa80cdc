"""What an upstream server can do, found out by trying: which requests it gets, and in which form.

Each probe is one small request and a verdict on its answer. Servers differ less in what they refuse
than in what they take and ignore, so a verdict looks for the effect wherever there is one.
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
"""Encoders hear pieces of a few hundredths of a second; servers refuse a sound without one."""


_PITCH = 440


_LOUDNESS = 9_000


def tone() -> str:
    """A short sound, to try whether a server hears: a WAV file in base64, 16 bits, one channel."""
    count = int(RATE * SECONDS)
    samples = (int(_LOUDNESS * sin(2 * pi * _PITCH * at / RATE)) for at in range(count))
    data = struct.pack(f"<{count}h", *samples)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    return b64encode(struct.pack("<4sI", b"RIFF", len(body)) + body).decode()


MAX_TOKENS = 32
"""Most tokens of an answer to the probe of `ignore_eos`."""

MAX_CONSTRAINED = 128
"""Most tokens where an answer is constrained; only models that think first use them all."""

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
    """Post `body` to `path`; the server can do `shows` if it takes that and `is_right`."""

    shows: Ability | str
    path: str
    body: Mapping[str, Any]
    is_right: Verdict = lambda _: True


def first_probe(model: str) -> Probe:
    """Whether it chats: most other probes need that."""
    body = {**_few(model), "messages": _ASKED}
    return Probe(shows="messages", path=CHAT, body=body, is_right=_has_choice)


def probes_of(model: str, dialect: Dialect) -> tuple[Probe, ...]:
    """All others of the model called `model`, on a server of this dialect."""
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
    """The answer; of a stream, all its chunks as `chunks`."""
    if not body.startswith(b"data:"):
        document: Json = from_json(body)
        return document
    events = EventLines().push(body + b"\n")
    return {"chunks": [from_json(each) for each in events if each and each != DONE]}


def passes(probe: Probe, body: bytes) -> bool:
    """Whether the answer `body` to `probe` shows what it looks for."""
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
    """A server that takes the ids for texts or digits counts other tokens."""
    return bool(len(_IDS) <= answer["usage"]["prompt_tokens"] <= len(_IDS) + 1)


def _has_log_probs(answer: Json) -> bool:
    return bool(_choice(answer)["logprobs"]["content"][0]["top_logprobs"])


def _calls(answer: Json) -> bool:
    """A model that is not forced answers yes; one that is, and thinks first, may be cut off."""
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
    """Whether it was cut off while it still thought: it took the field, and no more is known."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    is_cut = _choice(answer).get("finish_reason") == "length"
    return bool(thought) and not message.get("content") and is_cut


def _goes_on(answer: Json) -> bool:
    """An answer of one word ends at once, unless the end is ignored."""
    return bool(answer["usage"]["completion_tokens"] >= MAX_TOKENS)


def _is_vector(answer: Json) -> bool:
    return len(answer["data"][0]["embedding"]) > 0


LEAST_SAID = 8
"""Characters of the second half that have to be there, and the same."""
MOST_SAID = 24
"""Characters that are compared: later ones may differ where a server computes in other batches."""

_QUESTION = {"role": "user", "content": "Count from one to thirty in words, with commas."}


def opening_probe(model: str) -> Probe:
    """A question without chance; its answer goes to `going_on_probe`.

    The server then gets the first half of its answer, and should say the second. A server that
    takes the half for a finished message begins a new one. Both answers are streamed, as those to
    requests are: some servers repeat the half in an answer that is not.
    """
    return Probe(shows="opening", path=CHAT, body=_body(model, []))


def going_on_probe(model: str, dialect: Dialect, opening: bytes) -> Probe | None:
    """Whether it goes on. `None` where the answer `opening` does not show it."""
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
    """The answer's halves, cut before a word; `None` if it is too short, or repeats itself."""
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
"""What newer models of OpenAI call fields."""

_TOKENS: frozenset[Ability] = frozenset(("tokenize", "detokenize"))
_COUNTS: frozenset[Ability] = frozenset(("count_tokens",))


def wants_new_names(message: str) -> bool:
    """Whether a server's refusal says that it calls `max_tokens` otherwise."""
    return OLD_NAMES["max_tokens"] in message


def with_new_names(probe: Probe) -> Probe:
    """The same probe, in the words of such a server."""
    body = {OLD_NAMES.get(name, name): value for name, value in probe.body.items()}
    return replace(probe, body=body)


def server_of(
    model: ListedModel, dialect: Dialect, shown: Collection[str], *, has_new_names: bool
) -> Server:
    """The server, of which probes have `shown` something."""
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
    """What balancers hear: the model under the `name` that clients use."""
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
