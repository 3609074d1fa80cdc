"""What the next step computes. More of it is in the scheduler's tests."""

import sys
from collections import Counter

from arriero.agent.engine.prompt import Media, MediaPart, Prompt, Span
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.planner import chunk_run, next_run
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.drafter import Proposal
from arriero.agent.engine.step import Clear, Decoded, Run, Step
from tests.agent.engine.setting import Setting


def step_of(setting: Setting, seconds: float = 0.1) -> Step:
    """The next step, which works; everybody's next token is 7, and whoever drafts knows it."""
    step = setting.plan_with(7, 7, 7)
    tokens = tuple(7 for run in step.runs if run.samples for _ in (0, *run.draft))
    setting.accounting.account(step, Decoded(tokens), seconds, 0.0)
    return step


def test_generating_sequences_come_first() -> None:
    setting = Setting()
    setting.add(1, 5)
    step_of(setting)
    setting.add(2, 6, 6)
    step = step_of(setting)
    assert step.runs == (
        Run(SequenceId(1), 1, 1, (7,), True),
        Run(SequenceId(2), 0, 0, (6, 6), True),
    )
    assert (step.num_generating, step.num_prompt_tokens) == (1, 2)


def test_who_is_last_by_rank_makes_room() -> None:
    setting = Setting(num_cells=30)
    first, second = setting.add(1, *[5] * 10, priority=1), setting.add(2, *[6] * 4)
    first_slot = 1
    for one in (first, second):  # as if there had been room for both
        slot = setting.queue.begin(one)
        setting.memory.enter(slot, one.history.keys, setting.memory.find(one.history.keys, 1))
    step_of(setting)
    setting.memory.room.limit(0)
    step = step_of(setting)
    assert [run.slot for run in step.runs] == [first_slot]
    assert Clear(0) in step.edits
    assert setting.queue.waiting == [second]
    assert second.num_computed == 0


def repeating(setting: Setting) -> Step:
    """The step after enough of them for it to be known what drafts cost."""
    for _ in range(6):
        step = step_of(setting)
    return step


def test_drafts_follow_the_last_token() -> None:
    setting = Setting(max_draft=3)
    setting.add(1, 5)
    step = repeating(setting)
    (run,) = step.runs
    assert run.tokens == (7, 7, 7, 7)[: 1 + run.num_drafted]
    assert run.num_drafted == step.num_drafted > 0
    assert step.size == 1 + step.num_drafted


def test_drafts_take_only_cells_that_are_free() -> None:
    setting = Setting(max_draft=3, num_cells=40)
    setting.add(1, *[5] * 20, max_tokens=1)
    step_of(setting)
    assert setting.memory.room.num_kept == 20
    setting.add(2, 6)
    num_drafted = 0
    while (num_free := setting.memory.room.num_free) > 0:
        step = step_of(setting)
        assert step.num_drafted <= max(0, num_free - 1)
        assert setting.memory.room.num_kept == 20
        num_drafted += step.num_drafted
    assert num_drafted > 0


def test_prompts_keep_what_they_need_of_the_cells() -> None:
    setting = Setting(max_draft=3, num_cells=150)
    setting.add(1, 5)
    assert repeating(setting).num_drafted
    setting.add(2, *[6] * 60)
    step_of(setting)
    setting.memory.room.limit(10)
    step = setting.plan_with(7, 7, 7)
    assert (step.num_generating, step.num_prompt_tokens, step.num_drafted) == (1, 9, 0)


def test_nobody_is_asked_for_without_speculation_or_before_it_can_pay() -> None:
    setting, drafting = Setting(), Setting(max_draft=3)
    for each in (setting, drafting):
        each.add(1, 5)
        step_of(each)
        assert each.planner.draft_requests() == ()
        repeating(each)
    assert setting.planner.draft_requests() == ()
    assert [one.id for one in drafting.planner.draft_requests()] == [1]


def test_who_generates_is_asked_for_with_its_history_and_how_far_it_may_go() -> None:
    setting = Setting(max_draft=3)
    one = setting.add(1, 5, max_tokens=40)
    repeating(setting)
    setting.add(2, 6, 6, 6)
    (request,) = setting.planner.draft_requests()
    assert (request.id, request.most) == (1, 3)
    assert request.history is one.history
    one.num_generated = 38
    assert [each.most for each in setting.planner.draft_requests()] == [1]


def test_of_a_proposal_no_more_is_taken_than_its_sequence_may_gain() -> None:
    setting = Setting(max_draft=3)
    one = setting.add(1, 5, max_tokens=40)
    repeating(setting)
    one.num_generated = 38
    step = setting.planner.plan({one.id: Proposal((7, 7, 7), (1.0, 1.0, 1.0))})
    assert step.num_drafted == 1, "and one more is gained"


def test_proposals_for_others_than_who_generates_are_ignored() -> None:
    setting = Setting(max_draft=3)
    setting.add(1, 5, max_tokens=40)
    repeating(setting)
    setting.add(2, 6, 6)
    proposal = Proposal((7, 7, 7), (1.0, 1.0, 1.0))
    step = setting.planner.plan({SequenceId(2): proposal, SequenceId(99): proposal})
    assert step.num_drafted == 0


def test_prices_are_known_after_some_steps_and_proposing_gets_no_time_while_prompts_are_read() -> (
    None
):
    setting = Setting(max_draft=3)
    setting.add(1, 5, max_tokens=40)
    assert setting.planner.draft_prices().most == 0
    repeating(setting)
    prices = setting.planner.draft_prices()
    assert prices.num_generating == 1
    assert 0 < prices.token < prices.step
    assert 0 < prices.most < 0.5
    setting.add(2, 6, 6, 6)
    assert setting.planner.draft_prices().most == 0


def test_of_several_adapters_those_are_asked_for_whose_turn_it_is() -> None:
    setting = Setting(slots=3, num_cells=1000, max_draft=3)
    for number, adapter in enumerate([None, "A", None], 1):
        setting.add(number, 5, adapter=adapter)
    for _ in range(8):
        step_of(setting)
    for _ in range(4):
        asked = {one.id for one in setting.planner.draft_requests()}
        assert setting.planner.draft_prices().most > 0
        step = step_of(setting)
        assert asked == {run.id for run in step.runs}
        assert step.num_drafted


def test_prompts_that_are_explained_share_the_rows_of_logits() -> None:
    setting = Setting()
    setting.add(1, *range(10, 22), scores_prompt=True)
    assert step_of(setting).runs == (
        Run(SequenceId(1), 1, 0, tuple(range(10, 18)), False, scored=tuple(range(11, 19))),
    )
    setting.add(2, *range(30, 42), scores_prompt=True)
    assert step_of(setting).runs == (
        Run(SequenceId(1), 1, 8, tuple(range(18, 22)), True, scored=(19, 20, 21)),
        Run(SequenceId(2), 0, 0, (30, 31, 32, 33), False, scored=(31, 32, 33, 34)),
    )


def test_what_is_computed_again_is_not_explained_again() -> None:
    setting = Setting()
    one = setting.add(1, *range(10, 22), scores_prompt=True)
    step_of(setting)
    setting.state.requeue(1)
    assert step_of(setting).runs == (
        Run(
            SequenceId(1),
            1,
            0,
            one.history.token_ids(0, 12),
            True,
            scored=(19, 20, 21),
            first_scored=8,
        ),
    )


def begin_media(setting: Setting, id: int, *spans: Span) -> None:
    """A sequence with media begins, beside who runs."""
    one = Progress(
        NewSequence(
            id=SequenceId(id), prompt=Prompt(*spans), max_tokens=5, sampling=Sampling(seed=0)
        ),
        arrival=id,
        ceiling=64,
    )
    setting.queue.wait(one)


def test_tokens_and_media_are_read_in_steps_of_their_own() -> None:
    setting = Setting()
    picture = Media(b"picture", 5)
    begin_media(setting, 1, (1, 2), picture, (3,))
    steps = [step_of(setting) for _ in range(3)]
    runs = [run for step in steps for run in step.runs]
    assert [(run.start, run.tokens, run.media, run.samples) for run in runs] == [
        (0, (1, 2), None, False),
        (2, (), MediaPart(picture, 0, 5), False),
        (7, (3,), None, True),
    ]
    assert [step.num_prompt_tokens for step in steps] == [2, 5, 1]


def test_who_generates_takes_turns_with_media() -> None:
    setting = Setting()
    setting.add(1, 5)
    step_of(setting)
    begin_media(setting, 2, (1,), Media(b"picture", 5), (3,))
    kinds = [[run.media is not None for run in step_of(setting).runs] for _ in range(4)]
    assert kinds == [[False, False], [True], [False], [False, False]]


def test_a_picture_that_is_looked_at_as_a_whole_is_read_in_one_step_alone() -> None:
    setting = Setting(slots=3)
    whole, other = Media(b"whole", 12, is_whole=True), Media(b"other", 5)
    setting.add(1, *range(20))
    step_of(setting, seconds=20.0)  # so there is time for a few tokens beside it
    begin_media(setting, 2, tuple(range(10)), whole, (3,))
    begin_media(setting, 3, (1, 2, 3), other, (3,))
    steps = [step_of(setting) for _ in range(14)]
    assert max(len(run.tokens) for step in steps for run in step.runs) < 10
    parts = [[run.media for run in step.runs] for step in steps]
    assert [some for some in parts if any(part and part.media == whole for part in some)] == [
        [MediaPart(whole, 0, 12)]
    ]
    assert sum(part.count for some in parts for part in some if part) == 12 + 5


def test_a_picture_waits_for_room_for_all_of_it_while_others_go_on() -> None:
    setting = Setting(slots=2, num_cells=24)
    whole = Media(b"whole", 12, is_whole=True)
    setting.add(1, 6, max_tokens=20)
    begin_media(setting, 2, (1,), whole, (3,))
    steps = [step_of(setting) for _ in range(30)]
    assert any(run.media for step in steps for run in step.runs), "once the other has ended"
    assert all(run.media is None or run.media.count == 12 for step in steps for run in step.runs)


def test_where_no_picture_has_room_the_last_sequence_gives_way() -> None:
    setting = Setting(slots=2, num_cells=24)
    whole = Media(b"whole", 12, is_whole=True)
    for number in (1, 2):
        begin_media(setting, number, tuple(range(7)), whole, (3,))
    read: dict[int, int] = {}
    for _ in range(40):
        step = step_of(setting)
        for run in step.runs:
            read[run.id] = max(read.get(run.id, 0), run.start + run.num_positions)
    assert read[1] > 19, "the first reads its picture"


def test_a_step_is_of_one_adapter_and_they_take_turns() -> None:
    setting = Setting(slots=4)
    for number, adapter in enumerate([None, "A", None, "B"], 1):
        setting.add(number, 5, 5, adapter=adapter)
    steps = [step_of(setting) for _ in range(15)]
    adapters_of = {1: None, 2: "A", 3: None, 4: "B"}
    for step in steps:
        assert {adapters_of[run.id] for run in step.runs} == {step.adapter}
    decoding = steps[-6:]
    assert [step.adapter for step in decoding[:3]] == [step.adapter for step in decoding[3:]]
    assert sorted(str(step.adapter) for step in decoding[:3]) == ["A", "B", "None"]
    assert {step.adapter: step.num_generating for step in decoding} == {None: 2, "A": 1, "B": 1}


def test_many_streams_of_one_adapter_take_no_turns_from_one_of_another() -> None:
    setting = Setting(slots=6, num_cells=1000)
    adapters_of = dict.fromkeys(range(1, 6), "A") | {6: "B"}
    for number, adapter in adapters_of.items():
        setting.add(number, 5, adapter=adapter)
    for _ in range(4):
        step_of(setting)
    steps = [step_of(setting) for _ in range(20)]
    assert [step.adapter for step in steps[:2]] * 10 == [step.adapter for step in steps]
    assert {step.adapter: step.num_generating for step in steps} == {"A": 5, "B": 1}
    gained = Counter(run.id for step in steps for run in step.runs)
    assert set(gained.values()) == {10}, "all streams go at one pace"


def test_a_prompt_of_one_adapter_stalls_streams_of_others_by_one_step_at_a_time() -> None:
    setting = Setting(slots=3, num_cells=1000, most_mixed=4)
    for number, adapter in enumerate([None, "A"], 1):
        setting.add(number, 5, adapter=adapter)
    for _ in range(4):
        step_of(setting)
    setting.budget.cost.observe(
        num_generating=0, num_prompt_tokens=50, depth=0, num_drafted=0, seconds=5.0
    )
    setting.add(3, *[6] * 40, adapter="B")
    adapters = [step_of(setting).adapter for _ in range(10)]
    reads = [index for index, adapter in enumerate(adapters) if adapter == "B"]
    assert len(reads) > 2
    for start in reads[:-1]:
        assert set(adapters[start + 1 : start + 3]) == {None, "A"}


def test_a_prefix_is_shared_under_the_same_adapter_only() -> None:
    setting = Setting(slots=3, num_cells=1000)
    setting.add(1, *[5] * 20, max_tokens=1, adapter="A")
    step_of(setting)
    others = [setting.add(2, *[5] * 20, 6, adapter="A"), setting.add(3, *[5] * 20, 6)]
    step_of(setting)
    assert [one.num_cached for one in others] == [20, 0]


def calls_of_a_plan(num_kept: int) -> int:
    """Functions that are called to plan a newcomer, where so many prefixes are kept."""
    setting = Setting(num_cells=40 * num_kept + 20, holders=num_kept + 8)
    for number in range(num_kept):
        setting.add(number, *range(100 * number, 100 * number + 40), max_tokens=1)
        step_of(setting)
    assert setting.memory.room.num_kept == 40 * num_kept
    setting.add(num_kept, 1, 2, 3)
    step_of(setting)
    setting.add(num_kept + 1, *range(50_000, 50_040))
    calls = Counter[str]()
    sys.setprofile(lambda _frame, event, _arg: calls.update([event]))
    try:
        setting.plan()
    finally:
        sys.setprofile(None)
    return calls["call"]


def test_the_plan_of_a_newcomer_does_not_grow_with_the_prefixes_that_are_kept() -> None:
    assert calls_of_a_plan(256) == calls_of_a_plan(32) > 0


# ---- what is computed of one sequence

ID = SequenceId(7)
SLOT = 3


def progress(prompt: tuple[int, ...], *, num_computed: int = 0, **more: bool) -> Progress:
    sequence = NewSequence(
        id=ID,
        prompt=Prompt(prompt),
        max_tokens=4,
        sampling=Sampling(seed=0, temperature=0, top_log_probs=0),
        **more,
    )
    one = Progress(sequence, arrival=0, ceiling=64)
    one.start(num_computed)
    return one


def test_the_next_token_with_what_is_guessed_to_follow() -> None:
    one = progress((5, 6, 8), num_computed=2)
    assert next_run(SLOT, one, ()) == Run(ID, SLOT, 2, (8,), samples=True)
    assert next_run(SLOT, one, (1, 2)) == Run(ID, SLOT, 2, (8, 1, 2), samples=True, num_drafted=2)


def test_only_the_end_of_a_prompt_gives_a_token() -> None:
    one = progress((5, 6, 8, 9), num_computed=1)
    assert chunk_run(SLOT, one, 2) == Run(ID, SLOT, 1, (6, 8), samples=False)
    assert chunk_run(SLOT, one, 3) == Run(ID, SLOT, 1, (6, 8, 9), samples=True)


def test_a_prompt_that_is_computed_only_gives_none() -> None:
    one = progress((5, 6), prefill_only=True)
    assert chunk_run(SLOT, one, 2) == Run(ID, SLOT, 0, (5, 6), samples=False)


def test_tokens_of_a_prompt_that_is_explained() -> None:
    one = progress((5, 6, 8, 9), scores_prompt=True)
    run = Run(ID, SLOT, 0, (5, 6), samples=False, scored=(6, 8), first_scored=0)
    assert chunk_run(SLOT, one, 2) == run
    last = progress((5, 6, 8, 9), num_computed=2, scores_prompt=True)
    assert chunk_run(SLOT, last, 2) == Run(ID, SLOT, 2, (8, 9), True, scored=(9,), first_scored=0)
