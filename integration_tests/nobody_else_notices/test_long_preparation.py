"""Texts that take long to tokenise: they hold up none that are far shorter."""

from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed
from integration_tests.nobody_else_notices.preparing import (
    ask_long,
    busy,
    thread_seconds,
    until_preparing,
)

NUM_WORDS = 2 * 2**20
"""As long as a body may be."""


NUM_CONTROL = 400_000
"""Control tokens whose text was looked at for hours."""

READING = 3.0
"""Seconds that a stream may stand still while the daemons read bodies of many megabytes."""
NUM_FEWER = 2**14
"""Words of a text that takes some milliseconds."""


async def test_a_first_token_comes_before_long_texts_are_tokenised(fleet: Fleet) -> None:
    await fleet.start_balancer()
    agent = await fleet.start_agent()
    others: set[str] = set()
    case = plain_cases()[0]

    async def attack(seen: Bystander) -> None:
        before = thread_seconds(agent)
        others.update(busy(before) if not others else ())
        long = [ask_long(fleet, NUM_WORDS) for _ in range(2)]
        await fleet.until_num_requests(2, "assigned")
        await until_preparing(agent, before, others)
        answer = await generate(fleet.http, fleet.inference, case.body)
        assert answer.text == case.answer
        assert b'"event":"done"' in await ask_long(fleet, NUM_FEWER)
        assert not any(one.done() for one in long), "they are still prepared"
        for one in long:
            one.cancel()
        await fleet.until_num_requests(0, "assigned")

    await unnoticed(fleet, attack, allowance=READING)


async def test_what_its_client_has_left_is_not_prepared_on(fleet: Fleet) -> None:
    """A prompt of the same length, which the same thread prepares, gets its turn."""
    await fleet.start_balancer()
    agent = await fleet.start_agent()

    async def attack(seen: Bystander) -> None:
        before = thread_seconds(agent)
        left = ask_long(fleet, 0, prompt="<|im_start|>a" * NUM_CONTROL)
        await fleet.until_num_requests(1, "assigned")
        await until_preparing(agent, before)
        left.cancel()
        assert b'"event":"done"' in await ask_long(fleet, NUM_WORDS // 8)

    await unnoticed(fleet, attack, allowance=READING)
