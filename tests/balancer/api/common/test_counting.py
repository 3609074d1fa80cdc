"""How long a prompt is."""

import pytest

from arriero.balancer.api.common.body_fields import FieldNames
from arriero.balancer.api.common.counting import count_tokens
from arriero.balancer.fleet.caller import Caller
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage, GenerateRequest
from arriero.shared.queries import Counted, CountTokens
from tests.balancer.api.counting_runtime import CountingFleetRuntime

REQUEST = GenerateRequest(messages=(ChatMessage(role="user", content="hi"),), model="demo")
CALLER = Caller(address="192.0.2.7")


async def test_an_agent_is_asked() -> None:
    runtime = CountingFleetRuntime((Counted(num_tokens=7),))
    assert await count_tokens(runtime, REQUEST, caller=CALLER) == 7
    assert runtime.callers == [CALLER]
    (query_request,) = runtime.questions
    assert (query_request.kind, query_request.model) == ("text", "demo")
    assert query_request.parts == (CountTokens(request=REQUEST),)


async def test_errors_are_told_in_the_clients_words() -> None:
    runtime = CountingFleetRuntime(InvalidRequest("`messages` are odd", field="messages"))
    with pytest.raises(InvalidRequest, match="`input` are odd"):
        await count_tokens(runtime, REQUEST, FieldNames({"messages": "input"}), caller=CALLER)
