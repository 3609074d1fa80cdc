import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arriero.balancer.api.native.rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    Call,
    RpcError,
    is_id,
    parse_frame,
    request_error,
    result,
    rpc_error,
)
from arriero.shared.errors import AgentLost, InternalError, InvalidRequest, NotSupported
from tests.balancer.api.json_values import JSON_VALUES, objects_like

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def parse(frame: Any) -> Call:
    return parse_frame(json.dumps(frame).encode())


@pytest.mark.parametrize("id", ["r1", "", 1, -1, 1.5, None])
def test_a_call(id: Any) -> None:
    frame = PING | {"id": id, "params": {"a": [1]}}
    assert parse(frame) == Call(id, "ping", {"a": [1]})


def test_a_notification() -> None:
    assert parse({"jsonrpc": "2.0", "method": "ping"}) == Call(None, "ping", {}, True)


@pytest.mark.parametrize(
    "frame",
    [
        1,
        "ping",
        None,
        [],
        [PING],
        {},
        PING | {"jsonrpc": "1.0"},
        PING | {"jsonrpc": 2.0},
        PING | {"method": 1},
        {"jsonrpc": "2.0", "id": 1},
        PING | {"id": True},
        PING | {"id": []},
        PING | {"id": {}},
        PING | {"id": "x" * 201},
        PING | {"id": 10**30},
        PING | {"param": {}},
    ],
)
def test_what_is_no_request_has_no_id_in_its_answer(frame: Any) -> None:
    with pytest.raises(RpcError) as caught:
        parse(frame)
    answer = json.loads(rpc_error(caught.value))
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] is None
    assert answer["error"]["code"] == INVALID_REQUEST


def test_an_id_without_end_is_none() -> None:
    with pytest.raises(RpcError, match="id"):
        parse_frame(b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}')
    assert not is_id(float("inf"))


@pytest.mark.parametrize("params", [[], [1], "x", 1, None])
def test_params_must_be_an_object(params: Any) -> None:
    with pytest.raises(RpcError) as caught:
        parse(PING | {"params": params})
    assert (caught.value.code, caught.value.id) == (INVALID_PARAMS, 1)


@pytest.mark.parametrize("frame", [b"", b"{", b"\xff\xfe", b"NaN", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_json(frame: bytes) -> None:
    with pytest.raises(RpcError) as caught:
        parse_frame(frame)
    assert caught.value.code == PARSE_ERROR


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("no", field="top_p"), -32602),
        (InternalError("oops"), -32603),
        (NotSupported("not yet", field="grammar"), -32000),
        (AgentLost("gone"), -32000),
    ],
)
def test_errors_of_requests(error: Any, code: int) -> None:
    data = {"code": error.code, "retryable": error.retryable}
    if error.field:
        data["field"] = error.field
    assert json.loads(request_error("r", error)) == {
        "jsonrpc": "2.0",
        "id": "r",
        "error": {"code": code, "message": error.message, "data": data},
    }


def test_result() -> None:
    assert json.loads(result(None, {"pong": True})) == {
        "jsonrpc": "2.0",
        "id": None,
        "result": {"pong": True},
    }


@given(st.binary() | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_an_error_with_an_answer(frame: bytes) -> None:
    with pytest.raises(RpcError) as caught:
        parse_frame(frame)
    assert json.loads(rpc_error(caught.value))["error"]["message"]


@given(objects_like(PING | {"params": {}}))
@example({"jsonrpc": "2.0", "id": 0, "method": "\ud800", "params": {}})
def test_what_is_nearly_a_call(frame: Any) -> None:
    try:
        call = parse(frame)
    except RpcError as error:
        assert json.loads(rpc_error(error))["error"]["message"]
    else:
        assert json.loads(result(call.id, {}))["id"] == call.id
        assert json.loads(call.params_json()) == call.params or "Infinity" in str(
            call.params_json()
        )
