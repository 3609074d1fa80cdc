"""Converts JSON-RPC 2.0 frames to calls, and results and errors to frames.

| code | when |
| --- | --- |
| -32700 | the frame is not JSON (a binary frame is read like a text frame) |
| -32600 | the frame is no JSON-RPC 2.0 request, its id is in use, or its call needs an id |
| -32601 | unknown method |
| -32602 | bad `params`, with `data` as below |
| -32603 | a mistake of ours, with `data` as below |
| -32000 | any other end of a request, with `data`: `{"code", "retryable"}`, and `field` if known |

Arrays of calls are refused with -32600: frames can be sent one by one, and `generate_batch` takes
many prompts.

The answer to an invalid request has the id `null`, even if the id could be read: if a running call
has the same id, the client must not take the answer for that call's end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from ....shared.errors import InvalidRequest, RequestError, public_body
from ....shared.json_size import check_size
from ....shared.validation import not_json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_FAILED = -32000

MAX_ID_LENGTH = 200
MAX_ID_NUMBER = 2**63

RpcId = str | int | float | None

_MEMBERS = frozenset({"jsonrpc", "id", "method", "params"})


class RpcError(Exception):
    """A frame that is answered with an error; `id` is the id of the answer."""

    def __init__(self, code: int, message: str, *, id: RpcId = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


@dataclass(frozen=True, slots=True)
class Call:
    """One call. A call without an id is a notification and gets no answer."""

    id: RpcId
    method: str
    params: dict[str, Any]
    is_notification: bool = False

    def params_json(self) -> bytes:
        """The params as JSON, in the form of an HTTP body."""
        return to_json(self.params)


def parse_frame(frame: bytes) -> Call:
    """Return the call in `frame`. Raises `RpcError`."""
    try:
        check_size(frame)
    except InvalidRequest as error:
        raise RpcError(INVALID_REQUEST, error.message) from error
    try:
        value = from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        raise RpcError(PARSE_ERROR, not_json("the frame", str(error))) from error
    if isinstance(value, list):
        raise _invalid("arrays of calls are not supported: send one frame for each call")
    if not isinstance(value, dict):
        raise _invalid("a frame must be an object")
    if unknown := sorted(value.keys() - _MEMBERS):
        raise _invalid(f"unknown member `{unknown[0][:60]}`")
    if value.get("jsonrpc") != "2.0":
        raise _invalid('`jsonrpc` must be "2.0"')
    if not isinstance(value.get("method"), str):
        raise _invalid("`method` must be a string")
    id = value.get("id")
    if not is_id(id):
        raise _invalid("`id` must be a string of at most 200 characters, a number or null")
    params = value.get("params", {})
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "`params` must be an object", id=id)
    return Call(id, value["method"], params, is_notification="id" not in value)


def is_id(value: object) -> bool:
    """Return whether `value` can be the id of a call.

    Ids must be short, because every event repeats them.
    """
    if isinstance(value, str):
        return len(value) <= MAX_ID_LENGTH
    if isinstance(value, int | float):
        return not isinstance(value, bool) and abs(value) < MAX_ID_NUMBER
    return value is None


def result(id: RpcId, value: Mapping[str, object]) -> bytes:
    """Return the frame with the result of call `id`."""
    return written_result(id, to_json(value))


def written_result(id: RpcId, value: bytes) -> bytes:
    """Return the frame for a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (to_json(id), value)


def rpc_error(error: RpcError) -> bytes:
    """Return the frame for an invalid call."""
    return _error(error.id, {"code": error.code, "message": error.message})


def request_error(id: RpcId, error: RequestError) -> bytes:
    """Return the frame for the call `id`, which ended with `error`."""
    data = {name: value for name, value in public_body(error).items() if name != "message"}
    return _error(id, {"code": _code(error), "message": error.message, "data": data})


def _code(error: RequestError) -> int:
    match error.code:
        case "invalid_request":
            return INVALID_PARAMS
        case "internal_error":
            return INTERNAL_ERROR
        case _:
            return REQUEST_FAILED


def _error(id: RpcId, body: dict[str, object]) -> bytes:
    return to_json({"jsonrpc": "2.0", "id": id, "error": body})


def _invalid(message: str) -> RpcError:
    return RpcError(INVALID_REQUEST, message)
