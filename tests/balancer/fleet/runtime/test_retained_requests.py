"""Requests that outlive their connection: one run, any number of readers, bounds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.retained_record import RetainedKey, RetainedRecord
from arriero.balancer.fleet.runtime.retained_requests import (
    EVENT_BYTES,
    RetainedRequest,
    RetainedRequests,
)
from arriero.balancer.fleet.runtime.stream import Stream
from arriero.shared.errors import AgentLost, Conflict, Overloaded, QueueFull, RequestTooLarge
from arriero.shared.inference import (
    Event,
    Failed,
    GenerateRequest,
    LogProb,
    RequestId,
    Token,
    TokenLogProbs,
    Waiting,
)
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done
from tests.waiting import HANGS

REQUEST = GenerateRequest(prompt="x")
ALICE, BOB = Caller("alice", owner="a"), Caller("bob", owner="b")
BODY, OTHER_BODY = b"1", b"2"
LOST = Failed(AgentLost("gone"))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def retained(runtime: FakeFleetRuntime, clock: Clock) -> AsyncIterator[RetainedRequests]:
    yield (retained := RetainedRequests(runtime, max_age=10, max_retained=8, clock=clock))
    retained.check_integrity()


async def read(stream: Stream) -> list[Event]:
    async with asyncio.timeout(HANGS):
        return [event async for event in stream]


async def test_every_reader_gets_all_events_from_the_first_on(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    first = retained.open("k", BODY, REQUEST, caller=ALICE).attach()
    runtime.streams[0].say(Token("a"), Token("b"))
    second = retained.open("k", BODY, REQUEST, caller=ALICE).attach()
    runtime.streams[0].say(Token("c"), done())
    third = retained.open("k", BODY, REQUEST, caller=ALICE).attach()
    told = [Token("a"), Token("b"), Token("c"), done()]
    assert [await read(each) for each in (first, second, third)] == [told] * 3
    assert len(runtime.streams) == 1


async def test_the_class_of_its_callers_key_is_kept_with_it(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    """Whoever goes on with it later does not know the key's limits."""
    limited = replace(ALICE, limits=CallerLimits(default_priority="batch"))
    retained.open("k", BODY, REQUEST, caller=limited)
    assert (REQUEST.priority, runtime.streams[0].request.priority) == (None, -1)


@pytest.mark.parametrize(("named", "model"), [(None, "demo"), ("mine", "")])
async def test_the_name_of_the_model_is_kept_where_none_was_named(
    retained: RetainedRequests, named: str | None, model: str
) -> None:
    request = retained.open("k", BODY, replace(REQUEST, model=named), caller=ALICE)
    assert request.record.model == model


async def test_a_reader_that_goes_cancels_nothing(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    request = retained.open("k", BODY, REQUEST, caller=ALICE)
    with request.attach():
        pass
    assert not request.is_read
    runtime.streams[0].say(Token("a"), done())
    assert await read(request.attach()) == [Token("a"), done()]


async def test_that_it_waits_is_told_and_not_kept(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    request = retained.open("k", BODY, REQUEST, caller=ALICE)
    reader, waiting = request.attach(), Waiting(1, "slot", None)
    runtime.streams[0].say(waiting, done())
    assert await read(reader) == [waiting, done()]
    assert request.events == [done()]


async def test_another_body_under_the_same_key_is_a_conflict(retained: RetainedRequests) -> None:
    retained.open("k", BODY, REQUEST, caller=ALICE)
    with pytest.raises(Conflict):
        retained.open("k", OTHER_BODY, REQUEST, caller=ALICE)


async def test_a_key_is_its_callers_own(retained: RetainedRequests) -> None:
    mine = retained.open("k", BODY, REQUEST, caller=ALICE)
    others = retained.open("k", OTHER_BODY, REQUEST, caller=BOB)
    assert mine is not others
    assert retained.find_by_id(mine.id, caller=BOB) is None
    retained.forget_id(mine.id, caller=BOB)
    assert retained.find_by_id(mine.id, caller=ALICE) is mine


async def test_what_is_refused_is_not_kept(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    runtime.refusals.append(QueueFull("full"))
    with pytest.raises(QueueFull):
        retained.open("k", BODY, REQUEST, caller=ALICE)
    assert not len(retained)
    assert retained.open("k", OTHER_BODY, REQUEST, caller=ALICE)


async def test_after_an_error_the_same_key_runs_again(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    reader = retained.open("k", BODY, REQUEST, caller=ALICE).attach()
    runtime.streams[0].say(Token("a"), LOST)
    again = retained.open("k", BODY, REQUEST, caller=ALICE)
    assert await read(reader) == [Token("a"), LOST]
    assert again.events == [] and len(runtime.streams) == 2


async def test_an_error_is_kept_where_that_is_asked_for(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    request = retained.open("k", BODY, REQUEST, caller=ALICE, keeps_failure=True)
    runtime.streams[0].say(LOST)
    assert retained.find_by_id(request.id, caller=ALICE) is request
    assert request.end == LOST


async def test_what_has_ended_goes_least_recently_used_first(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    ids = []
    for name in "abcdefgh":
        ids.append(retained.open(name, BODY, REQUEST, caller=ALICE).id)
        runtime.streams[-1].say(done())
    assert retained.find_by_id(ids[0], caller=ALICE)
    retained.open("i", BODY, REQUEST, caller=ALICE)
    left = [bool(retained.find_by_id(id, caller=ALICE)) for id in ids]
    assert left == [True, False, *[True] * 6]


async def test_what_runs_is_not_cancelled_for_a_newcomer(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    """Of 8 that may be retained one caller has 4, another 2; a newcomer is not retained."""
    for name in "abcd":
        retained.open(name, BODY, REQUEST, caller=ALICE)
    bobs = [retained.open(name, BODY, REQUEST, caller=BOB, keeps_failure=True) for name in "ab"]
    reader = retained.open("e", BODY, REQUEST, caller=ALICE).attach()
    assert retained.running.counts.num_refused["share"] == 1
    with pytest.raises(Overloaded, match="responses-limit"):
        retained.open("c", BODY, REQUEST, caller=BOB, keeps_failure=True)
    await asyncio.sleep(0)
    assert not any(stream.has_ended for stream in runtime.streams)
    for stream in runtime.streams:
        stream.say(Token("x"), done())
    assert await read(reader) == [Token("x"), done()]
    assert [each.end for each in bobs] == [done(), done()]
    assert not retained.knows(ALICE, "e") and retained.knows(ALICE, "a")


async def test_one_that_is_not_retained_ends_with_its_last_reader(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    for name in "abcd":
        retained.open(name, BODY, REQUEST, caller=ALICE)
    with retained.open("e", BODY, REQUEST, caller=ALICE).attach():
        await asyncio.sleep(0)
        assert not runtime.streams[-1].has_ended
    assert runtime.streams[-1].has_ended


async def test_whoever_has_most_that_has_ended_loses_it(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    bobs = retained.open("k", BODY, REQUEST, caller=BOB)
    runtime.streams[-1].say(done())
    for number in range(20):
        retained.open(str(number), BODY, REQUEST, caller=ALICE)
        runtime.streams[-1].say(done())
    assert retained.find_by_id(bobs.id, caller=BOB) is bobs
    assert len(retained) == 8


async def test_what_was_asked_counts_until_it_has_ended(runtime: FakeFleetRuntime) -> None:
    retained = RetainedRequests(runtime, max_bytes=100_000)
    opened = [
        retained.open(name, BODY, REQUEST, caller=ALICE, keeps_failure=True, note=bytes(10_000))
        for name in "abcde"
    ]
    with pytest.raises(Overloaded):
        retained.open("f", BODY, REQUEST, caller=ALICE, keeps_failure=True, note=bytes(10_000))
    assert retained.num_bytes == 50_000
    runtime.streams[0].say(done())
    opened[0].shrink(10)
    retained.check_integrity()
    assert retained.num_bytes == 40_000 + EVENT_BYTES + 10
    assert retained.open("f", BODY, REQUEST, caller=ALICE, keeps_failure=True, note=bytes(10_000))


async def test_what_can_never_fit_is_too_large(runtime: FakeFleetRuntime) -> None:
    retained = RetainedRequests(runtime, max_bytes=100_000)
    with pytest.raises(RequestTooLarge, match="--responses-limit"):
        retained.open("a", BODY, REQUEST, caller=ALICE, keeps_failure=True, note=bytes(50_001))
    assert not runtime.streams and not len(retained)


async def test_answers_that_grow_beyond_all_bounds_end(runtime: FakeFleetRuntime) -> None:
    retained = RetainedRequests(runtime, max_bytes=10 * EVENT_BYTES)
    bobs = retained.open("k", BODY, REQUEST, caller=BOB, keeps_failure=True)
    runtime.streams[0].say(Token(""))
    alices = retained.open("k", BODY, REQUEST, caller=ALICE, keeps_failure=True)
    reader = alices.attach()
    for _ in range(12):
        if not runtime.streams[1].has_ended:
            runtime.streams[1].say(Token(""))
        retained.check_integrity()
    await asyncio.sleep(0)
    assert runtime.streams[1].has_ended and not runtime.streams[0].has_ended
    assert isinstance((await read(reader))[-1], Failed)
    assert retained.find_by_id(bobs.id, caller=BOB) is bobs


async def test_with_no_bytes_nothing_is_kept_and_a_reader_reads(runtime: FakeFleetRuntime) -> None:
    retained = RetainedRequests(runtime, max_bytes=0)
    reader = retained.open("k", BODY, REQUEST, caller=ALICE).attach()
    await asyncio.sleep(0)
    runtime.streams[0].say(Token("a"), done())
    assert await read(reader) == [Token("a"), done()]
    assert not len(retained) and not retained.keeps_any


async def test_a_request_that_ends_at_once_is_read(runtime: FakeFleetRuntime) -> None:
    runtime.script = lambda _: [LOST]
    retained = RetainedRequests(runtime)
    assert await read(retained.open("k", BODY, REQUEST, caller=ALICE).attach()) == [LOST]


async def test_bytes_are_bounded(runtime: FakeFleetRuntime) -> None:
    retained = RetainedRequests(runtime, max_bytes=3 * EVENT_BYTES)
    small = retained.open("small", BODY, REQUEST, caller=ALICE)
    retained.open("large", BODY, REQUEST, caller=ALICE)
    runtime.streams[0].say(done())
    runtime.streams[1].say(*[Token("")] * 3)
    retained.check_integrity()
    assert retained.find_by_id(small.id, caller=ALICE) is None


async def test_what_nobody_uses_goes_with_time(retained: RetainedRequests, clock: Clock) -> None:
    request = retained.open("k", BODY, REQUEST, caller=ALICE)
    clock.now = 9
    assert retained.find_by_id(request.id, caller=ALICE)
    clock.now = 18
    assert retained.find_by_id(request.id, caller=ALICE)
    clock.now = 29
    assert retained.find_by_id(request.id, caller=ALICE) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "say", "end", "lose", "attach", "forget", "wait"]),
            st.integers(0, 4),
        ),
        max_size=40,
    )
)
def test_any_order_of_events_keeps_the_bounds(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        runtime, clock = FakeFleetRuntime(), Clock()
        retained = RetainedRequests(
            runtime, max_bytes=8 * EVENT_BYTES, max_age=3, max_retained=3, clock=clock
        )
        opened = []
        for what, number in steps:
            if what == "open":
                opened.append(retained.open(str(number), BODY, REQUEST, caller=ALICE))
            elif what == "wait":
                clock.now += number
                await asyncio.sleep(0)
            elif number < len(opened):
                stream = next(s for s in runtime.streams if s.id == opened[number].id)
                if what == "forget":
                    retained.forget_id(opened[number].id, caller=ALICE)
                elif what == "attach":
                    retained.open(str(number), BODY, REQUEST, caller=ALICE).attach()
                elif not stream.has_ended:
                    event = {"say": Token("x"), "end": done(), "lose": LOST}[what]
                    stream.say(event)
            retained.check_integrity()

    asyncio.run(play())


async def test_readers_of_one_that_another_balancer_runs_are_told_at_once(
    retained: RetainedRequests, runtime: FakeFleetRuntime
) -> None:
    opened = retained.open("k", BODY, REQUEST, caller=ALICE)
    reader = opened.attach()
    retained.drop(opened.id)
    [end] = await read(reader)
    assert isinstance(end, Failed)
    assert isinstance(end.error, Overloaded)


RECORD = RetainedRecord(RetainedKey(None, "k"), RequestId("r"), b"", created_at=12.5, model="demo")


def test_its_size_is_that_of_its_events_and_its_note() -> None:
    sizes: list[int] = []
    retained = RetainedRequest(RECORD, lambda _, size: sizes.append(size), note=b"123")
    top = TokenLogProbs(LogProb(1, b"x"), (LogProb(2, b"y"),))
    for event in (Waiting(1, "slot"), Token("ab"), Token("", log_probs=(top,)), done()):
        retained.put(event)
    assert sizes == [EVENT_BYTES + 4, 3 * EVENT_BYTES, EVENT_BYTES]
    assert retained.num_bytes == 3 + sum(sizes)


def test_its_streams_say_when_it_was_asked_for_and_which_model_answers() -> None:
    stream = RetainedRequest(RECORD, lambda _, __: None).attach()
    assert (stream.created_at, stream.model) == (12.5, "demo")


def test_a_forgotten_one_keeps_no_events_until_it_has_ended() -> None:
    retained = RetainedRequest(RECORD, lambda _, __: None)
    retained.put(Token("a"))
    retained.forget()
    retained.put(Token("b"))
    assert retained.events == []
