"""Calls over a socket of the native API, for tests."""

from typing import Any

from aiohttp import ClientWebSocketResponse


def call(id: Any, method: str, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def event(id: Any, name: str, /, **values: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "event", "params": {"event": name, "id": id, **values}}


async def until_answer(socket: ClientWebSocketResponse, id: Any) -> dict[str, Any]:
    while True:
        frame = await socket.receive_json()
        if "method" not in frame and frame["id"] == id:
            return frame


async def ask(socket: ClientWebSocketResponse, id: Any, method: str, /, **params: Any) -> Any:
    await socket.send_json(call(id, method, **params))
    return await until_answer(socket, id)


async def answers_ping(socket: ClientWebSocketResponse) -> bool:
    return (await ask(socket, "the ping", "ping"))["result"] == {"pong": True}
