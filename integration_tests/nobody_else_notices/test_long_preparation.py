"""Texts that take long to tokenise: they hold up none that are far shorter."""

from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import bystander
from integration_tests.nobody_else_notices.preparing import (
    ask_long,
    thread_seconds,
    until_preparing,
)

NUM_WORDS = 2 * 2**20
"""As long as a body may be."""


NUM_FEWER = 2**14
"""Words of a text that takes some milliseconds."""


async def test_a_first_token_comes_before_long_texts_are_tokenised(serving: Fleet) -> None:
    case = plain_cases()[0]
    async with bystander(serving):
        before = thread_seconds(serving.agents[0])
        long = [ask_long(serving, NUM_WORDS) for _ in range(2)]
        await serving.until_num_requests(2, "assigned")
        await until_preparing(serving.agents[0], before)
        answer = await generate(serving.http, serving.inference, case.body)
        assert answer.text == case.answer
        assert b'"event":"done"' in await ask_long(serving, NUM_FEWER)
        assert not any(one.done() for one in long), "they are still prepared"
        for one in long:
            one.cancel()
