from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.upstream.protocol.bodies import body_of
from arriero.agent.upstream.protocol.continuing import Rest, fingerprint_of, notice_of
from arriero.agent.upstream.protocol.dialects import (
    LLAMA_SERVER,
    OLLAMA,
    OTHER,
    SGLANG,
    VLLM,
    Dialect,
)
from arriero.agent.upstream.protocol.listing import ListedModel
from arriero.shared.continuation import BY_TEXT, Continuation
from arriero.shared.inference import ChatMessage, GenerateRequest, Usage
from arriero.shared.inference.abilities import ABILITIES
from arriero.shared.reports.model_info import MAX_FINGERPRINT
from tests.agent.upstream.protocol.servers import (
    OLLAMA_SERVER,
    SGLANG_SERVER,
    VLLM_SERVER,
    server,
)

MODEL = ListedModel(id="m", root="org/m", context_size=64)
USER = ChatMessage(role="user", content="hi")
CHAT = GenerateRequest(messages=(USER,), max_tokens=10, min_tokens=3)


def after(text: str, num_tokens: int = 1) -> Continuation:
    return Continuation(text=text, num_tokens=num_tokens, num_characters=len(text))


class TestFingerprint:
    def test_is_the_same_for_what_is_the_same(self) -> None:
        one = fingerprint_of(VLLM_SERVER, MODEL)
        assert one is not None
        assert one == fingerprint_of(VLLM_SERVER, MODEL)
        assert one.startswith(BY_TEXT) and len(one) <= MAX_FINGERPRINT

    @pytest.mark.parametrize(
        "other",
        [
            fingerprint_of(SGLANG_SERVER, MODEL),
            fingerprint_of(VLLM_SERVER, replace(MODEL, id="n")),
            fingerprint_of(VLLM_SERVER, replace(MODEL, root="org/m-awq")),
            fingerprint_of(VLLM_SERVER, replace(MODEL, context_size=32)),
            fingerprint_of(
                replace(VLLM_SERVER, abilities=VLLM_SERVER.abilities - {"logprobs"}), MODEL
            ),
        ],
    )
    def test_is_another_for_what_differs(self, other: str | None) -> None:
        assert other not in (None, fingerprint_of(VLLM_SERVER, MODEL))

    def test_a_server_that_does_not_go_on_has_none(self) -> None:
        assert fingerprint_of(OLLAMA_SERVER, MODEL) is None
        only_text = replace(OLLAMA_SERVER, abilities=frozenset(("prompt",)))
        assert fingerprint_of(only_text, MODEL) is not None


class TestTheRequestForTheRest:
    def test_gives_the_beginning_as_the_assistants(self) -> None:
        rest = Rest(CHAT, after("One, two", 4))
        body = body_of(rest.request, VLLM_SERVER)
        assert body["messages"][-1] == {"role": "assistant", "content": "One, two"}
        assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
        assert (body["max_tokens"], body.get("min_tokens")) == (6, None)

    def test_a_server_may_need_no_field_for_that(self) -> None:
        ollama = replace(server(OLLAMA), abilities=ABILITIES)
        body = body_of(Rest(replace(CHAT, min_tokens=None), after("One")).request, ollama)
        assert body["messages"][-1]["content"] == "One"
        assert "add_generation_prompt" not in body

    def test_goes_on_with_a_message_that_was_to_go_on_itself(self) -> None:
        begun = ChatMessage(role="assistant", content="So: ")
        request = replace(CHAT, messages=(USER, begun), continue_final_message=True)
        messages = Rest(request, after("One")).request.messages
        assert messages is not None
        assert messages[1:] == (ChatMessage(role="assistant", content="So: One"),)

    def test_follows_a_raw_prompt_as_it_stands(self) -> None:
        request = GenerateRequest(prompt="Once ")
        assert Rest(request, after("upon ")).request == GenerateRequest(prompt="Once upon ")

    def test_nothing_is_left_of_an_answer_that_has_all_its_tokens(self) -> None:
        assert Rest(CHAT, after("One", 10)).is_empty
        assert not Rest(CHAT, after("One", 9)).is_empty
        assert not Rest(replace(CHAT, max_tokens=None), after("One", 9)).is_empty


class TestTheSeam:
    @given(st.text("a \n", max_size=8), st.text("a \n", max_size=8), st.integers(1, 3))
    def test_spaces_that_were_not_sent_are_not_told_twice(
        self, given: str, more: str, step: int
    ) -> None:
        """A template that drops them has the model write them again."""
        rest = Rest(CHAT, after(given))
        said = given[len(given.rstrip()) :] + more
        pieces = [said[at : at + step] for at in range(0, len(said), step)]
        assert "".join(map(rest.joined, pieces)) == more

    def test_other_text_is_told_as_it_comes(self) -> None:
        rest = Rest(CHAT, after("One\n\n"))
        assert [rest.joined(each) for each in ("\n", "- a", "\n")] == ["", "- a", "\n"]

    def test_an_answer_of_nothing_but_spaces_begins_again(self) -> None:
        rest = Rest(CHAT, after("\n ", 2))
        assert rest.request == replace(CHAT, max_tokens=8, min_tokens=1)
        assert rest.joined("\n Hi") == "Hi"
        assert rest.whole(Usage(prompt_tokens=5)) == Usage(prompt_tokens=5, completion_tokens=2)


def test_usage_is_that_of_one_answer() -> None:
    own = Usage(prompt_tokens=12, cached_tokens=11, completion_tokens=5, reasoning_tokens=0)
    assert Rest(CHAT, after("One, two", 4)).whole(own) == Usage(
        prompt_tokens=8, cached_tokens=8, completion_tokens=9
    )
    assert Rest(CHAT, after("One, two", 4)).whole(Usage()) == Usage(completion_tokens=4)


PENALISED = replace(CHAT, presence_penalty=0.5, frequency_penalty=0.0, repeat_penalty=1.1)


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        (OTHER, ("presence_penalty", "repeat_penalty")),
        (SGLANG, ("presence_penalty", "repeat_penalty")),
        (VLLM, ("presence_penalty",)),
        (LLAMA_SERVER, ()),
    ],
)
def test_penalties_that_do_not_count_what_came_before_are_named(
    dialect: Dialect, names: tuple[str, ...]
) -> None:
    notice = notice_of(PENALISED, dialect)
    told = "" if notice is None else notice.message
    known = ("presence_penalty", "frequency_penalty", "repeat_penalty", "mirostat")
    assert tuple(name for name in known if f"`{name}`" in told) == names
    assert notice is None or notice.code == "resumed_anew"


def test_where_nothing_is_lost_nothing_is_told() -> None:
    assert notice_of(CHAT, OTHER) is None
    idle = replace(CHAT, presence_penalty=0.0, repeat_penalty=1.0, mirostat=0)
    assert notice_of(idle, OTHER) is None
    assert notice_of(replace(CHAT, mirostat=2), LLAMA_SERVER) is not None
