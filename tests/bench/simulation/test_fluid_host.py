import pytest

from arriero.shared.continuation import Continuation
from arriero.shared.inference import ChatMessage, GenerateRequest, RequestId
from arriero.shared.messages import Ended, Item, Piece, PromptRead, Start
from bench.simulation.fluid_host import STALL, Cache, FluidHost, Speeds

SPEEDS = Speeds(prefill=100.0, step=0.1, sequence=0.05)


def host() -> FluidHost:
    return FluidHost(SPEEDS, Cache(10_000))


def start(id: str, *, prompt: int = 100, answer: int = 11, given: int = 0) -> Start:
    message = ChatMessage(role="user", content=f"{id} ".ljust(prompt * 4, "x"))
    request = GenerateRequest(messages=(message,), max_tokens=answer)
    continuation = Continuation.after([1] * given) if given else None
    return Start(id=RequestId(id), request=request, continuation=continuation)


def run(one: FluidHost) -> list[tuple[float, Item]]:
    items = []
    while (due := one.next_change()) is not None:
        items += [(due, item) for item in one.advance(due)]
    return items


def test_an_answer_alone_takes_its_prompt_and_its_steps() -> None:
    one = host()
    one.start(start("a"), 0.0)
    (read_at, read), (ended_at, ended) = run(one)
    assert isinstance(read, PromptRead) and isinstance(ended, Ended)
    assert read_at == pytest.approx(1.0)
    assert ended_at == pytest.approx(1.0 + 10 * 0.15)
    assert not one.running


def test_two_share_the_steps_and_a_prompt_holds_them_up() -> None:
    one = host()
    one.start(start("a"), 0.0)
    one.start(start("b"), 0.0)
    (_, _), (second_read, _), *ends = run(one)
    step = 0.1 + 0.05
    assert second_read == pytest.approx(1.0 + 1.0 * (STALL + step) / STALL)
    given = (second_read - 1.0) / (STALL + step)  # tokens of the first meanwhile
    assert ends[0][0] == pytest.approx(second_read + (10 - given) * 0.2)
    assert [item.id for _, item in ends] == ["a", "b"]


def test_a_prompt_that_was_read_is_cached() -> None:
    one = host()
    one.start(start("a"), 0.0)
    run(one)
    one.advance(50.0)
    one.start(start("a"), 50.0)
    (_, read), _ = run(one)
    assert isinstance(read, PromptRead)
    assert read.cached_tokens == read.prompt_tokens - 1


def test_a_moved_answer_reads_what_was_given_and_gives_the_rest() -> None:
    one = host()
    one.start(start("a", answer=11, given=5), 0.0)
    (read_at, _), (ended_at, _) = run(one)
    assert read_at == pytest.approx(1.05)
    assert ended_at == pytest.approx(1.05 + 5 * 0.15)


def test_what_was_told_at_a_loss_is_what_has_flowed() -> None:
    one = host()
    one.start(start("a", answer=100), 0.0)
    one.start(start("b"), 0.0)
    one.advance(1.0)
    one.advance(1.0 + 3.5 * (STALL + 0.15) / 2)
    items = one.unsent()
    assert [(piece.id, len(piece.tokens)) for piece in items if isinstance(piece, Piece)] == [
        ("a", 2)
    ]


def test_an_answers_speed_is_that_after_its_first_token() -> None:
    one = host()
    one.start(start("a", answer=11), 0.0)
    one.start(start("b", answer=1), 0.0)
    ends = {item.id: item for _, item in run(one) if isinstance(item, Ended)}
    assert ends[RequestId("b")].rates.decode_tokens_per_second is None
    rate = ends[RequestId("a")].rates.decode_tokens_per_second
    given = 1 / (STALL + 0.15)  # a second, while the other prompt is read
    reading = 1.0 * (STALL + 0.15) / STALL
    assert rate == pytest.approx(10 / (reading + (10 - given * reading) * 0.15), rel=0.01)
