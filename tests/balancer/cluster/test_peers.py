import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from arriero.balancer.cluster import peers as module
from arriero.balancer.cluster.notifications import SUBJECTS, Changed, Subject
from arriero.balancer.cluster.peers import MOST_MODELS, Peers, added_up, waiting_in, waiting_text
from arriero.shared.inference import AgentId, RequestId
from tests.balancer.cluster.fakes import FakeLed, FakePeerStore

BEAT = 0.005


class Balancer:
    """One with peers. What it `read`, what it cannot read (`fails`), at what it raises."""

    def __init__(self, store: FakePeerStore, name: str) -> None:
        self.led = FakeLed()
        self.read: list[Subject] = []
        self.fails: set[Subject] = set()
        self.times_led: list[int | None] = []
        self.breaks: set[Subject] = set()
        subjects = [what for what in SUBJECTS if what not in ("mail", "peers")]
        reloads = {what: self.reload(what) for what in subjects}
        self.peers = Peers(
            store,
            self.led,
            reloads,
            run=f"run-{name}",
            name=name,
            version="1",
            on_lead=lambda: self.times_led.append(self.led.epochs[-1]),
            beat_interval=BEAT,
        )
        self.task = asyncio.create_task(self.peers.run())

    def reload(self, what: Subject) -> Callable[[], Awaitable[bool]]:
        async def reload() -> bool:
            self.read.append(what)
            if what in self.breaks:
                raise ValueError(f"{what} cannot be understood")
            return what not in self.fails

        return reload


Start = Callable[[str], Balancer]


@pytest.fixture
async def store() -> FakePeerStore:
    return FakePeerStore()


@pytest.fixture
async def start(store: FakePeerStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.setattr(module, "FIRST_PAUSE", BEAT)
    monkeypatch.setattr(module, "LONGEST_PAUSE", BEAT)
    balancers: list[Balancer] = []

    def another(name: str) -> Balancer:
        balancers.append(Balancer(store, name))
        return balancers[-1]

    yield another
    for each in balancers:
        each.task.cancel()
    await asyncio.gather(*(each.task for each in balancers), return_exceptions=True)


async def test_nobody_leads_before_the_store_lets_it(store: FakePeerStore, start: Start) -> None:
    store.is_away = True
    a = start("a")
    assert a.led.epochs == [None]


async def test_a_store_that_is_away_is_tried_again_after_a_pause(
    store: FakePeerStore, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: the event loop has others to serve."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 60.0)
    store.is_away = True
    a = start("a")
    for _ in range(20):
        await asyncio.sleep(0)
    assert store.num_tries == 1
    await a.peers.leave()
    assert a.task.done()


async def test_one_leads_and_the_other_takes_over_at_once(
    store: FakePeerStore, start: Start
) -> None:
    a = start("a")
    await store.until(lambda: a.led.leads)
    b = start("b")
    await store.until(lambda: "run-b" in store.beats and a.led.heard[0] == 2)
    assert not b.led.leads
    await a.peers.leave()
    assert a.led.epochs == [None, 1, None]
    await store.until(lambda: b.led.epochs == [None, 2] and b.led.heard[0] == 1)
    assert b.peers.status().epoch == 2
    assert (a.times_led, b.times_led) == ([1], [2])


async def test_who_resigns_hears_news_still(store: FakePeerStore, start: Start) -> None:
    a = start("a")
    await store.until(lambda: a.led.leads)
    a.peers.resign()
    assert not a.led.leads
    b = start("b")
    await store.until(lambda: b.led.leads and a.peers.status().is_connected)
    assert not a.led.leads
    a.read.clear()
    await store.notify(Changed("keys"))
    await store.until(lambda: "keys" in a.read)


READ = [what for what in SUBJECTS if what not in ("mail", "peers")]


async def test_leadership_ends_with_the_session_and_everything_is_read_anew(
    store: FakePeerStore, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    a = start("a")
    await store.until(lambda: a.led.leads and len(a.read) == len(READ))
    store.goes_away()
    assert a.led.epochs[-1] is None, "before anybody else can lead"
    store.is_away = False
    await store.until(lambda: a.led.epochs == [None, 1, None, 2] and len(a.read) == 2 * len(READ))
    assert a.read[len(READ) :] == READ


async def test_whatever_goes_wrong_ends_leadership_and_nothing_else(
    store: FakePeerStore, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    a = start("a")
    await store.until(lambda: a.led.leads)
    a.breaks.add("keys")
    await store.notify(Changed("keys"))
    await store.until(lambda: a.led.epochs[:4] == [None, 1, None, 2])
    assert not a.task.done()
    assert "keys cannot be understood" in caplog.text
    a.breaks.clear()
    await store.until(lambda: a.led.leads and a.peers.status().num_unread == 0)


async def test_what_could_not_be_read_is_read_again(store: FakePeerStore, start: Start) -> None:
    a = start("a")
    a.fails.add("keys")
    await store.until(lambda: a.read.count("keys") > 2)
    a.fails.clear()
    num = len(a.read)
    await store.until(lambda: a.peers.status().num_unread == 0)
    assert a.read[num:] in (["keys"], [])


async def test_news_reach_whom_they_concern(store: FakePeerStore, start: Start) -> None:
    a = start("a")
    await store.until(lambda: a.led.leads)
    b = start("b")
    assert not await a.peers.cancel(RequestId("r")), "it is alone"
    await store.until(lambda: b.peers.num_live == 2)
    await b.peers.retry(AgentId("x"))
    assert await b.peers.cancel(RequestId("r"))
    assert not await b.peers.cancel(RequestId("r" * 201))
    assert (a.led.retried, b.led.retried) == ([AgentId("x")], [])
    assert a.led.cancelled == b.led.cancelled == [RequestId("r")]


async def test_what_waits_at_others_is_told(store: FakePeerStore, start: Start) -> None:
    a = start("a")
    await store.until(lambda: a.led.leads)
    b = start("b")
    b.led.waiting = {"m": (2, 1.0)}
    await store.until(lambda: a.led.heard == (2, {"m": (2, 1.5)}))
    b.led.waiting = {}
    await store.until(lambda: a.led.heard == (2, {}))


async def test_who_is_outbid_goes_beyond(store: FakePeerStore, start: Start) -> None:
    a = start("a")
    await store.until(lambda: a.led.leads)
    a.led.outbid = 9
    await store.until(lambda: a.led.epochs == [None, 1, 10])


def test_what_is_told_is_read_again() -> None:
    assert waiting_in(waiting_text({"m": (3, 1.5)})) == {"m": (3, 1.5)}


@pytest.mark.parametrize("text", ["", "[]", "7", '{"m": 1}', '{"m": ["x", 2]}', '{"m": [1, 2, 3]}'])
def test_another_versions_words_are_left_out(text: str) -> None:
    assert waiting_in(text) == {}


def test_those_that_waited_longest_are_told() -> None:
    many = {f"m{n}": (1, float(n)) for n in range(MOST_MODELS + 1)}
    told = waiting_in(waiting_text(many))
    assert len(told) == MOST_MODELS and "m0" not in told


def test_balancers_are_added_up_and_time_goes_on() -> None:
    total = added_up([({"m": (1, 2.0), "n": (1, 0.0)}, 1.0), ({"m": (2, 4.0)}, 0.5)])
    assert total == {"m": (3, 4.5), "n": (1, 1.0)}
