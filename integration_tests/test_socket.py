"""The native WebSocket against a real fleet: many requests on one connection."""

from collections import defaultdict
from typing import Any

import aiohttp
import pytest

from integration_tests.corpus import ENDLESS, UNENDING, plain_cases
from integration_tests.daemons import DEADLINE, Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def connect(fleet: Fleet) -> aiohttp.ClientWebSocketResponse:
    return await fleet.http.ws_connect(f"{fleet.inference}/api/v1/socket")


def call(id: str, params: dict[str, Any], method: str = "generate") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def until_answer(ws: aiohttp.ClientWebSocketResponse, id: str) -> dict[str, Any]:
    """Reads until the result or error of call `id`."""
    while True:
        frame = await ws.receive_json(timeout=DEADLINE)
        if frame.get("id") == id:
            return frame


async def test_many_at_once_on_one_socket(shared_fleet: Fleet) -> None:
    asked = plain_cases()[:12]
    texts: dict[str, str] = defaultdict(str)
    results: dict[str, dict[str, Any]] = {}
    async with await connect(shared_fleet) as ws:
        for case in asked:
            await ws.send_json(call(case.id, case.body))
        while len(results) < len(asked):
            frame = await ws.receive_json(timeout=DEADLINE)
            if frame.get("method") == "event":
                texts[frame["params"]["id"]] += frame["params"].get("text", "")
            else:
                assert frame["id"] not in results
                results[frame["id"]] = frame["result"]
    assert texts == {case.id: case.answer for case in asked}
    assert {result["finish_reason"] for result in results.values()} == {"stop"}


async def test_cancel_one_of_two(small_fleet: Fleet) -> None:
    await small_fleet.hold()
    async with await connect(small_fleet) as ws:
        await ws.send_json(call("stays", ENDLESS | {"max_tokens": 1000}))
        await ws.send_json(call("goes", ENDLESS))
        await small_fleet.until_streaming(2)
        await ws.send_json(call("c1", {"id": "goes"}, method="cancel"))

        cancelled = await until_answer(ws, "goes")
        assert cancelled["result"]["finish_reason"] == "cancelled"
        assert cancelled["result"]["usage"]["completion_tokens"] > 0
        await small_fleet.let_go()
        stayed = await until_answer(ws, "stays")
        assert stayed["result"]["usage"]["completion_tokens"] == 1000
    await small_fleet.until_idle()


async def test_cancel_one_that_never_ran_is_an_error(bare_fleet: Fleet) -> None:
    async with await connect(bare_fleet) as ws:
        await ws.send_json(call("waits", ENDLESS))
        await bare_fleet.until_num_requests(1, "queued")
        await ws.send_json(call("c1", {"id": "waits"}, method="cancel"))
        answer = await until_answer(ws, "waits")
    assert answer["error"]["data"]["code"] == "cancelled"


async def test_cancel_all_takes_queued_and_running_and_nothing_starts(small_fleet: Fleet) -> None:
    async with await connect(small_fleet) as ws:
        for number in range(6):
            await ws.send_json(call(f"r{number}", UNENDING))
        await small_fleet.until_num_requests(2, "streaming")
        await small_fleet.until_num_requests(4, "queued")
        await ws.send_json(call("c1", {"all": True}, method="cancel"))

        ends: dict[str, str] = {}
        while len(ends) < 6:
            frame = await ws.receive_json(timeout=DEADLINE)
            if frame.get("id", "").startswith("r"):
                end = frame.get("result", {}).get("finish_reason")
                ends[frame["id"]] = end or "error " + frame["error"]["data"]["code"]
    assert sorted(ends.values()) == ["cancelled"] * 2 + ["error cancelled"] * 4
    await small_fleet.until_idle()


async def test_junk_is_answered_and_the_others_live_on(long_fleet: Fleet) -> None:
    await long_fleet.hold()
    async with await connect(long_fleet) as ws:
        await ws.send_json(call("lives", ENDLESS | {"max_tokens": 1000}))
        await long_fleet.until_streaming(1)
        await ws.send_str("{not json")
        await ws.send_json(call("a", {}, method="no_such_method"))
        await ws.send_json(call("lives", ENDLESS))
        await ws.send_json(call("b", {"prompt": "x", "top_p": 7}))
        await ws.send_json({"id": "c", "method": "ping"})
        await ws.send_json(call("d", {}, method="ping"))

        codes: list[int] = []
        answered: dict[str, dict[str, Any]] = {}
        while "lives" not in answered:
            frame = await ws.receive_json(timeout=DEADLINE)
            if "error" in frame:
                codes.append(frame["error"]["code"])
            elif "result" in frame:
                answered[frame["id"]] = frame["result"]
            if "d" in answered:  # the last of what was asked meanwhile
                await long_fleet.let_go()
    assert sorted(codes) == [-32700, -32602, -32601, -32600, -32600]
    assert answered["lives"]["usage"]["completion_tokens"] == 1000
    assert "d" in answered
