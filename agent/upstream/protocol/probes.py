"""What an upstream server can do, found out by trying.

Each probe is one small request and a verdict on its answer. Servers differ less in what they refuse
than in what they take and ignore, so a verdict looks for the effect wherever there is one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from ....shared.inference.abilities import Ability
from .answer import DONE
from .bodies import CHAT, TEXT, Json
from .dialects import Dialect
from .event_lines import EventLines
from .tone import tone

MAX_TOKENS = 32
"""Most tokens of an answer to the probe of `ignore_eos`."""

MAX_CONSTRAINED = 128
"""Of those that constrain an answer; only models that think first use them all."""

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
