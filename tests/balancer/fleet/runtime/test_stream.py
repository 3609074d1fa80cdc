"""A reader's end: order, merging, the end, and going before it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.caller import Account
from arriero.balancer.fleet.runtime.stream import MAX_PENDING, WAITING_LOG_PROB, Stream
from arriero.balancer.fleet.shares import Holding, Shares
from arriero.shared.errors import Cancelled, Overloaded, RequestError, RequestTooLarge
from arriero.shared.inference import (
    Event,
    Failed,
    LogProb,
    Notice,
    RequestId,
    Token,
    TokenKind,
    TokenLogProbs,
    Waiting,
)
from tests.waiting import HANGS

END = Failed(Cancelled("over"))


class Closed:
    """Remembers which streams were closed before their end."""

    def __init__(self) -> None:
        self.ids: list[RequestId] = []

    def __call__(self, id: RequestId) -> None:
        self.ids.append(id)


def stream() -> tuple[Stream, Closed]:
    closed = Closed()
    return Stream(RequestId("r"), closed), closed


async def read(stream: Stream) -> list[Event]:
    return [event async for event in stream]


async def test_a_reader_that_keeps_up_gets_every_event_as_it_comes() -> None:
    one, _ = stream()
    events: list[Event] = [Token("Once"), Token(" upon"), END]
    reader = asyncio.create_task(read(one))
    for event in events:
        await asyncio.sleep(0)
        one.put(event)
    assert await reader == events


async def test_a_slow_reader_gets_what_piled_up_as_one_kind_by_kind() -> None:
    one, _ = stream()
    for event in (
        Token("a", "reasoning", (1,)),
        Token("b", "reasoning", (2, 3)),
        Token("c", "content", (4,)),
        Notice("n", "m"),
        Token("d", "content", ()),
        END,
    ):
        one.put(event)
    assert await read(one) == [
        Token("ab", "reasoning", (1, 2, 3)),
        Token("c", "content", (4,)),
        Notice("n", "m"),
        Token("d", "content", ()),
        END,
    ]


KINDS = st.sampled_from(["content", "reasoning", "tool_call"])
TOKENS = st.builds(Token, st.text(max_size=3), KINDS, st.tuples(st.integers()), st.just(()))
EVENTS = st.lists(TOKENS | st.builds(Notice, st.text(max_size=3), st.just("m")), max_size=200)


def pieces(events: list[Event]) -> list[tuple[TokenKind, str] | Event]:
    """What a reader can tell: characters with their kind, and the events between them."""
    found: list[tuple[TokenKind, str] | Event] = []
    for event in events:
        found += (
            [(event.kind, char) for char in event.text] if isinstance(event, Token) else [event]
        )
    return found


@given(EVENTS)
def test_nothing_is_lost_or_moved_by_merging(events: list[Event]) -> None:
    async def scenario() -> list[Event]:
        one, _ = stream()
        for event in [*events, END]:
            one.put(event)
        return await read(one)

    got = asyncio.run(scenario())
    assert pieces(got) == pieces([*events, END])
    tokens = [id for event in events if isinstance(event, Token) for id in event.tokens]
    assert [id for event in got if isinstance(event, Token) for id in event.tokens] == tokens


async def test_what_waits_for_a_slow_reader_is_a_few_events() -> None:
    one, _ = stream()
    for _ in range(100_000):
        one.put(Token("x"))
        assert one.num_pending <= MAX_PENDING
    one.put(END)
    assert await read(one) == [Token("x" * 100_000), END]


async def test_leaving_before_the_end_is_told_once() -> None:
    one, closed = stream()
    with one:
        one.put(Token("a"))
    one.close()
    assert closed.ids == ["r"]
    assert await read(one) == []


async def test_leaving_after_the_end_came_is_not_told() -> None:
    one, closed = stream()
    with one:
        one.put(END)
    assert closed.ids == []


async def test_an_end_for_one_that_left_is_dropped() -> None:
    one, _ = stream()
    one.close()
    one.put(END)
    assert await read(one) == []


async def test_nothing_comes_after_the_end() -> None:
    one, _ = stream()
    one.put(END)
    with pytest.raises(RuntimeError, match="after the end"):
        one.put(Token("late"))


async def test_a_cancelled_reader_closes_its_stream() -> None:
    one, closed = stream()

    async def handler() -> None:
        with one:
            await read(one)

    task = asyncio.create_task(handler())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.ids == ["r"]


async def test_closing_wakes_the_reader() -> None:
    one, _ = stream()
    reader = asyncio.create_task(read(one))
    await asyncio.sleep(0)
    one.close()
    assert await reader == []


async def test_two_readers_are_a_mistake() -> None:
    one, _ = stream()
    first = asyncio.create_task(read(one))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="two tasks"):
        await read(one)
    one.put(END)
    assert await first == [END]


@pytest.mark.parametrize("num_tokens", [3, 5 * MAX_PENDING])
async def test_log_probabilities_of_what_piled_up_are_all_kept(num_tokens: int) -> None:
    one, _ = stream()
    told = [TokenLogProbs(LogProb(number, b"x", -1.0)) for number in range(num_tokens)]
    for each in told:
        one.put(Token("x", log_probs=(each,)))
    one.put(END)
    *tokens, _ = await read(one)
    assert [each for token in tokens for each in getattr(token, "log_probs", ())] == told


# ---- pushed


class Taker:
    """Takes events until it is `full`; `drain` makes room again."""

    def __init__(self, error: Exception | None = None) -> None:
        self.taken: list[Event] = []
        self.is_full = False
        self.num_waits = 0
        self._error = error
        self._room = asyncio.Event()

    def take(self, event: Event) -> bool:
        if self._error is not None:
            raise self._error
        self.taken.append(event)
        return not self.is_full

    async def drained(self) -> None:
        if self.is_full:
            self.num_waits += 1
            self._room.clear()
            await self._room.wait()

    def drain(self) -> None:
        self.is_full = False
        self._room.set()


async def pushed(one: Stream, taker: Taker) -> asyncio.Task[None]:
    """The task that has `one` pushed, once it waits."""
    task = asyncio.create_task(one.push(taker.take, taker.drained))
    await asyncio.sleep(0)
    return task


async def test_a_token_is_taken_where_it_is_put() -> None:
    one, _ = stream()
    taker = Taker()
    task = await pushed(one, taker)
    for word in ("Once", " upon"):
        one.put(Token(word))
        assert taker.taken[-1] == Token(word)
    one.put(END)
    async with asyncio.timeout(HANGS):
        await task
    assert taker.taken == [Token("Once"), Token(" upon"), END]


async def test_what_waited_before_is_pushed_first() -> None:
    one, _ = stream()
    one.put(Token("a", "reasoning"))
    one.put(Token("b"))
    taker = Taker()
    task = await pushed(one, taker)
    one.put(Token("c"))
    one.put(END)
    async with asyncio.timeout(HANGS):
        await task
    assert taker.taken == [Token("a", "reasoning"), Token("b"), Token("c"), END]


async def test_other_events_keep_their_place_between_pushed_tokens() -> None:
    one, _ = stream()
    taker = Taker()
    task = await pushed(one, taker)
    events: list[Event] = [Token("a"), Notice("n", "m"), Token("b"), Token("c", "reasoning"), END]
    for event in events:
        one.put(event)
    async with asyncio.timeout(HANGS):
        await task
    assert taker.taken == events


async def test_without_room_tokens_wait_and_merge() -> None:
    one, _ = stream()
    taker = Taker()
    task = await pushed(one, taker)
    taker.is_full = True
    for _ in range(1000):
        one.put(Token("x"))
        assert one.num_pending <= MAX_PENDING
    await asyncio.sleep(0)
    assert taker.taken == [Token("x")]
    assert taker.num_waits == 1
    taker.drain()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    one.put(Token("y"))
    assert taker.taken == [Token("x"), Token("x" * 999), Token("y")]
    one.put(END)
    async with asyncio.timeout(HANGS):
        await task


async def test_an_error_of_the_taker_is_the_tasks_and_not_the_putters() -> None:
    one, closed = stream()
    taker = Taker(ValueError("cannot be rendered"))
    task = await pushed(one, taker)
    with one:
        one.put(Token("a"))
        one.put(Token("b"))
        async with asyncio.timeout(HANGS):
            with pytest.raises(ValueError, match="cannot be rendered"):
                await task
    assert closed.ids == ["r"]


async def test_a_cancelled_task_has_nothing_pushed_any_more() -> None:
    one, closed = stream()
    taker = Taker()

    async def handler() -> None:
        with one:
            await one.push(taker.take, taker.drained)

    task = asyncio.create_task(handler())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    one.put(Token("late"))
    assert (closed.ids, taker.taken) == (["r"], [])


async def test_closing_ends_the_pushing() -> None:
    one, _ = stream()
    taker = Taker()
    task = await pushed(one, taker)
    one.close()
    one.put(Token("late"))
    async with asyncio.timeout(HANGS):
        await task
    assert taker.taken == []


STEPS = st.lists(
    TOKENS
    | st.builds(Notice, st.text(max_size=3), st.just("m"))
    | st.sampled_from(["yield", "full", "drain"]),
    max_size=60,
)


@given(STEPS)
def test_nothing_is_lost_or_moved_by_pushing(steps: list[Event | str]) -> None:
    events = [step for step in steps if not isinstance(step, str)]

    async def scenario() -> list[Event]:
        one, _ = stream()
        taker = Taker()
        task = asyncio.create_task(one.push(taker.take, taker.drained))
        for step in steps:
            if step == "yield":
                await asyncio.sleep(0)
            elif step == "full":
                taker.is_full = True
            elif step == "drain":
                taker.drain()
            elif not isinstance(step, str):
                one.put(step)
        one.put(END)
        taker.drain()
        async with asyncio.timeout(HANGS):
            await task
        return taker.taken

    assert pieces(asyncio.run(scenario())) == pieces([*events, END])


async def test_a_slow_reader_hears_the_latest_of_its_wait() -> None:
    waits, _ = stream()
    for position in range(3 * MAX_PENDING, 0, -1):
        waits.put(Waiting(position, "slot"))
    assert waits.num_pending == 1
    waits.put(Token("a"))
    waits.put(Waiting(9, "slot"))
    waits.put(END)
    assert await read(waits) == [Waiting(1, "slot"), Token("a"), Waiting(9, "slot"), END]


async def test_without_merging_every_event_is_read_as_it_was_put() -> None:
    stream = Stream(RequestId("r"), lambda _: None, merges=False)
    told = [Token(str(number)) for number in range(3 * MAX_PENDING)]
    for event in (*told, END):
        stream.put(event)
    assert [event async for event in stream] == [*told, END]


class TestMemory:
    """What waits, and what the reader keeps, counts in the caller's share."""

    LIKELY = (TokenLogProbs(LogProb(1, b"x", -1.0), (LogProb(1, b"x", -1.0),) * 20),)
    SIZE = 21 * WAITING_LOG_PROB

    def counted(self, bound: int, *, kept: int = 0) -> tuple[Stream, Closed, Shares[Account]]:
        closed, shares = Closed(), Shares[Account](bound)
        held = Holding(shares, Account("alice", None))
        one = Stream(RequestId("r"), closed, held=held, kept_log_prob=kept)
        return one, closed, shares

    async def test_what_waits_counts_until_it_is_read(self) -> None:
        one, _, shares = self.counted(100 * self.SIZE)
        for _ in range(5):
            one.put(Token("x", tokens=(1,), log_probs=self.LIKELY))
        assert 5 * self.SIZE < shares.total < 6 * self.SIZE
        await anext(one)
        assert shares.total == 0
        one.put(Token("x"))
        one.close()
        assert shares.total == 0

    async def test_what_is_taken_at_once_takes_nothing(self) -> None:
        one, _, shares = self.counted(self.SIZE)
        reader = asyncio.create_task(one.push(lambda _event: True, lambda: asyncio.sleep(0)))
        await asyncio.sleep(0)
        for _ in range(100):
            one.put(Token("x", log_probs=self.LIKELY))
            assert shares.total == 0
        one.put(END)
        await reader

    async def test_what_is_kept_counts_until_the_stream_is_closed(self) -> None:
        one, _, shares = self.counted(100 * self.SIZE, kept=WAITING_LOG_PROB)
        with one:
            reader = asyncio.create_task(read(one))
            for _ in range(5):
                one.put(Token("x", log_probs=self.LIKELY))
                await asyncio.sleep(0)
            one.put(END)
            await reader
            assert 5 * self.SIZE < shares.total < 6 * self.SIZE
        assert shares.total == 0

    @pytest.mark.parametrize("kept", [0, WAITING_LOG_PROB])
    @pytest.mark.parametrize(("others", "kind"), [(1, Overloaded), (0, RequestTooLarge)])
    async def test_an_answer_that_takes_too_much_ends_and_its_request_too(
        self, kept: int, others: int, kind: type[RequestError]
    ) -> None:
        one, closed, shares = self.counted(8 * self.SIZE, kept=kept)
        shares.take(Account("alice", None), others * 3 * self.SIZE)
        with one:
            for _ in range(9):
                one.put(Token("x", log_probs=self.LIKELY))
            one.put(END)
            [*_, end] = await read(one)
            assert isinstance(end, Failed)
            assert isinstance(end.error, kind)
        await asyncio.sleep(0)
        assert closed.ids == ["r"]
        assert shares.total == others * 3 * self.SIZE
        assert shares.num_refused["share"] == 1
