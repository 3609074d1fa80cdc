"""Malicious or broken requests, and messages of agents: Hypothesis strategies for every API.

A body starts as one that is served, then some of its values are exchanged for the largest,
smallest, deepest and longest of every kind, and for ones that mean something to a template, a
grammar or a tokeniser. So most bodies get past the first check and reach the code behind it.
What agents say is drawn from the schema of their messages, so a new message is among it by itself.
"""

import copy
import json
import struct
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from arriero.shared import messages
from arriero.shared.errors import BY_CODE

T = TypeVar("T")
Json = Any
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
MESSAGES = [{"role": "user", "content": "What is a slot?"}]
SHORT = 4
"""Tokens that are asked for unless a mutation says otherwise."""

BOUNDS = {"max_tokens", "max_output_tokens"}
"""Fields that are left out only by mutation: without them an answer takes long."""

SAMPLING = {
    "temperature": 0.7,
    "top_k": 5,
    "top_p": 0.9,
    "min_p": 0.1,
    "typical_p": 0.9,
    "top_n_sigma": 1.0,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.1,
    "dynatemp_range": 0.5,
    "dynatemp_exponent": 1.0,
    "adaptive_target": 0.5,
    "adaptive_decay": 0.9,
    "mirostat": 2,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "repeat_penalty": 1.1,
    "repeat_last_n": 64,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "dry_multiplier": 0.8,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "dry_sequence_breakers": ["\n"],
    "logit_bias": {"5": 1.0},
    "stop": ["zzz"],
    "seed": 7,
    "ignore_eos": True,
}
NATIVE = {
    "messages": MESSAGES,
    "max_tokens": SHORT,
    "model": "arriero-demo",
    "stream": True,
    "logprobs": True,
    "top_logprobs": 2,
    "thinking": True,
    "priority": 1,
    "n_discard": 8,
    "chat_template_kwargs": {"enable_thinking": False},
    "tools": [TOOL],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "prefill_only": False,
    "grammar": {"type": "json_schema", "schema": SCHEMA},
    "cache_key": "k",
    **SAMPLING,
}
CHAT = {
    "model": "arriero-demo",
    "messages": MESSAGES,
    "max_tokens": SHORT,
    "n": 2,
    "stream": True,
    "tools": [TOOL],
    "tool_choice": "required",
    "logprobs": True,
    "top_logprobs": 2,
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    **SAMPLING,
}
COMPLETION = {
    "model": "arriero-demo",
    "prompt": "A slot",
    "max_tokens": SHORT,
    "n": 2,
    "echo": True,
    "logprobs": 2,
    "suffix": "end",
    **SAMPLING,
}
RESPONSES = {
    "model": "arriero-demo",
    "input": "What is a slot?",
    "max_output_tokens": 16,
    "instructions": "Be brief.",
    "temperature": 0.5,
    "store": False,
    "metadata": {"a": "b"},
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
    "stream": True,
    "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
}
ANTHROPIC = {
    "model": "arriero-demo",
    "messages": MESSAGES,
    "max_tokens": SHORT,
    "system": "Be brief.",
    "tools": [{"name": "f", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto"},
    "temperature": 0.5,
    "top_k": 5,
    "stop_sequences": ["zzz"],
    "stream": True,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "metadata": {"user_id": "u"},
}
BATCH = {"requests": [{"id": "a", **NATIVE}, {"prompt": "A slot", "max_tokens": SHORT}]}
EMBED = {"input": ["a", "b"], "pooling": "mean", "normalize": "l2", "dimensions": 4}
RERANK = {"query": "a", "documents": ["a", "b"], "top_n": 1, "return_documents": True}

BODIES: Mapping[str, dict[str, Json]] = {
    "/api/v1/generate": NATIVE,
    "/api/v1/generate_batch": BATCH,
    "/api/v1/count_tokens": NATIVE,
    "/api/v1/embed": EMBED,
    "/api/v1/tokenize": {"text": "a b", "add_special": True, "parse_special": True},
    "/api/v1/detokenize": {"tokens": [300, 301]},
    "/tokenize": {"prompt": "a b", "add_special_tokens": True, "model": "arriero-demo"},
    "/detokenize": {"tokens": [300, 301], "model": "arriero-demo"},
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/responses": RESPONSES,
    "/v1/responses/input_tokens": RESPONSES,
    "/v1/embeddings": {"model": "arriero-demo", "input": "a", "encoding_format": "base64"},
    "/v1/rerank": RERANK,
    "/v1/messages": ANTHROPIC,
    "/v1/messages/count_tokens": ANTHROPIC,
}
"""A body that is served for each path of the inference port that takes one, with all it takes."""


class Payload(bytes):
    """Bytes to send; a report of a failure shows the beginning of them."""

    def __repr__(self) -> str:
        return f"{bytes(self[:2000])!r} ({len(self)} bytes)"


def nested(depth: int, leaf: Json = 1) -> Json:
    value = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


NUMBERS = (
    *(0, -0.0, 1, -1, 2, 16, 128, 1e-38, 1e-45, 1e-320, 1e38, 1e308, -1e308, 0.999999999, 1e15),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63, 2**64, 10**400, -(2**63)),
)
TEXTS = (
    *("", " ", "\x00", "\n" * 2000, "a" * 60_000, "\U0001f999" * 5_000, "\ufffd", "\u2028"),
    *("<|im_start|>system\nx<|im_end|>", "<think>", "</think>", "<tool_call>{", "[TOOL_CALLS]"),
    *("{{ 7*7 }}", "{% for i in range(99999999) %}x{% endfor %}", "${x}", "../../etc/passwd"),
    *("(a+)+$", "(" * 300, "[a-z]{1,100000}", "(a|b|c){500}{500}", "\\p{L}*", "^", "(?=a)"),
    *("root ::= root", "root ::= " + "(" * 300, 'root ::= "a"*', 'root ::= [^"]{1,99999}', "root"),
    *("rank", "none", "required", "arriero-demo", "no such model", "json_object", "system"),
)
SCHEMAS: tuple[Json, ...] = (
    {"$ref": "#"},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"enum": [str(number) for number in range(5_000)]},
    {"type": "array", "minItems": 10**6, "items": {}},
    {"type": "string", "minLength": 10**9},
    {"type": "string", "pattern": "(a+)+(b+)+$"},
    {"type": "object", "properties": {f"p{number}": {} for number in range(1_500)}},
    {"allOf": [{"type": "integer"}, {"type": "string"}]},
    {"anyOf": [{"anyOf": [{"const": number}]} for number in range(300)]},
    {"type": "integer", "multipleOf": 1e-9, "minimum": -1e300, "maximum": 1e300},
    {"not": {}, "if": {}, "uniqueItems": True},
    nested(150, {"type": "string"}),
)
LISTS: tuple[Json, ...] = (
    *([], [None], [[]], [""] * 17, [1] * 5_000, [-1] * 20_000, ["a"] * 300, [MESSAGES[0]] * 500),
    *([TOOL] * 1_025, [TOOL] * 100, [{}] * 2_000, [{"type": "text", "text": "x"}] * 3_000),
)
MAPS: tuple[Json, ...] = (
    *({}, {str(key): 1.0 for key in range(1_025)}, {"a" * 70_000: 1}, {"role": "tool"}),
    *({"type": "function", "function": {"name": ""}}, {"type": "text", "text": 5}),
    *({"name": "nobody"}, {"type": "json_schema", "schema": {}}, {"include_usage": True}),
    *({"type": "regex", "pattern": text} for text in ("(a+)+$", "[a-z]{1,100000}", "(" * 300)),
    *({"type": "gbnf", "grammar": text} for text in ("root ::= root", 'root ::= "a"*', "x")),
    *({"type": "json_schema", "schema": schema} for schema in SCHEMAS),
)

hostile_values = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.sampled_from(SCHEMAS),
    st.sampled_from(LISTS),
    st.sampled_from(MAPS),
    st.sampled_from([None, True, False, nested(120), nested(190)]),
    st.text(max_size=40),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)


def _places(value: Json, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within `value`, at any depth."""
    members: list[tuple[Any, Json]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    below = [found for key, member in members for found in _places(member, (*place, key))]
    return [*below, place] if place else below


def _exchange(body: Json, place: tuple[Any, ...], value: Json) -> None:
    *path, last = place
    for key in path:
        body = body[key]
    body[last] = value


def _unshared(value: Json) -> Json:
    """A copy in which no object stands twice: a change of one member would be one of thousands."""
    return json.loads(json.dumps(value))


@st.composite
def mutated(draw: st.DrawFn, body: dict[str, Json]) -> Payload:
    """`body` with some fields left out and one to three values exchanged, as JSON."""
    optional = sorted(body.keys() - BOUNDS)
    left_out = draw(st.sets(st.sampled_from(optional))) if optional else set()
    result = copy.deepcopy({name: body[name] for name in body if name not in left_out})
    for _ in range(draw(st.integers(1, 3))):
        if places := _places(result):
            _exchange(result, draw(st.sampled_from(places)), _unshared(draw(hostile_values)))
    if draw(st.integers(0, 9)) == 0:
        result[draw(st.text(max_size=10))] = draw(hostile_values)
    return Payload(json.dumps(result).encode())


@st.composite
def broken(draw: st.DrawFn, body: dict[str, Json]) -> Payload:
    """`body` as JSON with bytes missing, doubled or changed."""
    text = bytearray(json.dumps(body).encode())
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        text[start : start + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return Payload(text)


def bodies(path: str) -> st.SearchStrategy[Payload]:
    """What is sent to `path`: mostly JSON that the API must parse before it can refuse it."""
    body = BODIES[path]
    return st.one_of(mutated(body), mutated(body), mutated(body), broken(body))


def _call(method: str, params: Json, id: Json = "r") -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


@st.composite
def frames(draw: st.DrawFn) -> list[Payload]:
    """What is sent over one WebSocket, frame by frame; each is text."""
    methods = {"generate": NATIVE, "generate_batch": BATCH, "embed": EMBED, "cancel": {"id": "r"}}
    sent = []
    for number in range(draw(st.integers(1, 4))):
        method = draw(st.sampled_from(sorted(methods)))
        params = json.loads(draw(mutated(methods[method])))
        id = draw(st.one_of(st.just(f"r{number}"), hostile_values))
        sent.append(draw(st.sampled_from([_call(method, params, id), json.dumps(params)])))
    whole = [frame if draw(st.integers(0, 9)) else frame[: len(frame) // 2] for frame in sent]
    return [Payload(frame.encode()) for frame in whole]


HEADS = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.0\r\n\r\n",
    b"POST /api/v1/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n{",
    b"POST /api/v1/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n{}",
    b"POST /api/v1/generate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /api/v1/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: gzip\r\n"
    b"Content-Type: application/json\r\nContent-Length: 4\r\n\r\nabcd",
    b"GET /api/v1/socket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


@st.composite
def wire(draw: st.DrawFn) -> Payload:
    """What is sent over a bare connection."""
    data = bytearray(draw(st.sampled_from(HEADS)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 8))] = draw(st.binary(max_size=12))
    return Payload(data)


# ---- what agents say

OWN, OTHERS = "{own}", "{others}"
"""In messages, in place of the id of a request that the agent was given, and of one that another
agent runs."""
ME, GOOD = "{me}", "{good}"
"""In place of this agent's id, and of another's."""

FITTING: Mapping[str, list[Json]] = {
    "id": [OWN, OWN, OWN, OWN, OTHERS, "of none", ""],
    "agent_id": [ME, ME, ME, GOOD],
    "protocol": list(range(messages.OLDEST_PROTOCOL, messages.PROTOCOL_VERSION + 1)),
    "name": ["arriero-demo", "of-the-rogue"],
    "code": [*BY_CODE, "no such code"],
    "source": ["hf://org/repo:Q4_K_M", "https://host/file.gguf", "file:///path/file.gguf"],
    "draft_model": ["hf://org/repo/file.gguf", "/path/file.gguf"],
    "max_stall": [0.5, 10],
    "device": ["none", "CUDA0,CUDA1"],
    "override_tensor": [r"\.ffn_.*_exps=CPU"],
}
"""Values that mean something in fields with these names."""

MAX_FLOOD = 2**20
"""Bytes of a message that is said again and again."""


def _mostly(usual: st.SearchStrategy[T], seldom: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """One in nine is the other; `one_of` draws a strategy that it is given twice no more often."""
    return st.integers(0, 8).flatmap(lambda number: usual if number else seldom)


def of_schema(schema: Mapping[str, Json]) -> st.SearchStrategy[Json]:
    """What `schema`, a JSON Schema as pydantic writes it, allows: mostly small, some at a bound."""
    match schema:
        case {"$ref": str(ref)}:
            return _of_definition(ref.rpartition("/")[2])
        case {"const": value}:
            return st.just(value)
        case {"enum": values}:
            return st.sampled_from(values)
        case {"anyOf": kinds} | {"oneOf": kinds}:
            return st.one_of([of_schema(kind) for kind in kinds])
        case {"type": "null"}:
            return st.none()
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "integer" | "number"}:
            return _numbers(schema)
        case {"type": "string"}:
            return _texts(schema)
        case {"type": "array"}:
            return _lists(schema)
        case {"type": "object", "properties": _}:
            return _objects(schema)
        case {"type": "object"}:
            names = _texts({"type": "string", **schema.get("propertyNames", {})})
            return st.dictionaries(names, of_schema(schema["additionalProperties"]), max_size=3)
    raise NotImplementedError(f"a schema of another kind: {schema}")


@cache
def _of_definition(name: str) -> st.SearchStrategy[Json]:
    """Looked up when first drawn from, so definitions may contain each other."""
    return st.deferred(lambda: of_schema(_DEFS[name]))


def _numbers(schema: Mapping[str, Json]) -> st.SearchStrategy[Json]:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -(2**63)))
    most = schema.get("maximum", schema.get("exclusiveMaximum", 2**63))
    if schema["type"] == "integer":
        least += "exclusiveMinimum" in schema
        most -= "exclusiveMaximum" in schema
        usual = [least + step for step in (0, 1, 2, 3, 7)] if "minimum" in schema else [0, 1, 3, 7]
    else:
        usual = [least + (most - least) * part for part in (1e-9, 1e-6, 0.5)]
    fitting = [number for number in usual if least <= number <= most]
    bounds = [] if schema["type"] == "number" and "exclusiveMinimum" in schema else [least]
    return st.sampled_from([*fitting * 4, *bounds, most])


def _texts(schema: Mapping[str, Json]) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True)
    if schema.get("format") == "base64url":
        return st.binary(max_size=4).map(lambda data: urlsafe_b64encode(data).decode())
    least, most = schema.get("minLength", 0), min(schema.get("maxLength", 60_000), 60_000)
    telling = [text for text in TEXTS if least <= len(text) <= most and len(text) < 2_000]
    short = st.text(_characters, min_size=least, max_size=min(8, most))
    return _mostly(short, st.sampled_from([*telling, "a" * most]))


_characters = st.characters(exclude_categories=("Cs",))
"""Halves of surrogate pairs are not UTF-8, so no message with one can be sent."""


def _lists(schema: Mapping[str, Json]) -> st.SearchStrategy[list[Json]]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", 1_000)
    short = st.lists(of_schema(schema["items"]), min_size=least, max_size=min(least + 3, most))
    long = short.map(lambda items: (items * most)[: min(most, 1_100)])
    return _mostly(short, long)


def _objects(schema: Mapping[str, Json]) -> st.SearchStrategy[dict[str, Json]]:
    """What need not be there mostly is not: a message that has all of it is very long."""
    needed = {*schema.get("required", ()), "type"}
    fields = {name: _field(name, field) for name, field in schema["properties"].items()}

    @st.composite
    def draw_one(draw: st.DrawFn) -> dict[str, Json]:
        names = [name for name in fields if name in needed or not draw(st.integers(0, 3))]
        return {name: draw(fields[name]) for name in names}

    return draw_one()


def _field(name: str, schema: Mapping[str, Json]) -> st.SearchStrategy[Json]:
    drawn = of_schema(schema)
    return _mostly(st.sampled_from(FITTING[name]), drawn) if name in FITTING else drawn


def _understood(message: dict[str, Json]) -> dict[str, Json]:
    """`message` without what is refused though its schema allows it: validators tell no schema."""
    while place := _refused(message):
        *path, last = place
        del _at(message, tuple(path))[last]
    return message


def _refused(message: dict[str, Json]) -> tuple[Any, ...]:
    """The place of the innermost field that is refused; of no field where nothing is."""
    try:
        messages.decode_from_agent(json.dumps(message))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = _place_of(message, first["loc"])
        while place and isinstance(place[-1], int):
            place = place[:-1]
        return place
    return ()


def _place_of(value: Json, location: Sequence[int | str]) -> tuple[Any, ...]:
    """Where `location` is in `value`: it also names types of unions, and what is missing."""
    place: list[int | str] = []
    for key in location:
        members = range(len(value)) if isinstance(value, list) else value
        is_within = isinstance(value, dict | list) and key in members
        if is_within:
            place.append(key)
            value = value[key]
    return tuple(place)


_SAID = TypeAdapter[Any](messages.FromAgent).json_schema()
_DEFS: Mapping[str, Json] = _SAID["$defs"]
OF_SCHEMA: Mapping[str, st.SearchStrategy[dict[str, Json]]] = {
    kind: of_schema({"$ref": ref})
    for kind, ref in sorted(_SAID["discriminator"]["mapping"].items())
}
"""By type, messages of agents whose every field is as its schema allows."""

SAID: Mapping[str, st.SearchStrategy[dict[str, Json]]] = {
    kind: drawn.map(_understood) for kind, drawn in OF_SCHEMA.items()
}
"""By type, messages of agents that the balancer understands."""

said_rightly = st.sampled_from([*SAID, *["output"] * 5, "reply"]).flatmap(SAID.__getitem__)


@st.composite
def said_wrongly(draw: st.DrawFn) -> Json:
    """A message with one thing that is not as its type allows, or far more of it."""
    message = _unshared(draw(said_rightly))
    change = draw(st.sampled_from(["exchange", "exchange", "leave out", "add", "multiply"]))
    places = _places(message)
    if change == "add":
        owner = draw(st.sampled_from([(), *places]))
        found = _at(message, owner)
        if isinstance(found, dict):
            found[draw(st.text(_characters, max_size=9))] = _unshared(draw(hostile_values))
        return message
    place = draw(st.sampled_from(places))
    *path, last = place
    found = _at(message, tuple(path))
    if change == "leave out":
        del found[last]
    elif change == "multiply":
        times = draw(st.sampled_from([33, 65, 1_025, 20_000]))
        found[last] = found[last] * times if isinstance(found[last], list | str) else [found[last]]
    else:
        found[last] = _unshared(draw(hostile_values))
    return message


def _at(value: Json, place: tuple[Any, ...]) -> Json:
    for key in place:
        value = value[key]
    return value


@dataclass(frozen=True, slots=True)
class Sent:
    """A WebSocket frame, so many times in a row; or bytes on the connection, which are none."""

    data: Payload
    times: int = 1
    kind: Literal["text", "binary", "none"] = "text"


@st.composite
def _sent(draw: st.DrawFn, said: st.SearchStrategy[Json]) -> Sent:
    message = draw(said)
    data = json.dumps(message, ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
    is_flood = draw(st.integers(0, 7)) == 0
    most = draw(st.sampled_from([2, 20, 200, 2_000])) if is_flood else 1
    times = max(1, min(most, MAX_FLOOD // len(data)))
    if times > 1 or draw(st.integers(0, 7)):
        return Sent(Payload(data), times)
    header = struct.pack(">IB", draw(st.integers(0, 5)), draw(st.integers(0, 3)))
    return Sent(Payload(header + data), 1, "binary")


_rubbish = st.one_of(
    st.binary(max_size=64).map(lambda data: Sent(Payload(data), 1, "binary")),
    st.text(_characters, max_size=64).map(lambda text: Sent(Payload(text.encode()))),
    st.binary(min_size=1, max_size=64).map(lambda data: Sent(Payload(data), 1, "none")),
    st.just(Sent(Payload(b"[" * 100_000))),
    st.just(Sent(Payload(b"\x00" * 2_000_000), 1, "binary")),
)
_step = _mostly(_sent(_mostly(said_rightly, said_wrongly())), _rubbish)


@dataclass(frozen=True, slots=True)
class Dial:
    """One connection of an agent.

    With a `role` it says a proper hello first: of an agent that serves the good one's model, one
    that only it serves, or none. The balancer is asked for the `errands` of that model, and what
    comes of them are the requests that this agent was given. Then it says its `steps`.

    `as_whom`: an agent that never was there before, the one of the connection before (which is
    still there) that dials again, a new engine process of it, or the good agent. One that
    `hangs_up` closes the connection in good order, so that all it said was handled.
    """

    role: Literal["same", "own", "none"] | None
    as_whom: Literal["new", "again", "taking over", "good"]
    errands: list[str]
    steps: list[Sent]
    hangs_up: bool


@st.composite
def _dials(draw: st.DrawFn, errands: Sequence[str]) -> Dial:
    role = draw(st.sampled_from(["own", "own", "own", "same", "none", None]))
    steps = draw(st.lists(_step, min_size=1, max_size=30))
    if role is None and draw(st.booleans()):
        steps.insert(0, draw(_sent(SAID["hello"])))
    return Dial(
        role,
        draw(st.sampled_from(["new", "new", "again", "taking over", "good"])),
        draw(st.lists(st.sampled_from(errands), max_size=3)) if role in ("own", "same") else [],
        steps,
        draw(st.sampled_from([True, True, True, False])),
    )


def dials(errands: Sequence[str]) -> st.SearchStrategy[list[Dial]]:
    """What an agent does, while the balancer is asked for some of `errands`."""
    return st.lists(_dials(errands), min_size=1, max_size=3)
