"""Embeddings and tokens of an upstream server: queries as bodies, answers as results.

OpenAI has embeddings only. vLLM and llama-server tokenise, each with its own fields; both answer at
their root, not below `/v1`.
"""

import base64
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic_core import from_json

from ....shared.errors import NotSupported
from ....shared.queries import (
    Counted,
    CountTokens,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Norm,
    Query,
    Result,
    Tokenize,
    Tokenized,
    Vector,
)
from ....shared.strict import LAZY
from .bodies import Json, Server, body_of
from .failures import UpstreamFault
from .probes import EMBEDDINGS

Base = Literal["api", "root"]

_results: TypeAdapter[Result] = TypeAdapter(Result, config=LAZY)
"""Validates results: a server's answer may contain values that agents must not send."""


@dataclass(frozen=True, slots=True)
class Call:
    """One POST: its body, and its path below the API's address or the server's root."""

    base: Base
    path: str
    body: Json


def call_of(query: Query, server: Server) -> Call:
    """Return the call that answers `query`. Raises a `NotSupported` that says what is
    impossible.
    """
    match query:
        case Embed() if server.embeds:
            return _embed(query, server)
        case Tokenize() if server.dialect.tokenizer is not None:
            return _tokenize(query, server)
        case Detokenize() if server.dialect.tokenizer is not None:
            return _detokenize(query, server)
        case CountTokens() if server.dialect.counter is not None:
            return _count(query, server.dialect.counter, server)
    raise NotSupported(f"the upstream server of `{server.model}` does not answer `{query.type}`")


def result_of(query: Query, body: bytes) -> Result:
    """Return the result in `body`. Raises `UpstreamFault` if `body` has no result."""
    try:
        return _results.validate_python(_result(query, from_json(body)))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UpstreamFault(f"its answer to `{query.type}` has another shape") from error


def _result(query: Query, answer: Json) -> Result:
    match query:
        case Embed():
            return Embedded(vectors=_vectors(query, answer))
        case Tokenize():
            return Tokenized(tokens=tuple(map(int, answer["tokens"])))
        case Detokenize():
            text = answer.get("prompt", answer.get("content"))
            if not isinstance(text, str):
                raise TypeError("the text is a string")
            return Detokenized(text=text)
        case _:
            return Counted(
                num_tokens=int(answer["num_tokens" if "num_tokens" in answer else "count"])
            )


# ---- embeddings


def _embed(query: Embed, server: Server) -> Call:
    if query.pooling is not None:
        raise NotSupported("`pooling`: an upstream server chooses its own pooling", field="pooling")
    if query.normalize == "none":
        message = "`normalize`: an upstream server gives normalised vectors; must be l2 or rms"
        raise NotSupported(message, field="normalize")
    if any(not isinstance(each, str) for each in query.inputs):
        if "token_ids" not in server.abilities:
            raise NotSupported("`input`: the upstream server accepts texts only", field="input")
        inputs: list[Any] = [each if isinstance(each, str) else list(each) for each in query.inputs]
    else:
        inputs = list(query.inputs)
    body: Json = {"model": server.model, "input": inputs, "encoding_format": "float"}
    if query.truncation is not None and query.truncation.keeps == "last":
        if "truncate_prompt" not in server.abilities:
            field = "truncate_prompt_tokens"
            raise NotSupported(f"`{field}`: the upstream server does not cut inputs", field=field)
        body["truncate_prompt_tokens"] = query.truncation.most or -1
    return Call("api", EMBEDDINGS, body)


def _vectors(query: Embed, answer: Json) -> tuple[Vector, ...]:
    """Return the vectors. The server's token count for all inputs is divided evenly among them."""
    data = sorted(answer["data"], key=lambda each: int(each["index"]))
    if len(data) != len(query.inputs):
        raise ValueError("there is one vector for each input")
    total = int((answer.get("usage") or {}).get("prompt_tokens") or 0)
    share, rest = divmod(total, len(data))
    return tuple(
        Vector(
            vector=_packed(each["embedding"][: query.dimensions], query.normalize),
            num_tokens=share + (place < rest),
        )
        for place, each in enumerate(data)
    )


def _packed(values: Sequence[float], norm: Norm) -> str:
    length = sqrt(sum(value * value for value in values))
    scale = sqrt(len(values)) if norm == "rms" else 1.0
    floats = array("f", [value * scale / (length or 1.0) for value in values])
    return base64.b64encode(floats.tobytes()).decode()


# ---- tokens


def _tokenize(query: Tokenize, server: Server) -> Call:
    if server.dialect.tokenizer == "llama":
        body: Json = {
            "content": query.text,
            "add_special": query.add_special,
            "parse_special": query.parse_special,
        }
        return Call("root", "/tokenize", body)
    body = {
        "model": server.model,
        "prompt": query.text,
        "add_special_tokens": query.add_special,
    }
    return Call("root", "/tokenize", body)


def _detokenize(query: Detokenize, server: Server) -> Call:
    body: Json = {"tokens": list(query.tokens)}
    if server.dialect.tokenizer == "vllm":
        body["model"] = server.model
    return Call("root", "/detokenize", body)


_COUNTED = ("model", "prompt", "messages", "tools", "chat_template_kwargs", "add_generation_prompt")


def _count(query: CountTokens, path: str, server: Server) -> Call:
    asked = body_of(query.request, server)
    return Call("root", path, {name: asked[name] for name in _COUNTED if name in asked})
