"""Who may begin, who waits for what."""

from dataclasses import replace

from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.admission import (
    HEADROOM,
    WORTH_WAITING,
    Await,
    Begin,
    Fetch,
    Keep,
    admit,
)
from arriero.agent.engine.scheduling.context_shift import Window
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.engine.fake_engine import stored_prompt
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


def memory(num_cells: int) -> UnifiedMemory:
    return UnifiedMemory(slots=4, holders=8, num_cells=num_cells, can_share=True, most_parked=1000)


def test_alone_everybody_begins() -> None:
    one = make(1, *range(90))
    assert list(admit([one], [], memory(91))) == [Begin(one, Found())]


def test_beside_others_there_has_to_be_headroom() -> None:
    running, one = make(1, *[5] * 10), make(2, *[6] * 20)
    needed = 10 + 20 + 2 * HEADROOM
    assert list(admit([one], [running], memory(needed))) == [Begin(one, Found())]
    assert list(admit([one], [running], memory(needed - 1))) == []


def test_no_more_headroom_than_somebody_can_use() -> None:
    running, one = make(1, *[5] * 10, max_tokens=2), make(2, *[6] * 20, max_tokens=3)
    assert list(admit([one], [running], memory(10 + 20 + 2 + 3))) == [Begin(one, Found())]


def test_who_has_no_room_keeps_those_behind_waiting() -> None:
    running, large, small = make(1, 5), make(2, *[6] * 90), make(3, 7)
    assert list(admit([large, small], [running], memory(80))) == []


def test_a_prefix_that_is_being_computed_is_waited_for_and_holds_up_nobody() -> None:
    cells = memory(500)
    common = range(1, WORTH_WAITING + 1)
    running = make(1, *common, 99)
    cells.enter(0, running.history.keys, Found())
    same, other = make(2, *common, 98), make(3, 7)
    assert list(admit([same, other], [running], cells)) == [
        Await(0, WORTH_WAITING),
        Begin(other, Found()),
    ]
    cells.grow(0, WORTH_WAITING)
    assert list(admit([same], [running], cells)) == [Begin(same, Found(WORTH_WAITING, 0))]


def test_shared_cells_need_no_room() -> None:
    cells = memory(60)
    running = make(1, *range(1, 31))
    cells.enter(0, running.history.keys, Found())
    cells.grow(0, 29)
    same = make(2, *range(1, 25), max_tokens=1)
    running.start(29)
    assert list(admit([same], [running], cells)) == [Begin(same, Found(23, 0))]


def test_what_is_stored_is_loaded_where_it_is_more_than_what_is_held() -> None:
    cells = memory(500)
    held = make(1, *range(1, 11))
    cells.enter(0, held.history.keys, Found())
    cells.grow(0, 9)
    held.start(9)
    stored = whole(tuple(range(1, 21)), b"state")
    more = make(2, *range(1, 15), stored=stored)
    less = make(3, *range(1, 9), stored=stored)
    found = Found(9, 0)
    decisions = admit([more], [held], cells)
    assert next(decisions) == Keep(more, 13)
    kept = cells.adopt(stored)
    found = replace(found, length=13, source=kept)
    assert next(decisions) == Fetch(found)
    assert cells.fetch(found)
    assert list(decisions) == [Begin(more, found)]
    assert list(admit([less], [held], cells)) == [Begin(less, Found(7, kept))]


def test_what_is_stored_has_to_fit_whole() -> None:
    stored = whole(tuple(range(1, 100)), b"state")
    one = make(1, *range(1, 15), stored=stored)
    assert list(admit([one], [], memory(98))) == [Begin(one, Found())]
    assert next(admit([one], [], memory(99))) == Keep(one, 13)


def test_what_takes_several_steps_to_come_back_is_waited_for_and_holds_up_nobody() -> None:
    cells = memory(500)
    one, other = make(1, *range(1, 41)), make(2, 99)
    cells.adopt(stored_prompt(*range(1, 41), piece=10))
    cells.allowance.renew(20)
    held_up = []
    for decision in admit([one, other], [], cells):
        held_up.append(decision)
        if isinstance(decision, Fetch):
            assert not cells.fetch(decision.found)
    assert held_up == [Fetch(Found(39, 7)), Begin(other, Found())]
    cells.allowance.renew(20)
    assert cells.fetch(Found(39, 7))
    assert list(admit([one], [], cells)) == [Begin(one, Found(39, 7))]


def test_a_model_that_cannot_give_up_a_suffix_loads_all_or_nothing() -> None:
    cells = UnifiedMemory(slots=4, holders=4, num_cells=100, can_share=False, most_parked=1000)
    stored = whole(tuple(range(1, 10)), b"state")
    longer, part = make(1, *range(1, 12), stored=stored), make(2, *range(1, 8), stored=stored)
    assert list(admit([longer], [], cells)) == [Begin(longer, Found(), 9)]
    assert list(admit([part], [], cells)) == [Begin(part, Found())]


def test_cells_that_may_move_are_not_shared() -> None:
    cells = memory(500)
    held = make(1, *range(1, 41))
    cells.enter(0, held.history.keys, Found())
    cells.grow(0, 39)
    held.start(39)
    sequence = NewSequence(
        id=SequenceId(2),
        prompt=held.history.part(0, len(held.history)),
        max_tokens=None,
        sampling=Sampling(seed=0),
    )
    moving = Progress(sequence, arrival=2, ceiling=200, window=Window(200, 4, 50))
    assert list(admit([moving], [held], cells)) == [Begin(moving, Found(4, 0))]


def test_a_whole_state_that_would_take_too_long_is_computed() -> None:
    cells = UnifiedMemory(slots=4, holders=4, num_cells=100, can_share=False, most_parked=1000)
    one = make(1, *range(1, 12), stored=whole(tuple(range(1, 10)), b"state"))
    assert list(admit([one], [], cells, lambda count: count < 9)) == [Begin(one, Found())]
    assert list(admit([one], [], cells, lambda count: count == 9)) == [Begin(one, Found(), 9)]


def test_one_whole_state_is_loaded_before_a_step_and_others_need_not_wait() -> None:
    cells = UnifiedMemory(slots=4, holders=4, num_cells=100, can_share=False, most_parked=1000)
    stored = whole(tuple(range(1, 10)), b"state")
    first, second = (make(number, *range(1, 12), stored=stored) for number in (1, 2))
    other = make(3, 99)
    decisions = admit([first, second, other], [], cells)
    assert next(decisions) == Begin(first, Found(), 9)
    cells.load(0, first.history.keys, stored, 9)
    assert list(decisions) == [Begin(other, Found())]
    cells.allowance.renew(0)
    assert list(admit([second], [first], cells)) == [Begin(second, Found(), 9)]
