"""Whatever was delivered before an agent was lost, the rest follows, and nothing comes twice."""

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.output.transcript import Stops
from arriero.agent.chat.parsing.tools import Tools
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import ContextShift, SequenceEnd, SequenceId, SequenceOutput
from arriero.agent.generation.answers.answer import Answer
from arriero.agent.generation.answers.prepared import Echo, Parsing, Prepared
from arriero.agent.generation.answers.resumption import (
    RESUMED_ANEW,
    Resume,
    Resumed,
    has_text_only,
    resumed,
    retokenised,
)
from arriero.shared.continuation import Continuation
from arriero.shared.errors import AgentLost, EngineFailed
from arriero.shared.messages import Ended, Item, Piece
from tests.agent.chat.recorded import RECORDED
from tests.agent.fakes import ByteVocab
from tests.agent.generation.answers.moving import (
    CONTEXT,
    STATS,
    Engine,
    Pieces,
    R,
    Told,
    answer_of,
    counted,
    moved,
    resume,
    steps_of,
)
from tests.agent.generation.outputs import make_prepared, other, said_and_forced
from tests.agent.saying import at_once, demo_grammars, demo_vocab

TOOLS = Tools(
    [
        {"type": "function", "function": {"name": "get_weather"}},
        {"type": "function", "function": {"name": "now", "parameters": {"required": ["zone"]}}},
    ]
)
TEXTS = (
    "The quick brown fox",
    "Grüße, 世界! 👩‍👩‍👧 naïve",
    "a\n\n  b STOP c",
    "no stop here: STO PST",
    "",
)
STOPS = ((), ("STOP",), ("world", " c", "quick b"))


def prepared(
    *,
    stop: tuple[str, ...] = (),
    parsing: Parsing | None = None,
    explains: bool = False,
    echo: Echo | None = None,
    max_tokens: int | None = None,
    shift: ContextShift | None = None,
    **sampling: float,
) -> Prepared:
    return make_prepared(
        prompt=Prompt((0, 1, 2)),
        sampling=Sampling(seed=1, top_log_probs=1 if explains else None, **sampling),
        max_tokens=max_tokens,
        stop=Stops(stop),
        parsing=parsing,
        echo=echo,
        shift=shift,
    )


@st.composite
def spelled(draw: st.DrawFn, text: str) -> list[bytes]:
    """`text` cut into tokens, some of which are parts of characters, and some of no text."""
    raw = text.encode()
    if not raw:
        return [b""] * 3
    cuts = draw(st.sets(st.integers(0, len(raw)), max_size=len(raw)))
    if draw(st.booleans()):
        cuts = set(range(len(raw)))
    pieces = [raw[start:end] for start, end in pairwise(sorted({0, *cuts, len(raw)}))]
    for place in draw(st.lists(st.integers(0, len(pieces)), max_size=2)):
        pieces.insert(place, b"")
    return [*pieces, *[b""] * (3 - len(pieces))]


def parsings() -> st.SearchStrategy[tuple[Parsing | None, str]]:
    """An answer's text, and how it is read."""

    def recorded(name: str, has_tools: bool) -> tuple[Parsing | None, str]:
        family, text, is_thinking, _ = RECORDED[name]
        tools = TOOLS if has_tools else None
        parsing = Parsing(family=family_named(family), is_thinking=is_thinking, tools=tools)
        return parsing, text

    plain = st.sampled_from(TEXTS).map(lambda text: (None, text))
    return plain | st.builds(recorded, st.sampled_from(sorted(RECORDED)), st.booleans())


def spelt(character: str) -> int:
    """The demo model's token of `character`."""
    [token] = demo_vocab().tokenize(character, add_special=False, parse_special=False)
    return token


GROUPS = st.lists(st.integers(1, 5), max_size=12)


@given(st.data())
def test_what_was_delivered_and_what_follows_are_the_answer(data: st.DataObject) -> None:
    parsing, text = data.draw(parsings())
    vocab = Pieces(data.draw(spelled(text)))
    one = prepared(
        stop=data.draw(st.sampled_from(STOPS)) if parsing is None else (),
        parsing=parsing,
        explains=(explains := data.draw(st.booleans())),
        echo=data.draw(st.sampled_from([None, Echo(None), Echo("abc")])) if explains else None,
    )
    (end,) = vocab.end_tokens
    tokens = tuple(range(end))
    first = Engine(one, tokens, data.draw(GROUPS), data.draw(st.sampled_from([end, None])))
    steps = steps_of(Answer(R, one, vocab.piece), first.outputs(scores_prompt=one.echo is not None))
    cut = data.draw(st.integers(0, len(steps) - 1), label="steps delivered")
    delivered = list(chain(*steps[:cut]))
    second = Engine(one, tokens, data.draw(GROUPS), first.end)
    rest = moved(one, vocab, delivered, second)
    assert Told.by([*delivered, *chain(*rest)]) == Told.by(chain(*steps))


@given(st.data())
def test_it_may_move_again_and_again(data: st.DataObject) -> None:
    parsing, text = data.draw(parsings())
    vocab = Pieces(data.draw(spelled(text)))
    one = prepared(parsing=parsing, explains=data.draw(st.booleans()))
    (end,) = vocab.end_tokens
    engine = Engine(one, tuple(range(end)), data.draw(GROUPS), end)
    whole = steps_of(Answer(R, one, vocab.piece), engine.outputs(scores_prompt=False))
    delivered: list[Item] = []
    rest = whole
    for _ in range(3):
        delivered += chain(*rest[: data.draw(st.integers(0, len(rest) - 1))])
        rest = moved(one, vocab, delivered, engine)
    assert Told.by([*delivered, *chain(*rest)]) == Told.by(chain(*whole))


class TestWhatIsLeft:
    def test_text_that_was_held_back_comes_at_once(self) -> None:
        vocab = Pieces([b"a", b"bc", b"d"])
        going_on = resume(prepared(), Continuation.after((0, 1), num_characters=2), vocab)
        assert going_on.items == (Piece(id=R, text="c"),)
        assert said_and_forced(going_on) == ((0, 1), ())

    def test_tokens_without_their_values_are_generated_again(self) -> None:
        vocab = Pieces([b"a", b"ST", b"x"])
        one = prepared(stop=("STOP",), explains=True)
        delivered = Continuation.after((0, 1), num_characters=1, num_log_probs=1)
        going_on = resume(one, delivered, vocab)
        assert said_and_forced(going_on) == ((0,), (1,))
        assert going_on.items == ()

    def test_an_answer_that_ended_with_its_last_token_is_over(self) -> None:
        vocab = Pieces([b"a", b"STOP", b"x"])
        going_on = resume(prepared(stop=("STOP",)), Continuation.after((0, 1)), vocab)
        assert going_on.answer.is_over
        piece, end = going_on.items
        assert piece == Piece(id=R, text="a")
        assert isinstance(end, Ended) and end.stop_string == "STOP"
        assert end.usage.completion_tokens == 2

    def test_nothing_was_delivered(self) -> None:
        going_on = resume(prepared(), Continuation(), Pieces([b"a", b"b", b"c"]))
        assert (going_on.items, said_and_forced(going_on)) == ((), ((), ()))

    @pytest.mark.parametrize(
        ("sampling", "is_anew"),
        [
            ({}, False),
            ({"xtc_probability": 0.5}, True),
            ({"mirostat": 2}, True),
            ({"mirostat": 2, "temperature": 0.0}, False),
        ],
    )
    def test_a_client_is_told_where_chance_starts_anew(
        self, sampling: dict[str, float], is_anew: bool
    ) -> None:
        delivered = Continuation.after((0,), num_characters=1)
        going_on = resume(prepared(**sampling), delivered, Pieces([b"a", b"b", b"c"]))
        assert (RESUMED_ANEW in going_on.prepared.notices) == is_anew
        fresh = resume(prepared(**sampling), Continuation(), Pieces([b"a", b"b", b"c"]))
        assert fresh.prepared.notices == ()

    def test_the_longer_the_longer_it_takes(self) -> None:
        short, long = (Continuation.after(range(count)) for count in (1, 9))
        assert Resume(R, short).work < Resume(R, long).work


class TestAConstraint:
    """`ab` and then `c` or `d`, of which the first tokens were said."""

    def resumed(self, said: str, *, explains: bool = False, **counts: int) -> Resumed:
        constraint = demo_grammars().compile(LLMatcher.grammar_from_regex("ab(c|d)"))
        one = other(prepared(explains=explains), constraint=constraint)
        continuation = Continuation.after(map(spelt, said), **counts)
        return resumed(one, Resume(R, continuation), demo_vocab(), CONTEXT)

    def allowed(self, going_on: Resumed) -> set[int]:
        constraint = going_on.prepared.sequence.constraint
        assert constraint is not None
        row = np.zeros(demo_vocab().size, np.float32)
        constraint.begin(at_once).restrict(row)
        return {*np.flatnonzero(np.isfinite(row)).tolist()}

    def test_goes_on_after_what_was_said(self) -> None:
        going_on = self.resumed("ab", num_characters=2)
        assert {spelt("c"), spelt("d")} <= self.allowed(going_on)
        assert spelt("b") not in self.allowed(going_on)

    def test_begins_before_what_is_forced(self) -> None:
        going_on = self.resumed("ab", explains=True, num_characters=1, num_log_probs=1)
        assert going_on.prepared.sequence.forced == (spelt("b"),)
        assert spelt("b") in self.allowed(going_on)
        assert spelt("c") not in self.allowed(going_on)

    @pytest.mark.parametrize("explains", [False, True])
    def test_that_refuses_the_tokens_is_one_error(self, explains: bool) -> None:
        with pytest.raises(EngineFailed, match="does not allow token 2 of the answer"):
            self.resumed("aa", explains=explains)


class TestWhatDoesNotFit:
    @pytest.mark.parametrize(
        ("continuation", "told"),
        [
            (Continuation(packed_tokens=b"abc"), "32-bit"),
            (Continuation.after((4,)), "there is no token 4; ids go up to 3"),
            (Continuation.after((2**32 - 1,)), "there is no token"),
            (Continuation.after((3,)), "the token 3 would have ended it"),
            (Continuation.after((0,) * 8), "8 tokens are more than `max_tokens`"),
            (Continuation.after((0,), num_characters=2), "more was delivered"),
            (Continuation.after((0,), num_log_probs=1), "more was delivered"),
            (Continuation(num_characters=1), "more was delivered"),
            (Continuation.after((0,), num_calls=1), "no beginning of the answer"),
            (Continuation.after((0,), num_calls_started=1), "no beginning of the answer"),
            (Continuation.after((1, 0), num_characters=1), "it ends before its token 2"),
        ],
    )
    def test_is_one_error(self, continuation: Continuation, told: str) -> None:
        vocab = Pieces([b"a", b"STOP", b"c"])
        with pytest.raises(EngineFailed, match="cannot be continued at this agent") as caught:
            resume(prepared(stop=("STOP",), max_tokens=7), continuation, vocab)
        assert told in caught.value.message

    def test_more_than_the_context(self) -> None:
        vocab = Pieces([b"a", b"b", b"c"])
        with pytest.raises(EngineFailed, match="longer than the context"):
            resume(prepared(), Continuation.after((0,) * 4094), vocab)
        shifted = prepared(shift=ContextShift(1, 2))
        resume(shifted, Continuation.after((0,) * 4094), vocab)

    @given(st.data())
    def test_any_counts_are_taken_or_refused(self, data: st.DataObject) -> None:
        parsing, text = data.draw(parsings())
        vocab = Pieces(data.draw(spelled(text)))
        count = st.integers(0, 60)
        wrong = Continuation(
            packed_tokens=data.draw(
                st.binary(max_size=9)
                | st.lists(st.integers(0, vocab.size), max_size=40).map(
                    lambda ids: Continuation.after(ids).packed_tokens
                )
            ),
            num_characters=data.draw(count),
            num_log_probs=data.draw(count),
            num_calls_started=data.draw(st.integers(0, 2)),
            num_calls=data.draw(st.integers(0, 2)),
        )
        one = prepared(parsing=parsing, explains=data.draw(st.booleans()))
        try:
            going_on = resume(one, wrong, vocab)
        except EngineFailed:
            return
        assert sum(said_and_forced(going_on), ()) == wrong.tokens


def test_the_balancers_counts_of_a_whole_answer_fit_it() -> None:
    family, text, is_thinking, _ = RECORDED["qwen2.5"]
    parsing = Parsing(family=family_named(family), is_thinking=is_thinking, tools=TOOLS)
    vocab = Pieces([bytes([byte]) for byte in text.encode()])
    one = prepared(parsing=parsing)
    (end,) = vocab.end_tokens
    engine = Engine(one, tuple(range(end)), (), None)
    whole = answer_of(Answer(R, one, vocab.piece), engine.outputs(scores_prompt=False))
    assert counted(whole).num_calls == 2
    assert Told.by(whole).notices, "a call that does not match its schema is told of"


# ---- an answer of which only the text is known

PLAIN = make_prepared(max_tokens=10)
FEW = 3
"""How many tokens the client was told that it had."""


def by_text(text: str, num_tokens: int = FEW) -> Continuation:
    return Continuation(text=text, num_tokens=num_tokens, num_characters=len(text))


def retell(text: str, prepared: Prepared = PLAIN) -> Resumed:
    return resumed(prepared, Resume(R, by_text(text)), demo_vocab(), CONTEXT)


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
        _, own = retokenised(PLAIN, by_text(text), demo_vocab())
        assert own.tokens == tokens_of(text)
        assert own.num_characters == len(text)

    @given(st.text("ab \n", max_size=6))
    def test_have_no_space_before_them_that_it_did_not_have(self, text: str) -> None:
        _, own = retokenised(PLAIN, by_text(text), Spaced())
        assert bytes(own.tokens).decode() == text

    def test_have_to_be_exactly_its_text(self) -> None:
        with pytest.raises(ValueError, match="no tokens for exactly its text"):
            retokenised(PLAIN, by_text("Hello"), Lossy())

    def test_of_control_tokens_are_text(self) -> None:
        ends = demo_vocab().end_tokens
        text = "".join(demo_vocab().name(end).decode() for end in sorted(ends))
        _, own = retokenised(PLAIN, by_text(text), demo_vocab())
        assert ends.isdisjoint(own.tokens)


def test_whether_only_the_text_is_known() -> None:
    assert has_text_only(by_text("a"))
    assert has_text_only(by_text("", 1))
    assert not has_text_only(Continuation())
    assert not has_text_only(Continuation.after((1, 2), num_characters=2))
    assert not has_text_only(Continuation(num_prompt_characters=3))


class TestTheRest:
    def test_follows_what_was_said(self) -> None:
        going_on = retell("The mules")
        assert said_and_forced(going_on) == (tokens_of("The mules"), ())
        text, end = ended(going_on, " rest.")
        assert text == " rest."
        assert end.usage.completion_tokens == FEW + len(tokens_of(" rest."))

    @pytest.mark.parametrize("text", ["", "The mules rest before each bridge."])
    def test_counts_with_what_the_client_was_told(self, text: str) -> None:
        one = other(PLAIN, sampling=Sampling(seed=1, min_tokens=8))
        one = replace(one, stop=Stops(("x",), min_tokens=8))
        prepared = retell(text, one).prepared
        num_own = len(tokens_of(text))
        assert prepared.sequence.max_tokens == 10 - FEW + num_own
        assert (
            prepared.stop.min_tokens == prepared.sequence.sampling.min_tokens == 8 - FEW + num_own
        )

    def test_is_nothing_where_it_has_all_its_tokens(self) -> None:
        going_on = retell("The mules", other(PLAIN, max_tokens=2))
        assert going_on.prepared.sequence.max_tokens == len(going_on.prepared.sequence.said)

    def test_leaves_out_what_is_held_back_here_and_was_told(self) -> None:
        going_on = retell("So: ST", replace(PLAIN, stop=Stops(("STOP",))))
        assert ended(going_on, "ART")[0] == "ART"

    def test_tells_where_chance_begins_anew(self) -> None:
        one = other(PLAIN, sampling=Sampling(seed=1, mirostat=2))
        assert RESUMED_ANEW in retell("The mules", one).prepared.notices


ONE_TOOL = Tools([{"type": "function", "function": {"name": "look"}}])
QWEN = Parsing(family=family_named("qwen"), is_thinking=False, tools=ONE_TOOL)


class TestWhatDoesNotGoOn:
    @pytest.mark.parametrize(
        ("parsing", "text", "why"),
        [
            (replace(QWEN, is_thinking=True), "Yes", "would begin by reasoning"),
            (replace(QWEN, family=family_named("gpt-oss")), "Yes", "write more than the text"),
            (QWEN, "<think>hm</think>Yes", "not read its beginning as content"),
            (
                QWEN,
                '<tool_call>\n{"name": "look"}\n</tool_call>',
                "not read its beginning as content",
            ),
        ],
    )
    def test_is_what_this_model_would_not_have_written(
        self, parsing: Parsing, text: str, why: str
    ) -> None:
        with pytest.raises(AgentLost, match=why):
            retell(text, replace(PLAIN, parsing=parsing))

    def test_plain_text_of_such_a_model_does(self) -> None:
        going_on = retell("Yes, one < two", replace(PLAIN, parsing=QWEN))
        assert ended(going_on, " mules")[0] == " mules"

    def test_is_what_has_ended(self) -> None:
        with pytest.raises(AgentLost, match="it ends before its token"):
            retell("a STOP b", replace(PLAIN, stop=Stops(("STOP",))))
