"""What an agent may say of a request."""

from dataclasses import replace
from typing import Any

import pytest

from arriero.balancer.fleet.bad_messages import BadMessage
from arriero.balancer.fleet.requests.claims import (
    ITEMS_A_TOKEN,
    LONGEST_TOKEN,
    SPARE,
    SPARE_OF_SERVERS,
    Claim,
    consistent,
)
from arriero.balancer.fleet.requests.delivered import Delivered
from arriero.shared.inference import RequestId, Token, Usage
from arriero.shared.messages import Called, CallStarted, Item, Noticed, PromptRead
from arriero.shared.reports.model_info import Upstream
from tests.balancer.fleet.builders import ended, model_info, piece, request

ID = RequestId("r")
STARTED = CallStarted(id=ID, call_id="c", name="f")
CALLED = Called(id=ID, call_id="c", name="f", arguments="{}")


def claim(delivered: Delivered | None = None, **asked: Any) -> Claim:
    return Claim.of(replace(request(), **asked), model_info(), delivered or Delivered())


def is_bad(claim: Claim, *items: Item) -> bool:
    """Whether the last of these is; those before it are not."""
    for item in items[:-1]:
        claim.check(item)
    try:
        claim.check(items[-1])
    except BadMessage:
        return True
    return False


def test_no_more_tokens_than_were_asked_for() -> None:
    one = claim(max_tokens=5)
    one.check(piece("r", num_tokens=5 + SPARE))
    with pytest.raises(BadMessage, match=f"{6 + SPARE} tokens for a request that can have"):
        one.check(piece("r"))


def test_no_more_tokens_than_the_context_holds() -> None:
    assert claim().most_tokens == 2048 + SPARE
    assert claim(max_tokens=10**6).most_tokens == 2048 + SPARE
    assert claim(max_tokens=10**6, n_discard=8).most_tokens == 10**6 + SPARE


def test_servers_count_in_their_own_ways() -> None:
    served = replace(model_info(), upstream=Upstream(kind="vllm", address="h:1"), context_size=0)
    one = Claim.of(replace(request(), max_tokens=5), served, Delivered())
    assert one.most_tokens == 5 + SPARE_OF_SERVERS
    assert not is_bad(one, PromptRead(id=ID, prompt_tokens=10**6, cached_tokens=0))


def test_what_another_agent_gave_counts() -> None:
    delivered = Delivered()
    delivered.add(Token("ab", tokens=(1, 2)))
    one = claim(delivered, max_tokens=5)
    assert is_bad(one, piece("r", num_tokens=3 + SPARE), piece("r"))


def test_ends_tell_of_no_more_than_could_be() -> None:
    end = ended("r")
    assert not is_bad(claim(), end)
    for usage in (Usage(completion_tokens=2**31 - 1), Usage(prompt_tokens=2**31 - 1)):
        assert is_bad(claim(), replace(end, usage=usage))
    assert is_bad(claim(), PromptRead(id=ID, prompt_tokens=2**31 - 1, cached_tokens=0))


def test_a_prompt_comes_only_where_it_was_asked_for_and_first() -> None:
    prompt = piece("r", "Once", "prompt", num_tokens=0)
    echo = {"logprobs": True, "prompt_logprobs": True}
    assert is_bad(claim(), prompt)
    assert not is_bad(claim(**echo), prompt, prompt)
    assert is_bad(claim(**echo), piece("r"), prompt)
    assert is_bad(claim(**echo), STARTED, prompt)
    delivered = Delivered()
    delivered.add(Token("a"))
    assert is_bad(claim(delivered, **echo), prompt)


def test_arguments_come_only_within_a_call() -> None:
    arguments = piece("r", "{", "tool_call")
    assert is_bad(claim(), arguments)
    assert not is_bad(claim(), STARTED, arguments, piece("r", "", "content"), arguments)
    assert is_bad(claim(), STARTED, CALLED, arguments)
    assert is_bad(claim(), STARTED, piece("r", "said"), arguments)


def test_another_agents_call_is_gone_on_with() -> None:
    delivered = Delivered()
    delivered.event_of(STARTED)
    assert not is_bad(claim(delivered), piece("r", "{", "tool_call"), CALLED)


def test_no_more_items_and_text_than_tokens_can_give() -> None:
    one = claim(max_tokens=1)
    silent = piece("r", "", num_tokens=0)
    assert is_bad(one, *[silent] * (ITEMS_A_TOKEN * (1 + SPARE)), silent)
    echo = {"logprobs": True, "prompt_logprobs": True}
    part = piece("r", "", "prompt", num_tokens=0)
    assert not is_bad(claim(max_tokens=1, **echo), *[part] * 2048)
    one = claim(max_tokens=1)
    assert is_bad(one, Noticed(id=ID, code="c", message="m"), STARTED, piece("r", "a" * 10**5))
    assert is_bad(one, replace(CALLED, arguments="a" * ((1 + SPARE) * LONGEST_TOKEN)))


def test_counts_agree_with_each_other() -> None:
    whole = Usage(prompt_tokens=3, cached_tokens=3, completion_tokens=2, reasoning_tokens=2)
    assert consistent(whole) is whole
    assert consistent(replace(whole, cached_tokens=4, reasoning_tokens=9)) == whole
