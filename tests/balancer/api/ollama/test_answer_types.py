"""What Ollama's API answers is as its types say."""

import pytest

from arriero.balancer.api.ollama.answer_types import OllamaChat, OllamaModel, OllamaText
from arriero.balancer.api.ollama.answers import whole_chat, whole_text
from arriero.balancer.api.ollama.models import listed
from arriero.shared.inference import Token
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.api.ollama.test_answers import CALLS, DONE, HEAD, LOG_PROBS, gathered, lines


@pytest.mark.parametrize("events", [CALLS, [Token("a", log_probs=LOG_PROBS), DONE]])
def test_chats(events: list[object]) -> None:
    for line in (*lines(events), whole_chat(HEAD, gathered(events))):
        check(OllamaChat, line)


def test_texts() -> None:
    events = [Token("hm", "reasoning"), Token("a", log_probs=LOG_PROBS), DONE]
    check(OllamaText, whole_text(HEAD, gathered(events)))


def test_models() -> None:
    (model,) = listed(FakeFleetRuntime().models(), "2026-01-01T00:00:00Z")
    check(OllamaModel, model)
