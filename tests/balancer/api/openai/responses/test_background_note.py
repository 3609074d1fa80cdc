"""A response in the background is rendered at another run as it was at the first."""

import json

import pytest

from arriero.balancer.api.conversation_store import ConversationStore
from arriero.balancer.api.openai.responses.background_note import answer_to, answers_of, note_of
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.balancer.api.openai.responses.stored import Stored, stored
from arriero.balancer.fleet.kept_record import KeptKey, KeptRecord
from arriero.balancer.fleet.runtime.kept_request import KeptRequest
from arriero.shared.inference import RequestId, Token
from tests.balancer.api.fake_runtime import done

BODY = json.dumps({"input": "hé", "background": True, "metadata": {"a": "b"}, "top_k": 3}).encode()
RECORD = KeptRecord(KeptKey("ana@1", "k"), RequestId("r"), b"", created_at=12.5)


def previous() -> Stored:
    store = ConversationStore()
    wanted = parse_response(b'{"input": "before"}')
    answer = answer_to(
        RequestId("p"),
        store,
        wanted,
        None,
        served="m",
        service_tier="priority",
        created_at=1.0,
        owner="ana@1",
    )
    answer.begin()
    answer.take(Token("well"))
    answer.take(done())
    return stored(answer.response, wanted.input, None)


@pytest.mark.parametrize("continues", [False, True])
def test_it_is_the_same(continues: bool) -> None:
    wanted, before = parse_response(BODY), previous() if continues else None
    store = ConversationStore()
    first = answer_to(
        RECORD.id,
        store,
        wanted,
        before,
        served="m",
        service_tier="priority",
        created_at=12.5,
        owner="ana@1",
    )
    kept = KeptRequest(RECORD, lambda _, __: None, note=note_of(wanted, before, "m", "priority"))
    other_store = ConversationStore()
    second = answers_of(kept, other_store)()
    for event in (Token("a"), done()):
        assert first.take(event) == second.take(event)
    assert first.response == second.response
    assert first.response["service_tier"] == "priority"
    [mine, others] = [
        each.find("resp_r", Stored, 0.0, owner="ana@1") for each in (store, other_store)
    ]
    assert mine == others and mine is not None
    assert len(mine.history) == (4 if continues else 2)


def test_a_note_that_is_not_readable() -> None:
    kept = KeptRequest(RECORD, lambda _, __: None, note=b'{"later": 1}')
    with pytest.raises(ValueError, match="later"):
        answers_of(kept, ConversationStore())
