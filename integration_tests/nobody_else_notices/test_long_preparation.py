"""Texts that take long to tokenise: they hold up no first token."""

import asyncio
import json
from io import BytesIO

from integration_tests.corpus import LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import bystander

LONG = {
    "prompt": "a slot " * (2 * 2**20),
    "n_discard": LONG_CONTEXT // 2,
    "max_tokens": 1,
}
"""As long as a body may be; with a window that moves on, it is not refused before."""


async def ask_long(fleet: Fleet) -> None:
    data, headers = BytesIO(json.dumps(LONG).encode()), {"Content-Type": "application/json"}
    url = f"{fleet.inference}/api/v1/generate"
    async with fleet.http.post(url, data=data, headers=headers) as response:
        await response.read()


async def test_a_first_token_comes_before_long_texts_are_tokenised(serving: Fleet) -> None:
    case = plain_cases()[0]
    async with bystander(serving):
        long = [asyncio.create_task(ask_long(serving)) for _ in range(2)]
        await serving.until_num_requests(2, "assigned")
        answer = await generate(serving.http, serving.inference, case.body)
        assert answer.text == case.answer
        assert not any(one.done() for one in long), "they are still prepared"
        for one in long:
            one.cancel()
