"""Many prompts in one call, over HTTP and over the WebSocket, against a real fleet."""

import json
from collections import defaultdict
from typing import Any

import aiohttp
import pytest

from integration_tests.corpus import ENDLESS, UNENDING, Case, plain_cases
from integration_tests.daemons import DEADLINE, Fleet

CUT_TOKENS = 3


pytestmark = pytest.mark.asyncio(loop_scope="session")


def entries(cases: tuple[Case, ...]) -> list[dict[str, Any]]:
    """Every other one with an id, every third cut short by an option of its own."""
    found = []
    for position, case in enumerate(cases):
        entry = dict(case.body)
        if position % 2:
            entry["id"] = f"my {position}"
        if position % 3 == 2:
            entry |= {"max_tokens": CUT_TOKENS}
        found.append(entry)
    return found


def id_of(position: int) -> str:
    return f"my {position}" if position % 2 else str(position)


def check(position: int, case: Case, text: str, end: dict[str, Any]) -> None:
    if position % 3 == 2:
        assert case.answer.startswith(text)
        assert end["finish_reason"] == "length"
        assert end["usage"]["completion_tokens"] == CUT_TOKENS
    else:
        assert (text, end["finish_reason"]) == (case.answer, "stop")


def post(fleet: Fleet, body: dict[str, Any]) -> Any:
    return fleet.http.post(f"{fleet.inference}/api/v1/generate_batch", json=body)


async def connect(fleet: Fleet) -> aiohttp.ClientWebSocketResponse:
    return await fleet.http.ws_connect(f"{fleet.inference}/api/v1/socket")


async def say(
    ws: aiohttp.ClientWebSocketResponse, id: str, method: str, params: dict[str, Any]
) -> None:
    await ws.send_json({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


async def until_answers(
    ws: aiohttp.ClientWebSocketResponse, *ids: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The results of calls, and the texts of what is said meanwhile, by item."""
    results: dict[str, Any] = {}
    texts: dict[str, str] = defaultdict(str)
    while set(ids) - set(results):
        frame = await ws.receive_json(timeout=DEADLINE)
        if frame.get("method") == "event":
            if frame["params"]["event"] == "token":
                texts[frame["params"]["item"]] += frame["params"]["text"]
        else:
            results[frame["id"]] = frame["result"]
    return results, texts


async def test_streamed_over_http(small_fleet: Fleet) -> None:
    cases = plain_cases()[:9]
    texts: dict[str, str] = defaultdict(str)
    ends: dict[str, dict[str, Any]] = {}
    async with post(small_fleet, {"requests": entries(cases)}) as response:
        assert response.status == 200
        async for line in response.content:
            event = json.loads(line)
            if event["event"] == "batch_done":
                statistics = event["statistics"]
                continue
            assert event["id"] not in ends
            if event["event"] == "token":
                assert event["text"]
                texts[event["id"]] += event["text"]
            elif event["event"] != "waiting":
                ends[event["id"]] = event
    assert {end["event"] for end in ends.values()} == {"done"}
    tokens = sum(end["usage"]["completion_tokens"] for end in ends.values())
    assert (statistics["requests"], statistics["completion_tokens"]) == (9, tokens)
    assert statistics["decode_tokens_per_second"] >= statistics["tokens_per_second"] > 0
    # A slot goes to the next request a moment before the balancer hears the end of the last.
    assert 1 <= statistics["average_running"] < 3 and statistics["total_ms"] > 0
    for position, case in enumerate(cases):
        check(position, case, texts[id_of(position)], ends[id_of(position)])


async def test_in_one_piece_over_http(small_fleet: Fleet) -> None:
    cases = plain_cases()[:9]
    async with post(small_fleet, {"requests": entries(cases), "stream": False}) as response:
        assert response.status == 200
        results = (await response.json())["results"]
    assert [result["id"] for result in results] == [id_of(each) for each in range(9)]
    for position, (case, result) in enumerate(zip(cases, results, strict=True)):
        check(position, case, result["text"], result)


async def test_ids_are_unique(small_fleet: Fleet) -> None:
    requests = [{"prompt": "x"}, {"id": "0", "prompt": "x"}]
    async with post(small_fleet, {"requests": requests}) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert (error["code"], error["field"]) == ("invalid_request", "requests[1].id")
    assert await small_fleet.view("requests") == []


async def test_over_the_socket(small_fleet: Fleet) -> None:
    cases = plain_cases()[:9]
    async with await connect(small_fleet) as ws:
        await say(ws, "many", "generate_batch", {"requests": entries(cases)})
        answers, texts = await until_answers(ws, "many")
    results = answers["many"]["results"]
    assert [result["id"] for result in results] == [id_of(each) for each in range(9)]
    for position, (case, result) in enumerate(zip(cases, results, strict=True)):
        check(position, case, texts[id_of(position)], result)


async def test_one_of_a_batch_is_cancelled(small_fleet: Fleet) -> None:
    lasting = {**ENDLESS, "max_tokens": 600}
    requests = [{**ENDLESS, "id": "runs"}, lasting, {**ENDLESS, "id": "waits"}, lasting]
    await small_fleet.hold()
    async with await connect(small_fleet) as ws:
        await say(ws, "many", "generate_batch", {"requests": requests})
        await small_fleet.until_streaming(2)
        await say(ws, "c1", "cancel", {"id": "many", "item": "waits"})
        await say(ws, "c2", "cancel", {"id": "many", "item": "runs"})
        _, before = await until_answers(ws, "c1", "c2")
        await small_fleet.let_go()
        answers, after = await until_answers(ws, "many")
    runs, first, waits, second = answers["many"]["results"]
    assert runs["finish_reason"] == "cancelled"
    assert runs["usage"]["completion_tokens"] > 0
    assert before["runs"]
    assert waits["error"]["code"] == "cancelled"
    assert not before["waits"] + after["waits"]
    for lasted in (first, second):
        assert (lasted["finish_reason"], lasted["usage"]["completion_tokens"]) == ("length", 600)
    await small_fleet.until_idle()


async def test_all_of_a_batch_is_cancelled(small_fleet: Fleet) -> None:
    async with await connect(small_fleet) as ws:
        await say(ws, "many", "generate_batch", {"requests": [UNENDING] * 5})
        await small_fleet.until_num_requests(2, "streaming")
        await small_fleet.until_num_requests(3, "queued")
        await say(ws, "c", "cancel", {"id": "many"})
        answers, texts = await until_answers(ws, "many", "c")
    assert answers["c"] == {"cancelled": 5}
    results = answers["many"]["results"]
    assert [result.get("finish_reason") for result in results] == ["cancelled"] * 2 + [None] * 3
    assert {result["error"]["code"] for result in results[2:]} == {"cancelled"}
    assert set(texts) == {"0", "1"}
    await small_fleet.until_idle()


async def test_a_client_that_goes_away_frees_all_of_its_batch(small_fleet: Fleet) -> None:
    async with post(small_fleet, {"requests": [UNENDING] * 5}) as response:
        await small_fleet.until_num_requests(2, "streaming")
        await small_fleet.until_num_requests(3, "queued")
        response.close()
    await small_fleet.until_idle()
