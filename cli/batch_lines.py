"""Reads the request lines of a batch, and writes the result lines.

A request line is a line of OpenAI's batch files (`custom_id`, `url`, `body`), the fields of
`/api/v1/generate` as JSON, a JSON string, or plain text. A string or a text is a question. The
result of an OpenAI line has OpenAI's format. Another result has the number of its request `line`,
from 1, and an `answer` or an `error`. The `id` of every result line ends with a digest of the
request, so that a batch that continues detects a changed input.
"""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
MAX_LINE = 2**24
"""Maximum bytes of a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One request.

    `url` is `None` for the native API. `problem` says what is wrong with the line.
    """

    number: int
    url: str | None = None
    body: dict[str, Any] = field(default_factory=dict)
    custom_id: str | None = None
    problem: str | None = None

    @property
    def key(self) -> str | int:
        """The key by which the line's result is found."""
        return self.custom_id or self.number

    @property
    def digest(self) -> str:
        """A digest of the request, as 16 hexadecimal digits."""
        asked = json.dumps([self.url, self.body, self.problem], sort_keys=True)
        return sha256(asked.encode()).hexdigest()[:16]

    @property
    def id(self) -> str:
        """The `id` of its result line."""
        return f"batch_req_{self.number}_{self.digest}"


def parse_line(number: int, text: str, defaults: dict[str, Any]) -> Line:
    """Parse a request line; a wrong line gets a `problem`. `defaults` are for native requests."""
    if len(text) > MAX_LINE:
        return Line(number, problem=f"the line is longer than {MAX_LINE} bytes")
    if text.lstrip()[:1] not in ("{", '"'):
        return _question(number, text, defaults)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Line(number, problem=f"not JSON: {error}")
    if isinstance(value, str):
        return _question(number, value, defaults)
    if "custom_id" not in value:
        return Line(number, body=defaults | value)
    return _openai(number, value)


def _question(number: int, text: str, defaults: dict[str, Any]) -> Line:
    message = {"role": "user", "content": text}
    return Line(number, body=defaults | {"messages": [message]})


def _openai(number: int, value: dict[str, Any]) -> Line:
    custom_id, url, body = value["custom_id"], value.get("url"), value.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        return Line(number, problem="custom_id: must be a string that is not empty")
    if url not in URLS:
        problem = f"url: must be one of {', '.join(URLS)}"
    elif not isinstance(body, dict):
        problem = "body: must be an object"
    elif body.get("stream"):
        problem = "body.stream: must be left out"
    else:
        return Line(number, url, body, custom_id)
    return Line(number, custom_id=custom_id, problem=problem)


def result_line(line: Line, *, answer: Any = None, error: dict[str, Any] | None = None) -> str:
    """Return the result line of `line`. `error` has `code`, `message` and `status`."""
    if line.custom_id is None:
        known = {"id": line.id, "line": line.number}
        return _text(known | ({"error": error} if error else {"answer": answer}))
    response = None
    if error is None:
        response = {"status_code": 200, "request_id": answer.get("id"), "body": answer}
    elif error.get("status"):
        body = {"error": {"code": error["code"], "message": error["message"]}}
        response = {"status_code": error["status"], "request_id": None, "body": body}
    failure = {"code": error["code"], "message": error["message"]} if error else None
    return _text(
        {
            "id": line.id,
            "custom_id": line.custom_id,
            "response": response,
            "error": None if response else failure,
        }
    )


def answered(result: str) -> tuple[str | int, str] | None:
    """Return the key and the digest of the request of a result; `None` if the result is
    incomplete.
    """
    try:
        value = json.loads(result)
        key = value.get("custom_id") or value["line"]
        digest = value.get("id", "").rpartition("_")[2]
    except (ValueError, KeyError, AttributeError):
        return None
    return (key, digest) if isinstance(key, str | int) else None


def has_failed(result: str) -> bool:
    """Return whether a result line has an error."""
    value = json.loads(result)
    response = value.get("response") or {}
    return bool(value.get("error")) or response.get("status_code", 200) != 200


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
