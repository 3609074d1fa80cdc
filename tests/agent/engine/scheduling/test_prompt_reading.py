"""Which prompts are read together, and how much of them. More of it is in the planner's tests."""

from arriero.agent.engine.prompt import Media
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.scheduling.prompt_reading import Prompts
from tests.agent.engine.scheduling.test_planner import begin_media
from tests.agent.engine.setting import Setting


def begun(setting: Setting) -> dict[int, Progress]:
    """All who wait begin, with nothing computed; by slot."""
    for one in list(setting.queue.waiting):
        slot = setting.queue.begin(one)
        setting.memory.enter(slot, one.history.keys, setting.memory.find(one.history.keys, 0))
    return setting.queue.active


def chosen(setting: Setting, awaited: dict[int, int] | None = None) -> Prompts:
    """Of all who wait, where nobody generates."""
    return setting.prompts.choose(begun(setting), awaited or {}, 0)


def ids(prompts: Prompts) -> list[int]:
    return [int(one.id) for one in prompts.readers]


def test_nobody_reads() -> None:
    setting = Setting()
    prompts = chosen(setting)
    assert (prompts.readers, prompts.num_wanted, setting.prompts.most(prompts)) == ((), 0, 0)
    assert not (prompts.has_media or prompts.is_whole)
    assert setting.prompts.share(prompts, 5, num_others=0) == {}


def test_prompts_of_one_adapter_are_read_together() -> None:
    setting = Setting(slots=3)
    setting.add(1, *range(9), adapter="a")
    setting.add(2, *range(20, 24))
    setting.add(3, *range(30, 36))
    prompts = chosen(setting)
    assert ids(prompts) == [2, 3], "of the shortest prompt's adapter"
    assert (prompts.num_wanted, sum(prompts.all_wanted.values())) == (10, 19)


def test_others_come_before_batch_requests() -> None:
    setting = Setting(slots=2)
    setting.add(1, 5, priority=-1)
    setting.add(2, *range(9))
    assert ids(chosen(setting)) == [2]


def test_a_chunk_ends_where_others_wait_for_it() -> None:
    setting = Setting()
    one = setting.add(1, *range(9))
    (slot,) = begun(setting)
    prompts = setting.prompts.choose(setting.queue.active, {slot: 4}, 0)
    assert prompts.wanted == {one.id: 4}


def test_tokens_and_media_are_read_apart() -> None:
    setting = Setting(slots=3, num_cells=30)
    begin_media(setting, 1, Media(b"picture", 5), (3,))
    begin_media(setting, 2, Media(b"whole", 12, is_whole=True), (3,))
    setting.add(3, 5, 6)
    prompts = chosen(setting)
    assert (ids(prompts), prompts.has_media, prompts.is_whole) == ([3], False, False)
    setting.queue.leave(setting.queue.slot_of(prompts.readers[0].id) or 0)
    prompts = chosen(setting)
    assert (ids(prompts), prompts.has_media, prompts.is_whole) == ([1], True, False)


def test_a_picture_as_a_whole_is_read_at_once_or_not_at_all() -> None:
    setting = Setting(num_cells=30)
    begin_media(setting, 1, Media(b"whole", 12, is_whole=True), (3,))
    prompts = chosen(setting)
    assert prompts.is_whole
    assert setting.prompts.most(prompts) == 12
    assert setting.prompts.share(prompts, 11, num_others=0) == {}
    assert setting.prompts.share(prompts, 12, num_others=0) == prompts.wanted


def test_there_is_room_for_others_first() -> None:
    setting = Setting(num_cells=30)
    one = setting.add(1, *range(40, 70))
    prompts = setting.prompts.choose(begun(setting), {}, 4)
    assert setting.prompts.most(prompts) == 26
    assert setting.prompts.share(prompts, 26 - 2, num_others=4 + 2) == {one.id: 24}
    assert setting.prompts.share(prompts, 0 - 2, num_others=4 + 2) == {}
