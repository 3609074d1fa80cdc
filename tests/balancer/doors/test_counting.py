"""How long a prompt is."""

import pytest

from arriero.balancer.doors.counting import count_tokens
from arriero.balancer.doors.field_names import FieldNames
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage, GenerateRequest
from arriero.shared.queries import Counted, CountTokens
from tests.balancer.doors.counting_switchboard import CountingSwitchboard

REQUEST = GenerateRequest(messages=(ChatMessage(role="user", content="hi"),), model="demo")


async def test_an_agent_is_asked() -> None:
    switchboard = CountingSwitchboard((Counted(num_tokens=7),))
    assert await count_tokens(switchboard, REQUEST) == 7
    (question,) = switchboard.questions
    assert (question.kind, question.model) == ("text", "demo")
    assert question.parts == (CountTokens(request=REQUEST),)


async def test_errors_are_told_in_the_clients_words() -> None:
    switchboard = CountingSwitchboard(InvalidRequest("`messages` are odd", field="messages"))
    with pytest.raises(InvalidRequest, match="`input` are odd"):
        await count_tokens(switchboard, REQUEST, FieldNames({"messages": "input"}))
