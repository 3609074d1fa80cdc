"""An answer is stored when it ended well, and only then."""

import pytest

from arriero.balancer.api.conversations import Conversations
from arriero.balancer.api.openai.responses.answer import ResponseAnswer
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.balancer.api.openai.responses.stored import Stored
from arriero.shared.errors import AgentLost
from arriero.shared.inference import Event, Failed, RequestId, Token
from tests.balancer.api.fake_runtime import done


@pytest.mark.parametrize(
    ("body", "end", "is_stored"),
    [
        (b'{"input": "hi"}', done(), True),
        (b'{"input": "hi", "store": false}', done(), False),
        (b'{"input": "hi"}', Failed(AgentLost("gone")), False),
    ],
)
def test_what_ended_well_is_stored(body: bytes, end: Event, *, is_stored: bool) -> None:
    store = Conversations()
    answer = ResponseAnswer(
        RequestId("r"),
        store,
        parse_response(body),
        None,
        served="demo",
        service_tier="default",
        created_at=1,
        owner="a",
    )
    answer.begin()
    answer.take(Token("yes"))
    answer.take(end)
    assert (store.memory.find("resp_r", Stored, 0.0, owner="a") is not None) == is_stored
