import asyncio
import json

import pytest

from arriero.balancer.api.common.answering import PIECE, written


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
async def test_a_list_in_pieces_is_the_list(size: int) -> None:
    body = await written({"id": "x", "list": iter(range(size)), "usage": {"a": 1}})
    assert json.loads(body) == {"id": "x", "list": list(range(size)), "usage": {"a": 1}}


async def test_others_get_their_turn_in_between() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await written({"list": iter(range(10 * PIECE))})
    other.cancel()
    assert turns >= 10
