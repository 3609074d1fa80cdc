"""Malicious or broken requests: Hypothesis strategies for every API.

A body starts as one that is served, then some of its values are exchanged for the largest,
smallest, deepest and longest of every kind, and for ones that mean something to a template, a
grammar or a tokeniser. So most bodies get past the first check and reach the code behind it.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

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
