"""Who may begin, who waits for what."""

from typing import Any

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.admission import HEADROOM, WORTH_WAITING, Admission
from arriero.agent.engine.scheduling.context_shift import Window
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.engine.fake_engine import stored_prompt
from tests.agent.engine.setting import Setting
from tests.agent.stored import whole


def make(
    number: int,
    *prompt: int,
    max_tokens: int | None = None,
    stored: StoredPrompt | None = None,
) -> Progress:
    sequence = NewSequence(
        id=SequenceId(number),
        prompt=Prompt(prompt),
        max_tokens=max_tokens,
        sampling=Sampling(seed=0),
        stored=stored,
    )
    return Progress(sequence, arrival=number, ceiling=200)


class Host(Setting):
    """Sequences run and wait here; `admit` says who began, and with how many computed tokens."""

    def __init__(self, num_cells: int = 500, **more: Any) -> None:
        super().__init__(slots=4, num_cells=num_cells, **more)
        self.queue, self.memory = self.state.queue, self.state.memory

    def run(self, one: Progress, num_computed: int = 0) -> int:
        """The slot that `one` runs in, whoever waits; so many of its tokens are computed."""
        waiting, self.queue.waiting = self.queue.waiting, []
        found = self.memory.find((), 0)
        self.queue.wait(one)
        slot = self.queue.begin(one)
        self.memory.enter(slot, one.history.keys, found)
        self.memory.grow(slot, num_computed)
        one.start(num_computed)
        self.queue.waiting = waiting
        return slot

    def admit(self, *waiting: Progress) -> list[tuple[int, int]]:
        for one in waiting:
            self.queue.wait(one)
        before = set(self.queue.running)
        Admission(self.state).admit()
        running = self.queue.running.items()
        return [(one.id, one.num_computed) for slot, one in running if slot not in before]


def test_alone_everybody_begins() -> None:
    assert Host(91).admit(make(1, *range(90))) == [(1, 0)]


def test_beside_others_there_has_to_be_headroom() -> None:
    needed = 10 + 20 + 2 * HEADROOM
    for num_cells, begun in ((needed, [(2, 0)]), (needed - 1, [])):
        host = Host(num_cells)
        host.run(make(1, *[5] * 10))
        assert host.admit(make(2, *[6] * 20)) == begun


def test_no_more_headroom_than_somebody_can_use() -> None:
    host = Host(10 + 20 + 2 + 3)
    host.run(make(1, *[5] * 10, max_tokens=2))
    assert host.admit(make(2, *[6] * 20, max_tokens=3)) == [(2, 0)]


def test_who_has_no_room_keeps_those_behind_waiting() -> None:
    host = Host(80)
    host.run(make(1, 5))
    assert host.admit(make(2, *[6] * 90), make(3, 7)) == []


def test_a_prefix_that_is_being_computed_is_waited_for_and_holds_up_nobody() -> None:
    host = Host()
    common = range(1, WORTH_WAITING + 1)
    slot = host.run(make(1, *common, 99))
    assert host.admit(make(2, *common, 98), make(3, 7)) == [(3, 0)]
    assert host.memory.next_border(slot) == WORTH_WAITING
    host.memory.grow(slot, WORTH_WAITING)
    assert host.admit() == [(2, WORTH_WAITING)]


def test_shared_cells_need_no_room() -> None:
    host = Host(60)
    host.run(make(1, *range(1, 31)), 29)
    assert host.admit(make(2, *range(1, 25), max_tokens=1)) == [(2, 23)]


def test_what_is_stored_is_loaded_where_it_is_more_than_what_is_held() -> None:
    host = Host()
    host.run(make(1, *range(1, 11)), 9)
    stored = whole(tuple(range(1, 21)), b"state")
    more = make(2, *range(1, 15), stored=stored)
    assert host.admit(more, make(3, *range(1, 9), stored=stored)) == [(2, 13), (3, 7)]
    assert more.adopted_as is not None, "the others have what comes after as a cached prefix"


def test_what_is_stored_has_to_fit_whole() -> None:
    stored = whole(tuple(range(1, 100)), b"state")
    for num_cells, num_shared in ((98, 0), (99, 13)):
        assert Host(num_cells).admit(make(1, *range(1, 15), stored=stored)) == [(1, num_shared)]


def test_what_takes_several_steps_to_come_back_is_waited_for_and_holds_up_nobody() -> None:
    host = Host()
    host.memory.adopt(stored_prompt(*range(1, 41), piece=10))
    host.memory.allowance.renew(20)
    assert host.admit(make(1, *range(1, 41)), make(2, 99)) == [(2, 0)]
    host.memory.allowance.renew(20)
    assert host.admit() == [(1, 39)]


def test_a_model_that_shares_nothing_computes_what_is_stored() -> None:
    host = Host(100, can_share=False, holders=4)
    stored = whole(tuple(range(1, 10)), b"state")
    assert host.admit(make(1, *range(1, 12), stored=stored)) == [(1, 0)]


def test_cells_that_may_move_are_not_shared() -> None:
    host = Host()
    held = make(1, *range(1, 41))
    host.run(held, 39)
    sequence = NewSequence(
        id=SequenceId(2),
        prompt=held.history.part(0, len(held.history)),
        max_tokens=None,
        sampling=Sampling(seed=0),
    )
    moving = Progress(sequence, arrival=2, ceiling=200, window=Window(200, 4, 50))
    assert host.admit(moving) == [(2, 4)]
