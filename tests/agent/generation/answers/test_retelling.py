"""An answer that a server began goes on here, after its text."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.calls.tools import Tools
from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.output.transcript import Stops
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import SequenceEnd, SequenceId, SequenceOutput
from arriero.agent.generation.answers.prepared import Prepared, Reading
from arriero.agent.generation.answers.resumption import RESUMED_ANEW, Resume, Resumed, resumed
from arriero.agent.generation.answers.retelling import is_told, retold
from arriero.shared.continuation import Continuation
from arriero.shared.errors import AgentLost
from arriero.shared.messages import Ended, Item, Piece
from tests.agent.fakes import ByteVocab
from tests.agent.generation.answers.moving import CONTEXT, STATS, R
from tests.agent.saying import demo_vocab

PLAIN = Prepared(prompt=Prompt((1, 2)), sampling=Sampling(seed=1), max_tokens=10, stop=Stops())
FEW = 3
"""How many tokens the client was told that it had."""


def told(text: str, num_tokens: int = FEW) -> Continuation:
    return Continuation(text=text, num_tokens=num_tokens, num_characters=len(text))


def resume(text: str, prepared: Prepared = PLAIN) -> Resumed:
    return resumed(prepared, Resume(R, told(text)), demo_vocab(), CONTEXT)


def tokens_of(text: str) -> tuple[int, ...]:
    return demo_vocab().tokenize(text, add_special=False, parse_special=False)


def ended(going_on: Resumed, more: str) -> tuple[str, Ended]:
    """The text of what the client gets, and the end, where the engine says `more`."""
    items: list[Item] = [*going_on.items]
    for token in tokens_of(more):
        items += going_on.answer.take(SequenceOutput(SequenceId(1), (token,), stats=STATS))
    end = SequenceEnd("length", STATS)
    items += going_on.answer.take(SequenceOutput(SequenceId(1), (), end, stats=STATS))
    last = items[-1]
    assert isinstance(last, Ended)
    return "".join(item.text for item in items if isinstance(item, Piece)), last


class Spaced(ByteVocab):
    """Puts a space before every text, as SentencePiece does."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return super().tokenize(" " + text, add_special=add_special, parse_special=parse_special)


class Lossy(ByteVocab):
    """Knows no capitals."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        lower = text.lower()
        return super().tokenize(lower, add_special=add_special, parse_special=parse_special)


class TestItsTokens:
    @given(st.text(max_size=20))
    def test_are_those_that_this_model_has_for_it(self, text: str) -> None:
        text = text.encode(errors="replace").decode()
        _, own = retold(PLAIN, told(text), demo_vocab())
        assert own.tokens == tokens_of(text)
        assert own.num_characters == len(text)

    @given(st.text("ab \n", max_size=6))
    def test_have_no_space_before_them_that_it_did_not_have(self, text: str) -> None:
        _, own = retold(PLAIN, told(text), Spaced())
        assert bytes(own.tokens).decode() == text

    def test_have_to_be_exactly_its_text(self) -> None:
        with pytest.raises(ValueError, match="no tokens for exactly its text"):
            retold(PLAIN, told("Hello"), Lossy())

    def test_of_control_tokens_are_text(self) -> None:
        ends = demo_vocab().end_tokens
        text = "".join(demo_vocab().name(end).decode() for end in sorted(ends))
        _, own = retold(PLAIN, told(text), demo_vocab())
        assert ends.isdisjoint(own.tokens)


def test_whether_only_the_text_is_known() -> None:
    assert is_told(told("a"))
    assert is_told(told("", 1))
    assert not is_told(Continuation())
    assert not is_told(Continuation.after((1, 2), num_characters=2))
    assert not is_told(Continuation(num_prompt_characters=3))


class TestTheRest:
    def test_follows_what_was_said(self) -> None:
        going_on = resume("The mules")
        assert (going_on.said, going_on.forced) == (tokens_of("The mules"), ())
        text, end = ended(going_on, " rest.")
        assert text == " rest."
        assert end.usage.completion_tokens == FEW + len(tokens_of(" rest."))

    @pytest.mark.parametrize("text", ["", "The mules rest before each bridge."])
    def test_counts_with_what_the_client_was_told(self, text: str) -> None:
        one = replace(
            PLAIN,
            stop=Stops(("x",), min_tokens=8),
            sampling=Sampling(seed=1, min_tokens=8),
        )
        prepared = resume(text, one).prepared
        num_own = len(tokens_of(text))
        assert prepared.max_tokens == 10 - FEW + num_own
        assert prepared.stop.min_tokens == prepared.sampling.min_tokens == 8 - FEW + num_own

    def test_is_nothing_where_it_has_all_its_tokens(self) -> None:
        going_on = resume("The mules", replace(PLAIN, max_tokens=2))
        assert going_on.prepared.max_tokens == len(going_on.said)

    def test_leaves_out_what_is_held_back_here_and_was_told(self) -> None:
        going_on = resume("So: ST", replace(PLAIN, stop=Stops(("STOP",))))
        assert ended(going_on, "ART")[0] == "ART"

    def test_tells_where_chance_begins_anew(self) -> None:
        one = replace(PLAIN, sampling=Sampling(seed=1, mirostat=2))
        assert RESUMED_ANEW in resume("The mules", one).prepared.notices


TOOLS = Tools([{"type": "function", "function": {"name": "look"}}])
QWEN = Reading(family=family_named("qwen"), is_thinking=False, tools=TOOLS)


class TestWhatDoesNotGoOn:
    @pytest.mark.parametrize(
        ("reading", "text", "why"),
        [
            (replace(QWEN, is_thinking=True), "Yes", "would begin by reasoning"),
            (replace(QWEN, family=family_named("gpt-oss")), "Yes", "write more than the text"),
            (QWEN, "<think>hm</think>Yes", "something else than text"),
            (QWEN, '<tool_call>\n{"name": "look"}\n</tool_call>', "something else than text"),
        ],
    )
    def test_is_what_this_model_would_not_have_written(
        self, reading: Reading, text: str, why: str
    ) -> None:
        with pytest.raises(AgentLost, match=why):
            resume(text, replace(PLAIN, reading=reading))

    def test_plain_text_of_such_a_model_does(self) -> None:
        going_on = resume("Yes, one < two", replace(PLAIN, reading=QWEN))
        assert ended(going_on, " mules")[0] == " mules"

    def test_is_what_has_ended(self) -> None:
        with pytest.raises(AgentLost, match="it ends before its token"):
            resume("a STOP b", replace(PLAIN, stop=Stops(("STOP",))))
