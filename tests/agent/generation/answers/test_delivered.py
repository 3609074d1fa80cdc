import pytest

from arriero.agent.generation.answers.delivered import Delivered, MiscountError
from arriero.shared.continuation import Continuation
from arriero.shared.inference import LogProb, RequestId, TokenLogProbs
from arriero.shared.messages import Called, CallStarted, Item, Noticed, Piece, PromptRead

R = RequestId("r")
STARTED = CallStarted(id=R, call_id="c", name="f")
CALLED = Called(id=R, call_id="c", name="f", arguments="{}")
NOTICED = Noticed(id=R, code="tool_call_mismatch", message="m")
READ = PromptRead(id=R, prompt_tokens=1, cached_tokens=0)
ARGUMENTS = Piece(id=R, text="{}", kind="tool_call", tokens=(4,))
CALL: list[Item] = [STARTED, ARGUMENTS, CALLED, NOTICED]


def piece(text: str, *tokens: int) -> Piece:
    return Piece(id=R, text=text, tokens=tokens)


def value(token: int) -> TokenLogProbs:
    return TokenLogProbs(LogProb(token, b"", -1.0))


def test_without_anything_delivered_all_is_new() -> None:
    items: list[Item] = [READ, piece("a", 1), *CALL]
    assert Delivered().is_past
    assert Delivered().beyond(items) is items


def test_characters_and_tokens_are_counted_apart() -> None:
    delivered = Delivered(tokens=2, characters=3)
    assert delivered.beyond([piece("ab", 1)]) == []
    assert delivered.beyond([READ, piece("cd", 2, 3)]) == [READ, piece("d", 3)]
    assert delivered.is_past


def test_of_a_call_its_beginning_and_its_end_are_counted() -> None:
    assert Delivered(calls_started=1).beyond([*CALL]) == [ARGUMENTS, CALLED, NOTICED]
    begun = Delivered(tokens=1, calls_started=1, characters=1)
    assert begun.beyond([*CALL]) == [
        Piece(id=R, text="}", kind="tool_call"),
        CALLED,
        NOTICED,
    ]


def test_a_notice_after_the_last_count_is_repeated() -> None:
    whole = {"tokens": 1, "characters": 2, "calls_started": 1, "calls": 1}
    assert Delivered(**whole).beyond([*CALL]) == [NOTICED]
    more = whole | {"characters": 3}
    assert Delivered(**more).beyond([*CALL, piece("ab")]) == [piece("b")]


def test_log_probabilities_are_counted() -> None:
    both = Piece(id=R, text="ab", tokens=(1, 2), log_probs=(value(1), value(2)))
    delivered = Delivered(tokens=2, characters=2, log_probs=1)
    assert delivered.beyond([both]) == [Piece(id=R, text="", log_probs=(value(2),))]


def test_an_echo_is_counted_by_itself_and_not_repeated_after_a_token() -> None:
    echo = Piece(id=R, text="abc", kind="prompt", log_probs=(value(1), value(2)))
    counts = Continuation(num_prompt_characters=3, num_prompt_log_probs=1)
    assert Delivered.of(counts, 0).beyond([echo]) == [
        Piece(id=R, text="", kind="prompt", log_probs=(value(2),))
    ]
    assert Delivered.of(counts, 1).prompt_log_probs == 0
    part = Delivered.of(counts, 0)
    assert part.is_answer_past
    assert not part.is_past


@pytest.mark.parametrize(
    ("delivered", "items"),
    [
        (Delivered(characters=1), CALL),
        (Delivered(calls=1), CALL),
        (Delivered(calls_started=1, characters=1), [piece("ab"), *CALL]),
    ],
)
def test_counts_that_are_no_beginning(delivered: Delivered, items: list[Item]) -> None:
    with pytest.raises(MiscountError):
        delivered.beyond(items)
