"""The lines of a batch: their requests, their results in OpenAI's format, and retries.

`judge` decides what follows from the end of a line: a result, or another try. Errors that are not
the line's fault do not count as attempts: a full queue, the caller's limits, a stopping balancer,
a replaced key. After such an error the line waits until the batch expires. Other retryable errors
are tried `MAX_ATTEMPTS` times.
"""

from codecs import BOM_UTF8
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json, to_json

from ...shared.errors import (
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    Overloaded,
    QueueFull,
    QueueTimeout,
    RateLimited,
    RequestError,
    RequestTooLarge,
    ShuttingDown,
    StoreUnavailable,
    Unauthorized,
)

MAX_LINE = 16 * 2**20
"""Maximum bytes of a line, as of a request's body."""

MAX_CUSTOM_ID = 512
KEY_BYTES = 4096
GROUP_BYTES = 1024
"""Lines whose prompts have this many leading bytes in common form a group."""

_BEGINNINGS = ("model", "tools", "instructions", "response_format", "messages", "prompt", "input")
"""Fields at the beginning of a prompt, about in the order of chat templates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One request of a batch. A line with a `problem` gets an error and never runs.

    Sorting by `key` brings lines with equal beginnings together. The lines of one `group` share a
    long beginning.
    """

    number: int
    custom_id: str | None = None
    url: str = ""
    body: bytes = b""
    model: str | None = None
    key: bytes = b""
    group: bytes | None = None
    problem: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a request. `body` is JSON on one line, or the body of the error."""

    status: int
    body: bytes
    request_id: str | None = None
    error: RequestError | None = None


def parse_line(number: int, text: bytes, endpoint: str) -> Line:
    """Parse a line. An error is not raised but becomes the line's `problem`."""
    custom_id = None
    try:
        value = _object(text)
        custom_id = custom_id_of(value)
        body = _body(value, endpoint)
    except RequestError as problem:
        problem.forget_frames()
        return Line(number=number, custom_id=custom_id, problem=problem)
    model = body.get("model")
    key = to_json({name: body[name] for name in _BEGINNINGS if name in body})[:KEY_BYTES]
    return Line(
        number=number,
        custom_id=custom_id,
        url=endpoint,
        body=to_json(body),
        model=model if isinstance(model, str) else None,
        key=key,
        group=blake2b(key[:GROUP_BYTES], digest_size=8).digest() if _is_long(key) else None,
    )


def _is_long(key: bytes) -> bool:
    return len(key) >= GROUP_BYTES


def _object(text: bytes) -> dict[str, Any]:
    if len(text) > MAX_LINE:
        raise RequestTooLarge(f"the line has more than {MAX_LINE} bytes")
    try:
        value = from_json(text.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the line is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the line must be a JSON object")
    return value


def custom_id_of(value: dict[str, Any]) -> str:
    """Return the custom id of a line. Raises `InvalidRequest`."""
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID:
        raise InvalidRequest(
            f"`custom_id`: must be a string of 1 to {MAX_CUSTOM_ID} characters", field="custom_id"
        )
    return custom_id


def _body(value: dict[str, Any], endpoint: str) -> dict[str, Any]:
    if value.get("method", "POST") != "POST":
        raise InvalidRequest("`method`: must be POST", field="method")
    if value.get("url") != endpoint:
        raise InvalidRequest(f"`url`: must be the batch's endpoint, {endpoint}", field="url")
    body = value.get("body")
    if not isinstance(body, dict):
        raise InvalidRequest("`body`: must be an object", field="body")
    for name in ("stream", "background"):
        if body.get(name):
            raise InvalidRequest(f"`body.{name}`: must be left out", field=f"body.{name}")
    return body


def in_order(lines: list[Line]) -> list[Line]:
    """Sort lines so that lines with a common beginning are adjacent.

    Otherwise lines keep their order.
    """
    first: dict[bytes, int] = {}
    for line in lines:
        first.setdefault(line.key[:GROUP_BYTES], line.number)
    return sorted(lines, key=lambda line: (first[line.key[:GROUP_BYTES]], line.key, line.number))


# ---- results


def result_id(batch: str, number: int) -> str:
    """Return the id of a line's result, which is the same for every try."""
    return f"batch_req_{batch.removeprefix('batch_')}_{number}"


def answer_line(batch: str, line: Line, answered: Answered) -> bytes:
    """Return the result of a line that was answered, even if the answer is an error."""
    return b'{"id":%b,"custom_id":%b,"response":%b,"error":null}\n' % (
        to_json(result_id(batch, line.number)),
        to_json(line.custom_id),
        b'{"status_code":%d,"request_id":%b,"body":%b}'
        % (answered.status, to_json(answered.request_id), answered.body),
    )


def error_line(batch: str, line: Line, error: RequestError, code: str | None = None) -> bytes:
    """Return the result of a line that did not run."""
    fields = {"code": code or error.code, "message": error.message}
    return (
        to_json(
            {
                "id": result_id(batch, line.number),
                "custom_id": line.custom_id,
                "response": None,
                "error": fields,
            }
        )
        + b"\n"
    )


# ---- the end of a line

MAX_ATTEMPTS = 3

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Maximum seconds before a line runs again. The pause doubles after each try."""

_NO_ROOM = (RateLimited, QueueFull, Overloaded, ShuttingDown, StoreUnavailable, Unauthorized)
_NOT_ITS_FAULT = (*_NO_ROOM, QueueTimeout, ModelFailed)


@dataclass(frozen=True, slots=True)
class Final:
    """An outcome: the answer is the result of the line."""

    is_error: bool


@dataclass(frozen=True, slots=True)
class Again:
    """An outcome: the line runs again after `pause` seconds.

    If `for_all`, no line of the same batch starts earlier.
    """

    pause: float
    is_attempt: bool
    for_all: bool


Outcome = Final | Again


def judge(
    error: RequestError | None, *, num_attempts: int, num_refusals: int, model_may_come: bool
) -> Outcome:
    """Return the outcome of a try. `num_attempts` and `num_refusals` count earlier tries.

    If `model_may_come`, an unknown model may still become known.
    """
    if error is None:
        return Final(is_error=False)
    is_refusal = isinstance(error, _NOT_ITS_FAULT)
    is_refusal = is_refusal or (isinstance(error, ModelNotFound) and model_may_come)
    if is_refusal:
        pause = max(error.retry_after or 0.0, _pause(num_refusals))
        return Again(pause, is_attempt=False, for_all=isinstance(error, _NO_ROOM))
    if error.retryable and num_attempts + 1 < MAX_ATTEMPTS:
        return Again(_pause(num_attempts), is_attempt=True, for_all=False)
    return Final(is_error=True)


def _pause(number: int) -> float:
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(number, 10)))
