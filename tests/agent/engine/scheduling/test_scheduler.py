"""The planner: joining, chunks, ends, and what happens when a step does not work."""

from collections import defaultdict
from dataclasses import replace

import pytest

from arriero.agent.engine.capacity import Capacity
from arriero.agent.engine.cost.move_cost import MOST_BYTES, SLOWEST
from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.background import MOST_LOST
from arriero.agent.engine.scheduling.exports import ExportId
from arriero.agent.engine.scheduling.prefill import FIRST_CHUNK, MIN_CHUNK
from arriero.agent.engine.scheduling.scheduler import Scheduler, refusal
from arriero.agent.engine.scheduling.step_budget import MARGIN, PATIENCE
from arriero.agent.engine.sequence import (
    ContextShift,
    NewSequence,
    SequenceEnd,
    SequenceId,
    SequenceOutput,
)
from arriero.agent.engine.step import (
    Aborted,
    Clear,
    Copy,
    Decoded,
    Failed,
    NoRoom,
    Outcome,
    Run,
    Step,
)
from arriero.shared.errors import EngineFailed, InvalidRequest, PromptTooLong
from tests.agent.engine.fake_engine import END_TOKEN, FakeEngine, run_alone, state_of, stored_prompt
from tests.agent.stored import whole

GREEDY = Sampling(seed=0, temperature=0)


def new(
    number: int, prompt: tuple[int, ...], max_tokens: int | None = None, priority: int = 0
) -> NewSequence:
    return NewSequence(
        id=SequenceId(number),
        prompt=Prompt(prompt),
        max_tokens=max_tokens,
        sampling=GREEDY,
        priority=priority,
    )


def make(
    *,
    slots: int = 2,
    context_size: int = 64,
    batch_size: int = 16,
    most_mixed: int | None = None,
    num_cells: int | None = None,
    num_holders: int = 8,
    can_share: bool = True,
    most_parked: int = 1000,
    is_compact: bool = False,
    cell_bytes: int = 0,
) -> Scheduler:
    return Scheduler(
        slots=slots,
        context_size=context_size,
        max_stall=0.5,
        end_tokens=frozenset({END_TOKEN}),
        capacity=Capacity(
            batch_size=batch_size,
            most_mixed=batch_size if most_mixed is None else most_mixed,
            num_cells=slots * context_size if num_cells is None else num_cells,
            num_holders=num_holders,
            can_share=can_share,
            can_shift=can_share,
            most_parked=most_parked,
            is_compact=is_compact,
            cell_bytes=cell_bytes,
        ),
    )


def planned(scheduler: Scheduler) -> Step:
    step = scheduler.plan()
    assert step is not None
    return step


def take(scheduler: Scheduler, outcome: Outcome, elapsed: float = 0.1) -> list[SequenceOutput]:
    outputs = scheduler.commit(planned(scheduler), outcome, elapsed)
    scheduler.check_integrity()
    return list(outputs)


def finish(scheduler: Scheduler, engine: FakeEngine) -> dict[int, tuple[tuple[int, ...], object]]:
    """Run until idle: the tokens and the reason of each sequence."""
    tokens: dict[int, tuple[int, ...]] = defaultdict(tuple)
    ends: dict[int, object] = {}
    while (step := scheduler.plan()) is not None:
        for output in scheduler.commit(step, engine.execute(step), 0.01):
            assert output.id not in ends
            tokens[output.id] += output.tokens
            if output.end is not None:
                ends[output.id] = output.end.reason
        scheduler.check_integrity()
    return {number: (tokens[number], reason) for number, reason in ends.items()}


# ---- joining and leaving


def test_idle_until_something_is_added() -> None:
    scheduler = make()
    assert scheduler.is_idle
    assert scheduler.plan() is None
    scheduler.add(new(1, (5,)))
    assert not scheduler.is_idle


def test_newcomers_join_a_running_batch() -> None:
    scheduler = make()
    scheduler.add(new(1, (5, 6)))
    step = planned(scheduler)
    assert step.runs == (Run(SequenceId(1), 1, 0, (5, 6), True),)
    assert scheduler.commit(step, Decoded((7,)), 0.1) == (SequenceOutput(SequenceId(1), (7,)),)
    scheduler.add(new(2, (8, 9)))
    step = planned(scheduler)
    assert step.runs == (
        Run(SequenceId(1), 1, 2, (7,), True),
        Run(SequenceId(2), 0, 0, (8, 9), True),
    )
    assert (step.num_generating, step.num_prompt_tokens) == (1, 2)


def test_the_best_priority_joins_first_then_the_first_come() -> None:
    scheduler = make(slots=1)
    for number, priority in ((1, 0), (2, 0), (3, 5), (4, 5)):
        scheduler.add(new(number, (5,), max_tokens=1, priority=priority))
    order = []
    while (step := scheduler.plan()) is not None:
        order += [run.id for run in step.runs]
        scheduler.commit(step, Decoded((7,) * len(step.runs)), 0.1)
    assert order == [3, 4, 1, 2]


def test_a_dropped_sequence_frees_its_slot_for_the_next_step() -> None:
    scheduler = make(slots=1)
    scheduler.add(new(1, (5, 6)))
    take(scheduler, Decoded((7,)))
    scheduler.drop(SequenceId(1))
    scheduler.add(new(2, (8,)))
    step = planned(scheduler)
    assert step.edits == (Copy(0, 7, 2), Clear(0))
    assert step.runs == (Run(SequenceId(2), 0, 0, (8,), True),)


def test_nobody_is_dropped_while_a_step_runs() -> None:
    scheduler = make()
    scheduler.add(new(1, (5,)))
    planned(scheduler)
    with pytest.raises(RuntimeError, match="the last step was not committed"):
        scheduler.drop(SequenceId(1))


def test_dropping_the_unknown_is_no_mistake() -> None:
    scheduler = make()
    scheduler.drop(SequenceId(9))
    assert scheduler.is_idle


def test_idle_again_as_soon_as_all_have_ended() -> None:
    scheduler = make(slots=1)
    scheduler.add(new(1, (5,), max_tokens=1))
    take(scheduler, Decoded((7,)))
    assert scheduler.is_idle


# ---- how a sequence ends


def test_an_end_token_stops_and_is_not_an_output() -> None:
    scheduler = make()
    scheduler.add(new(1, (5, 6)))
    take(scheduler, Decoded((7,)), 0.5)
    (output,) = take(scheduler, Decoded((END_TOKEN,)), 0.25)
    assert output.tokens == ()
    assert output.end is not None
    assert output.end.reason == "stop"
    stats = output.end.stats
    assert (stats.prompt_tokens, stats.completion_tokens, stats.cached_tokens) == (2, 1, 0)
    assert stats.prefill_tokens == 2
    assert (stats.prefill_seconds, stats.decode_seconds) == (0.5, 0.25)


def test_log_probabilities_come_with_the_tokens_that_were_gained() -> None:
    scheduler = make()
    for number in (1, 2):
        scheduler.add(new(number, (5, 6, number)))
    step = planned(scheduler)
    found = {SequenceId(1): (LogProbs(9, -1.0),), SequenceId(2): (LogProbs(END_TOKEN, -2.0),)}
    first, second = scheduler.commit(step, Decoded((9, END_TOKEN), found), 0.1)
    assert (first.tokens, first.log_probs) == ((9,), found[SequenceId(1)])
    assert (second.tokens, second.log_probs) == ((), found[SequenceId(2)])


def test_max_tokens_end_with_the_last_token() -> None:
    scheduler = make()
    scheduler.add(new(1, (5,), max_tokens=1))
    (output,) = take(scheduler, Decoded((7,)))
    assert output.tokens == (7,)
    assert output.end is not None
    assert output.end.reason == "length"
    assert output.end.stats.decode_seconds is None


def test_the_ceiling_ends_with_length() -> None:
    engine = FakeEngine(slots=1, context_size=8)
    scheduler = make(slots=1, context_size=8)
    scheduler.add(new(1, (4, 4, 4, 4)))
    tokens, reason = finish(scheduler, engine)[1]
    assert reason == "length"
    assert len(tokens) == 4


def ending(sequence: NewSequence) -> SequenceEnd:
    scheduler = make(context_size=8)
    scheduler.add(sequence)
    assert not scheduler.is_idle
    (output,) = take(scheduler, Decoded(()))
    assert scheduler.is_idle
    assert output.end is not None
    return output.end


def test_a_prompt_over_the_ceiling_never_runs() -> None:
    reason = ending(new(1, (5,) * 8)).reason
    assert isinstance(reason, PromptTooLong)
    assert "8 tokens" in reason.message


def test_an_empty_prompt_ends_at_once() -> None:
    assert isinstance(ending(new(1, ())).reason, InvalidRequest)


def test_a_request_with_nothing_to_do_ends_at_once() -> None:
    assert ending(new(1, (5,), max_tokens=0)).reason == "length"


def test_the_same_id_twice_is_a_mistake() -> None:
    scheduler = make()
    scheduler.add(new(1, (5,)))
    with pytest.raises(ValueError, match="sequence 1"):
        scheduler.add(new(1, (5,)))


# ---- the budget of a step


def teach(scheduler: Scheduler, *, per_prompt: float, per_generated: float) -> None:
    """Let a sequence run whose steps cost as given, and leave it generating."""
    scheduler.add(new(100, (5,) * 10))
    take(scheduler, Decoded((7,)), 10 * per_prompt)
    for _ in range(5):
        take(scheduler, Decoded((7,)), per_generated)


def test_the_first_prompt_of_all_gets_little() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    scheduler.add(new(1, (5,) * 500))
    assert planned(scheduler).num_prompt_tokens == FIRST_CHUNK


def test_alone_cheap_prompts_get_the_whole_batch() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    scheduler.add(new(1, (5,) * 600))
    take(scheduler, Decoded(()), 0.01)
    assert planned(scheduler).num_prompt_tokens == 300


def test_alone_dear_prompts_leave_time_to_hear_of_others() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    scheduler.add(new(1, (5,) * 600))
    take(scheduler, Decoded(()), FIRST_CHUNK * 0.01)
    assert 0.7 < planned(scheduler).num_prompt_tokens / (MARGIN * PATIENCE / 0.01) <= 1


def test_beside_a_stream_prompts_get_what_max_stall_leaves() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    teach(scheduler, per_prompt=0.004, per_generated=0.1)
    scheduler.add(new(1, (6,) * 900))
    for _ in range(5):
        step = planned(scheduler)
        assert step.num_generating == 1
        reading = 0.004 * step.num_prompt_tokens
        scheduler.commit(step, Decoded((7,)), 0.1 + reading)
    assert 0.4 < reading < 0.5


def test_what_is_too_long_to_be_read_beside_a_stream_is_read_in_turns() -> None:
    scheduler = make(context_size=1000, batch_size=300, most_mixed=30)
    teach(scheduler, per_prompt=0.004, per_generated=0.1)
    scheduler.add(new(1, (6,) * 130))
    steps = []
    for _ in range(6):
        step = planned(scheduler)
        steps.append((step.num_generating, step.num_prompt_tokens))
        tokens = tuple(7 for run in step.runs if run.samples)
        seconds = 0.1 * step.num_generating + 0.004 * step.num_prompt_tokens
        scheduler.commit(step, Decoded(tokens), seconds)
    assert steps == [(0, 37), (1, 0), (0, 62), (1, 0), (0, 31), (2, 0)]
    assert scheduler.statistics().stalls.seconds == pytest.approx(130 * 0.004, abs=0.01)


def test_a_prompt_advances_even_when_steps_are_too_slow() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    teach(scheduler, per_prompt=0.1, per_generated=2.0)
    scheduler.add(new(1, (6,) * 500))
    assert planned(scheduler).num_prompt_tokens == MIN_CHUNK


def test_a_prompt_that_is_read_for_long_is_reported_once_a_second() -> None:
    scheduler = make(slots=1, context_size=1000, batch_size=16)
    scheduler.add(new(1, (5,) * 200))
    scheduler.add(new(2, (6,) * 200))  # which waits for the slot
    reported = [take(scheduler, Decoded(()), 0.3) for _ in range(8)]
    read = [[(one.id, one.num_read) for one in outputs] for outputs in reported]
    assert [bool(each) for each in read] == [False, False, False, True] * 2
    assert [id for id, _ in read[3]] == [1, 2] and read[3][1] == (2, 0)
    assert 0 < (read[3][0][1] or 0) < (read[7][0][1] or 0) < 200


def test_prompts_are_read_in_the_order_in_which_fair_shares_would_end() -> None:
    scheduler = make(slots=3, context_size=1000, batch_size=300)
    for number, length in ((1, 500), (2, 20), (3, 500)):
        scheduler.add(new(number, (number,) * length))
    step = planned(scheduler)
    assert [(run.id, len(run.tokens)) for run in step.runs] == [(1, 108), (2, 20)]
    assert [run.samples for run in step.runs] == [False, True]


def test_logits_are_asked_only_where_a_token_is_sampled() -> None:
    scheduler = make(context_size=64, batch_size=16)
    scheduler.add(new(1, (5,) * 20))
    first = planned(scheduler)
    assert [run.samples for run in first.runs] == [False]
    assert scheduler.commit(first, Decoded(()), 0.1) == ()
    assert [(run.start, run.samples) for run in planned(scheduler).runs] == [(16, True)]


def test_a_batch_smaller_than_the_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="batch of 1"):
        make(slots=2, batch_size=1)


# ---- plan and commit alternate


def test_plan_waits_for_commit() -> None:
    scheduler = make()
    scheduler.add(new(1, (5,)))
    scheduler.plan()
    with pytest.raises(RuntimeError, match="not committed"):
        scheduler.plan()


def test_commit_wants_the_planned_step() -> None:
    scheduler = make()
    scheduler.add(new(1, (5,)))
    scheduler.plan()
    with pytest.raises(RuntimeError, match="planned last"):
        scheduler.commit(Step((), (), 0, 0), Decoded(()), 0.1)


# ---- when a step does not work


def test_a_failed_step_ends_its_sequences_and_gives_up_their_cells() -> None:
    scheduler = make(slots=2)
    for number in (1, 2, 3):
        scheduler.add(new(number, (number,), max_tokens=2))
    outputs = take(scheduler, Failed("the kernel is gone"))
    reasons = [output.end and output.end.reason for output in outputs]
    assert [output.id for output in outputs] == [1, 2]
    assert reasons == [EngineFailed("the engine failed: the kernel is gone")] * 2
    step = planned(scheduler)
    assert {Clear(0), Clear(1)} <= {*step.edits}
    assert [run.id for run in step.runs] == [3]


def test_an_aborted_step_is_computed_again() -> None:
    engine = FakeEngine()
    scheduler = make()
    sequence = new(1, (9, 9, 9), max_tokens=5)
    assert len(run_alone(sequence, 64)[0]) == 5
    scheduler.add(sequence)
    for _ in range(3):
        step = planned(scheduler)
        scheduler.commit(step, engine.execute(step), 0.1)
    engine.fail_next(Aborted())
    rest, reason = finish(scheduler, engine)[1]
    assert (rest, reason) == (run_alone(sequence, 64)[0][3:], "length")
    assert [run.start for step in engine.steps for run in step.runs] == [0, 3, 4, 5, 5, 6]


def test_steps_of_batch_requests_are_stopped_only_so_long() -> None:
    scheduler = make()
    scheduler.add(new(1, (9,), max_tokens=60, priority=-1))
    for _ in range(20):
        if not scheduler.may_be_stopped(step := planned(scheduler)):
            break
        scheduler.commit(step, Aborted(), MOST_LOST / 4)
    else:
        pytest.fail("whoever comes may stop it for ever")


def test_an_aborted_step_costs_all_cells_where_a_suffix_cannot_go() -> None:
    engine = FakeEngine(can_share=False)
    scheduler = make(can_share=False)
    scheduler.add(new(1, (9, 9, 9), max_tokens=5))
    for _ in range(3):
        step = planned(scheduler)
        scheduler.commit(step, engine.execute(step), 0.1)
    engine.fail_next(Aborted())
    finish(scheduler, engine)
    assert [run.start for step in engine.steps for run in step.runs] == [0, 3, 4, 5, 0, 6]


def test_without_room_chunks_are_halved_until_they_fit() -> None:
    scheduler = make(context_size=64, batch_size=32)
    scheduler.add(new(1, (5,) * 40))
    sizes = []
    for _ in range(4):
        step = planned(scheduler)
        sizes.append(step.num_prompt_tokens)
        scheduler.commit(step, NoRoom(), 0.1)
    assert sizes == [32, 16, 8, 4]


def test_chunks_grow_again_when_there_is_room() -> None:
    scheduler = make(context_size=128, batch_size=32)
    scheduler.add(new(1, (5,) * 120))
    take(scheduler, NoRoom())
    sizes = []
    for _ in range(3):
        step = planned(scheduler)
        sizes.append(step.num_prompt_tokens)
        scheduler.commit(step, Decoded(()), 0.01)
    assert sizes == [16, 32, 32]


@pytest.mark.parametrize("believed", [True, False])
@pytest.mark.parametrize("num_cells", [24, 30, 45])
def test_memory_pressure_ends_nobody_who_fits_alone(num_cells: int, believed: bool) -> None:
    context_size = 22
    engine = FakeEngine(slots=3, context_size=context_size, num_cells=num_cells)
    cells = num_cells if believed else None
    scheduler = make(slots=3, context_size=context_size, num_cells=cells)
    engine.capacity = replace(engine.capacity, num_cells=3 * context_size)
    sequences = [new(n, tuple(range(n, n + 5 + n))) for n in range(1, 8)]
    for sequence in sequences:
        scheduler.add(sequence)
    ended = finish(scheduler, engine)
    assert ended == {one.id: run_alone(one, context_size) for one in sequences}


def test_the_last_by_rank_makes_room_and_comes_back_to_get_somewhere() -> None:
    engine = FakeEngine(slots=2, context_size=40, num_cells=56)
    scheduler = make(slots=2, context_size=40, num_cells=56)
    first, second = sequences = endless(2, length=8, tokens=30)
    for sequence in sequences:
        scheduler.add(sequence)
    ended = finish(scheduler, engine)
    assert ended == {one.id: run_alone(one, 40) for one in sequences}
    assert scheduler.statistics().num_preemptions == 1
    starts = [run.start for step in engine.steps for run in step.runs if run.id == second.id]
    assert starts.count(0) == 2, "it read its own tokens once more"
    again = [step for step in engine.steps if any(run.id == second.id for run in step.runs)]
    assert first.id in {run.id for run in engine.steps[1].runs}
    assert len(again) >= 30


def endless(count: int, *, length: int, tokens: int) -> list[NewSequence]:
    """Sequences that do not stop by themselves within `tokens`."""
    found: list[NewSequence] = []
    for first in range(1, 50):
        prompt = tuple(1 + (first * 3 + i * i) % 49 for i in range(length))
        sequence = new(len(found) + 1, prompt, max_tokens=tokens)
        if run_alone(sequence, 1000)[1] == "length":
            found.append(sequence)
        if len(found) == count:
            return found
    raise AssertionError("no such prompts")


def test_priority_decides_who_makes_room() -> None:
    engine = FakeEngine(slots=2, context_size=40, num_cells=56)
    scheduler = make(slots=2, context_size=40, num_cells=56)
    first, second = (
        replace(one, priority=number) for number, one in enumerate(endless(2, length=8, tokens=30))
    )
    scheduler.add(first)
    scheduler.add(second)
    finish(scheduler, engine)
    starts = [run.id for step in engine.steps for run in step.runs if run.start == 0]
    assert starts == [second.id, first.id, first.id]


def test_newcomers_wait_while_there_is_no_room_for_all_of_them() -> None:
    scheduler = make(slots=2, context_size=40, num_cells=60, batch_size=40)
    scheduler.add(new(1, (1,) * 20, max_tokens=10))
    scheduler.add(new(2, (2,) * 30, max_tokens=3))
    assert [run.id for run in planned(scheduler).runs] == [1]


def test_a_sequence_without_room_even_alone_fails() -> None:
    engine = FakeEngine(slots=2, context_size=64, num_cells=10, believed_cells=128)
    scheduler = make()
    scheduler.add(new(1, (5,) * 20))
    scheduler.add(new(2, (6,) * 3, max_tokens=2))
    ended = finish(scheduler, engine)
    assert isinstance(ended[1][1], EngineFailed)
    assert ended[2] == run_alone(new(2, (6,) * 3, max_tokens=2), 64)


def test_what_could_never_fit_is_refused() -> None:
    scheduler = make(context_size=64, num_cells=20)
    scheduler.add(new(1, (5,) * 20))
    (output,) = take(scheduler, Decoded(()))
    assert output.end is not None
    assert isinstance(output.end.reason, PromptTooLong)
    assert "20 tokens > 19 maximum" in output.end.reason.message


# ---- prefixes


def starts(engine: FakeEngine, number: int) -> list[int]:
    return [run.start for step in engine.steps for run in step.runs if run.id == number]


COMMON = tuple(range(1, 41))


def test_a_prefix_in_flight_is_waited_for_and_then_shared() -> None:
    engine = FakeEngine(slots=3, context_size=64, batch_size=64)
    scheduler = make(slots=3, context_size=64, batch_size=64)
    sequences = [new(n, (*COMMON, n, n + 1, n + 2), max_tokens=2) for n in (1, 2, 3)]
    for sequence in sequences:
        scheduler.add(sequence)
    ended = finish(scheduler, engine)
    assert ended == {one.id: run_alone(one, 64) for one in sequences}
    assert [len(run.tokens) for run in engine.steps[0].runs] == [40], "up to where they part"
    assert [len(run.tokens) for run in engine.steps[1].runs] == [3, 3, 3]
    assert scheduler.statistics().cached_tokens == 80


def test_a_newcomer_goes_on_by_itself_when_the_other_is_dropped() -> None:
    scheduler = make(slots=2, context_size=64, batch_size=16)
    scheduler.add(new(1, (*COMMON, 1)))
    scheduler.add(new(2, (*COMMON, 2)))
    take(scheduler, Decoded(()))
    scheduler.drop(SequenceId(1))
    step = planned(scheduler)
    assert [(run.id, run.start) for run in step.runs] == [(2, 16)], "from what was computed"


def test_a_newcomer_goes_on_by_itself_when_the_other_fails() -> None:
    scheduler = make(slots=2, context_size=64, batch_size=16)
    scheduler.add(new(1, (*COMMON, 1)))
    scheduler.add(new(2, (*COMMON, 2)))
    take(scheduler, Failed("no"))
    assert [(run.id, run.start) for run in planned(scheduler).runs] == [(2, 0)]


def test_others_go_ahead_of_one_who_waits_for_a_prefix() -> None:
    scheduler = make(slots=3, context_size=64, batch_size=64)
    for number, prompt in ((1, (*COMMON, 1)), (2, (*COMMON, 2)), (3, (9, 9))):
        scheduler.add(new(number, prompt))
    assert [run.id for run in planned(scheduler).runs] == [1, 3]


def test_little_in_common_is_not_waited_for() -> None:
    scheduler = make(slots=2, context_size=64, batch_size=64)
    scheduler.add(new(1, (1, 2, 3, 4)))
    scheduler.add(new(2, (1, 2, 3, 5)))
    assert [run.id for run in planned(scheduler).runs] == [1, 2]


def test_a_kept_prefix_is_shared_and_counted() -> None:
    engine = FakeEngine(slots=1)
    scheduler = make(slots=1)
    first = new(1, (9, 9, 9), max_tokens=5)
    scheduler.add(first)
    answer, _ = finish(scheduler, engine)[1]
    turn = new(2, (9, 9, 9, *answer, 8, 8), max_tokens=2)
    scheduler.add(turn)
    step = planned(scheduler)
    assert (step.runs[0].start, step.runs[0].tokens) == (7, (answer[-1], 8, 8))
    outputs = list(scheduler.commit(step, engine.execute(step), 0.1))
    while outputs[-1].end is None:
        step = planned(scheduler)
        outputs += scheduler.commit(step, engine.execute(step), 0.1)
    assert outputs[-1].end.stats.cached_tokens == 7


def test_a_prompt_that_is_wholly_cached_still_gets_its_first_token() -> None:
    engine = FakeEngine(slots=1)
    scheduler = make(slots=1)
    for number in (1, 2):
        scheduler.add(new(number, (9, 9, 9), max_tokens=5))
        assert finish(scheduler, engine)[number] == run_alone(new(1, (9, 9, 9), 5), 64)
    assert starts(engine, 2) == [2, 3, 4, 5, 6]


def test_a_sequence_shares_with_one_that_generates() -> None:
    engine = FakeEngine(slots=2)
    scheduler = make(slots=2)
    scheduler.add(new(1, (9, 9, 9), max_tokens=8))
    for _ in range(3):
        step = planned(scheduler)
        scheduler.commit(step, engine.execute(step), 0.1)
    known = run_alone(new(1, (9, 9, 9), max_tokens=8), 64)[0]
    scheduler.add(new(2, (9, 9, 9, *known[:2], 8), max_tokens=2))
    finish(scheduler, engine)
    assert starts(engine, 2)[0] == 5


@pytest.mark.parametrize("most_parked", [0, 12])
def test_kept_prefixes_leave_the_cells_when_those_are_needed(most_parked: int) -> None:
    engine = FakeEngine(slots=1, context_size=32, num_cells=32, most_parked=most_parked)
    scheduler = make(slots=1, context_size=32, num_cells=32, most_parked=most_parked)
    for number in (1, 2, 3):
        scheduler.add(new(number, (number,) * 10, max_tokens=2))
        finish(scheduler, engine)
    assert scheduler.statistics().cells.kept == 22
    assert scheduler.statistics().cells.parked == (11 if most_parked else 0)
    for number, shared in ((2, 10), (1, 10 if most_parked else 0)):
        scheduler.add(new(10 + number, (number,) * 12, max_tokens=1))
        finish(scheduler, engine)
        assert starts(engine, 10 + number) == [shared]


def test_prefixes_are_parked_when_others_begin_and_come_back() -> None:
    engine = FakeEngine(slots=1, context_size=512)
    scheduler = make(slots=1, context_size=512, is_compact=True)
    first, *others = endless(3, length=8, tokens=40)
    for one in (first, *others):
        scheduler.add(one)
        finish(scheduler, engine)
    assert scheduler.statistics().cells.parked == 2 * 47
    assert scheduler.statistics().cells.kept == 47
    scheduler.add(replace(first, id=SequenceId(4), max_tokens=1))
    finish(scheduler, engine)
    assert starts(engine, 4) == [7]


def test_a_prompt_that_needs_the_cells_of_a_prefix_waits_while_that_is_parked() -> None:
    """No step copies more than its part, however many cells the prompt could use at once."""
    sizes = {"batch_size": 256, "context_size": 500, "num_cells": 500}
    costs = {"cell_bytes": MOST_BYTES // 70, "seconds_per_moved_cell": 0.0001}
    engine = FakeEngine(slots=2, following=lambda _: 7, **sizes, **costs)
    scheduler = make(slots=2, cell_bytes=engine.capacity.cell_bytes, **sizes)
    scheduler.add(new(1, (9,) * 430, max_tokens=1))
    finish(scheduler, engine)
    assert scheduler.statistics().cells.kept == 430
    stream = new(2, (5,) * 8, max_tokens=400)
    scheduler.add(stream)
    step = planned(scheduler)
    scheduler.commit(step, engine.execute(step), 0.01)
    scheduler.add(new(3, tuple(1 + i % 40 for i in range(300)), max_tokens=1))
    num_parking = 0
    ended = False
    while not ended:
        step = planned(scheduler)
        assert step.num_moved <= 70
        num_parking += step.num_moved > 0
        assert stream.id in [run.id for run in step.runs], "the stream is in every step"
        outputs = scheduler.commit(step, engine.execute(step), 0.01)
        scheduler.check_integrity()
        ended = any(one.id == 3 and one.end is not None for one in outputs)
    assert num_parking >= (300 - 70) / 70


@pytest.mark.parametrize(("state", "is_parked"), [(60, True), (500, False)])
def test_a_stream_waits_for_no_checkpoint_longer_than_it_may(state: int, is_parked: bool) -> None:
    """Blocks come in their part of a step, a state alone, where it surely fits into one."""
    cell = SLOWEST // 800  # before anything is known: 400 cells in half a second
    engine = FakeEngine(
        slots=2,
        context_size=500,
        batch_size=256,
        num_cells=600,
        num_holders=30,
        can_share=False,
        checkpoint_gap=16,
        block=16,
        most_parked=10_000 * cell,
        cell_bytes=cell,
        state_bytes=state * cell,
        seconds_per_moved_cell=1 / 800,
        following=lambda _: 7,
    )
    scheduler = Scheduler(
        slots=2,
        context_size=500,
        max_stall=0.5,
        end_tokens=frozenset({END_TOKEN}),
        capacity=engine.capacity,
    )
    stream = new(99, (5,) * 8, max_tokens=490)
    scheduler.add(stream)
    cached, longest = [], 0
    for number in range(8):
        prompt = tuple(1 + (i + 11 * (number % 4)) % 40 for i in range(190))
        scheduler.add(new(number, prompt, max_tokens=1))
        ended = False
        while not ended:
            step = planned(scheduler)
            assert stream.id in [run.id for run in step.runs] or step.num_prompt_tokens
            longest = max(longest, step.num_moved)
            for output in scheduler.commit(step, engine.execute(step), 0.01):
                if output.id == number and output.end is not None:
                    cached.append(output.end.stats.cached_tokens)
                    ended = True
            scheduler.check_integrity()
    assert longest / 800 <= 0.5
    assert (cached[4:] == [189] * 4) == is_parked
    assert (longest > 0) == is_parked


def test_what_is_lost_in_parking_is_computed_again() -> None:
    engine = FakeEngine(slots=1, context_size=16, num_cells=16)
    scheduler = make(slots=1, context_size=16, num_cells=16)
    one, other = endless(2, length=10, tokens=2)
    for number, sequence in enumerate((one, other)):
        scheduler.add(replace(sequence, id=SequenceId(number)))
        finish(scheduler, engine)
    engine.lose_parked()
    scheduler.add(replace(one, id=SequenceId(3)))
    assert finish(scheduler, engine)[3] == run_alone(one, 16)
    assert starts(engine, 3)[:2] == [9, 0], "the first step was not computed"
    scheduler.check_integrity()


def test_a_model_that_cannot_share_computes_everything() -> None:
    engine = FakeEngine(slots=1, can_share=False)
    scheduler = make(slots=1, can_share=False)
    for number in (1, 2):
        scheduler.add(new(number, (9, 9, 9), max_tokens=1))
        assert finish(scheduler, engine)[number] == run_alone(new(1, (9, 9, 9), 1), 64)
    assert starts(engine, 2) == [0]
    cells = scheduler.statistics().cells
    assert (cells.used, cells.kept) == (0, 0)


# ---- context shift


SHIFTED = replace(
    new(1, tuple(range(1, 11)), max_tokens=60), shift=ContextShift(num_kept=3, num_discarded=5)
)


@pytest.mark.parametrize(("can_share", "can_shift"), [(True, True), (True, False), (False, False)])
def test_a_shift_goes_on_beyond_the_ceiling(can_share: bool, can_shift: bool) -> None:
    engine = FakeEngine(context_size=16, can_share=can_share, can_shift=can_shift)
    scheduler = scheduler_of(engine)
    for number in range(1, 40):
        sequence = replace(SHIFTED, id=SequenceId(number), prompt=Prompt((*range(1, 10), number)))
        scheduler.add(sequence)
        ended = finish(scheduler, engine)
        assert ended[number] == run_alone(sequence, 16)
        if len(ended[number][0]) > 30:
            return
    raise AssertionError("none of them went on for long")


def scheduler_of(engine: FakeEngine) -> Scheduler:
    return Scheduler(
        slots=engine.num_slots,
        context_size=engine.context_size,
        max_stall=0.5,
        end_tokens=frozenset({END_TOKEN}),
        capacity=engine.capacity,
    )


def test_a_prompt_longer_than_the_window_is_shortened_and_its_client_told() -> None:
    scheduler = make(context_size=16, batch_size=32)
    scheduler.add(replace(SHIFTED, prompt=Prompt(tuple(range(1, 31)))))
    step = planned(scheduler)
    assert step.runs[0].tokens == (1, 2, 3, *range(19, 31))
    outputs = scheduler.commit(step, Decoded((7,)), 0.1)
    assert [notice.code for notice in outputs[0].notices] == ["prompt_shifted"]
    assert outputs[1] == SequenceOutput(SequenceId(1), (7,))


def test_a_shift_of_more_than_the_window_is_clamped_and_its_client_told() -> None:
    scheduler = make(context_size=16)
    scheduler.add(replace(SHIFTED, shift=ContextShift(3, 99)))
    outputs = take(scheduler, Decoded((7,)))
    assert [notice.code for notice in outputs[0].notices] == ["n_discard_clamped"]


# ---- prefill only


def test_a_prompt_that_is_only_computed_warms_the_cache() -> None:
    engine = FakeEngine(slots=1)
    scheduler = make(slots=1)
    scheduler.add(replace(new(1, (*range(1, 30),)), prefill_only=True))
    assert finish(scheduler, engine) == {1: ((), "stop")}
    assert [run.samples for step in engine.steps for run in step.runs] == [False, False]
    assert scheduler.statistics().cells.kept == 29
    scheduler.add(new(2, (*range(1, 30), 40), max_tokens=1))
    finish(scheduler, engine)
    assert starts(engine, 2) == [29]


def test_computing_only_what_is_cached_ends_too() -> None:
    engine = FakeEngine(slots=1)
    scheduler = make(slots=1)
    for number in (1, 2):
        scheduler.add(replace(new(number, (3, 4, 5), max_tokens=0), prefill_only=True))
        step = planned(scheduler)
        (output,) = scheduler.commit(step, engine.execute(step), 0.1)
        assert output.end is not None
        assert output.end.stats.completion_tokens == 0
        assert output.end.stats.cached_tokens == (0, 2)[number - 1]


# ---- stored prompts


def test_a_stored_prompt_is_not_computed_again() -> None:
    engine = FakeEngine(slots=1)
    scheduler = make(slots=1)
    sequence = replace(new(1, (1, 2, 3, 4, 5), max_tokens=3), stored=stored_prompt(1, 2, 3, 9, 9))
    scheduler.add(sequence)
    assert finish(scheduler, engine)[1] == run_alone(sequence, 64)
    assert starts(engine, 1)[0] == 3
    assert scheduler.statistics().cached_tokens == 3


def test_a_stored_prompt_that_does_not_load_is_computed() -> None:
    engine = FakeEngine(slots=2)
    scheduler = make(slots=2)
    torn = whole((1, 2, 3), b"torn")
    first = replace(new(1, (1, 2, 3, 4, 5), max_tokens=3), stored=torn)
    second = new(2, (1, 2, 3, 4, 6), max_tokens=3)
    scheduler.add(first)
    scheduler.add(second)
    step = planned(scheduler)
    (told,) = scheduler.commit(step, engine.execute(step), 0.1)
    assert told.id == first.id
    assert [notice.code for notice in told.notices] == ["stored_prompt_unusable"]
    scheduler.check_integrity()
    step = planned(scheduler)
    outputs = scheduler.commit(step, engine.execute(step), 0.1)
    rest = finish(scheduler, engine)
    for sequence in (first, second):
        begun = [token for o in outputs if o.id == sequence.id for token in o.tokens]
        tokens, reason = rest[sequence.id]
        assert ((*begun, *tokens), reason) == run_alone(sequence, 64)
    assert starts(engine, 1)[1] == 0
    assert scheduler.statistics().cached_tokens == 0


def test_what_has_ended_is_read_by_as_many_cells_a_step_as_may_be_copied() -> None:
    costs = {"cell_bytes": MOST_BYTES // 70, "seconds_per_moved_cell": 0.001}
    engine = FakeEngine(slots=2, context_size=1000, following=lambda _: 7, **costs)
    scheduler = make(slots=2, context_size=1000, cell_bytes=engine.capacity.cell_bytes)
    ended = new(1, tuple(9 for _ in range(300)), max_tokens=1)
    for one in (ended, new(2, (5,) * 8, max_tokens=200)):
        scheduler.add(one)
    has_ended, num_steps = False, 0
    while not (exported := scheduler.take_exported()):
        step = planned(scheduler)
        assert step.num_moved <= 70
        if step.num_moved:
            num_steps += 1
            assert [run.id for run in step.runs] == [2], "the stream is in every step"
        for output in scheduler.commit(step, engine.execute(step), 0.01):
            if output.id == 1 and output.end is not None and not has_ended:
                has_ended = True
                scheduler.export(ExportId(1), ended.prompt, HandOut())
    assert num_steps >= 300 / 70
    [one] = exported
    assert one.prefix is not None and one.prefix.prompt == ended.prompt
    assert sum(piece.num_tokens for piece in one.prefix.pieces) == 300


def test_a_stored_prompt_is_released_once_it_is_in_the_cells() -> None:
    engine = FakeEngine(slots=1, most_parked=0)
    scheduler = make(slots=1, most_parked=0)
    state = bytearray(state_of((1, 2, 3)))
    pieces = (Piece(3, memoryview(state)),)
    first = new(1, (1, 2, 3, 4, 5), max_tokens=50)
    scheduler.add(replace(first, stored=StoredPrompt(Prompt((1, 2, 3)), pieces)))
    del pieces
    assert scheduler.statistics().cells.parked == 3, "it is counted while it waits"
    step = planned(scheduler)
    scheduler.commit(step, engine.execute(step), 0.1)
    del step
    engine.steps.clear()
    assert scheduler.statistics().cells.parked == 0
    state.clear()  # a BufferError if anybody still had a view of it


def test_a_stored_prompt_is_fetched_piece_by_piece_beside_a_stream() -> None:
    engine = FakeEngine(
        slots=2, context_size=1000, cell_bytes=MOST_BYTES // 70, following=lambda _: 7
    )
    scheduler = make(slots=2, context_size=1000, cell_bytes=engine.capacity.cell_bytes)
    stream = new(1, (5,) * 8, max_tokens=200)
    scheduler.add(stream)
    step = planned(scheduler)
    scheduler.commit(step, engine.execute(step), 0.01)
    tokens = tuple(1 + i % 40 for i in range(300))
    loading = replace(new(7, (*tokens, 3), max_tokens=1), stored=stored_prompt(*tokens, piece=60))
    scheduler.add(loading)
    ended = False
    while not ended:
        step = planned(scheduler)
        assert step.num_moved <= 70
        assert stream.id in [run.id for run in step.runs]
        outputs = scheduler.commit(step, engine.execute(step), 0.01)
        ended = any(one.id == 7 and one.end is not None for one in outputs)
    assert starts(engine, 7) == [300]


# ---- statistics


def test_stalls_are_what_others_prompts_cost_a_stream() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    teach(scheduler, per_prompt=0.004, per_generated=0.1)
    assert sum(scheduler.statistics().stalls.counts) == 0
    scheduler.add(new(1, (6,) * 30))
    take(scheduler, Decoded((7, 7)), 0.35)
    statistics = scheduler.statistics()
    assert sum(statistics.stalls.counts) == 1
    assert statistics.stalls.seconds == pytest.approx(0.25, rel=0.05)


def test_time_between_steps_stalls_nobody_but_counts() -> None:
    scheduler = make(slots=1)
    scheduler.add(new(1, (5, 6)))
    take(scheduler, Decoded((7,)), 0.5)
    scheduler.commit(planned(scheduler), Decoded((7,)), 0.25, pause=0.25)
    statistics = scheduler.statistics()
    assert statistics.busy_seconds == 1.0
    assert statistics.tokens_per_second == 2.0
    assert statistics.average_running == 1.0
    assert statistics.decode_tokens_per_second == 4.0
    assert statistics.prefill_tokens_per_second == 4.0


def test_making_proposals_counts_as_generating_and_teaches_nothing_of_steps() -> None:
    scheduler = make(slots=1)
    scheduler.add(new(1, (5, 6)))
    take(scheduler, Decoded((7,)), 0.5)
    scheduler.commit(planned(scheduler), Decoded((7,)), 0.25, pause=0.25, drafting=0.25)
    statistics = scheduler.statistics()
    assert statistics.decode_tokens_per_second == 2.0
    assert statistics.busy_seconds == 1.0
    assert scheduler.draft_prices().step == pytest.approx(0.25)
    (output,) = take(scheduler, Decoded((END_TOKEN,)), 0.25)
    assert output.end is not None
    assert output.end.stats.decode_seconds == 0.75


def test_no_step_of_a_real_models_costs_is_longer_than_promised() -> None:
    """Seven streams, and long prompts that come one after the other."""
    scheduler = make(slots=8, context_size=100_000, batch_size=512, most_mixed=63)
    for number in range(1, 8):
        scheduler.add(new(number, (number,) * 64))
    waits = []
    for count in range(400):
        if count % 40 == 20:
            scheduler.add(new(100 + count, (count % 49, *[9] * 1500), max_tokens=20))
        step = planned(scheduler)
        seconds = q06(step)
        if count > 20 and step.num_prompt_tokens:
            waits.append(seconds - q06(replace(step, num_prompt_tokens=0)))
        scheduler.commit(step, Decoded((7,) * sum(run.samples for run in step.runs)), seconds)
    assert len(waits) > 50
    assert max(waits) <= 0.5
    assert sum(waits[3:20]) / 17 > 0.35, "and the time is used, as far as it is good for a tile"


def q06(step: Step) -> float:
    """What was measured of a model of 0.6 billion weights on two cores."""
    generating, reading = step.num_generating, step.num_prompt_tokens
    alone = 0.024 + 0.0095 * generating if generating else 0.0
    if not reading:
        return alone
    return alone + (0.0056 * reading if generating else 0.04 + 0.0052 * reading)


def test_scores_come_with_what_is_gained_or_alone() -> None:
    scheduler = make()
    scheduler.add(replace(new(1, (5, 6, 1)), scores_prompt=True))
    step = planned(scheduler)
    told = {SequenceId(1): (LogProbs(6, -1.0),)}
    (output,) = scheduler.commit(step, Decoded((9,), {}, told), 0.1)
    assert output == SequenceOutput(SequenceId(1), (9,), prompt_log_probs=told[SequenceId(1)])
    alone = make(slots=1)
    alone.add(replace(new(1, tuple(range(1, 60))), scores_prompt=True))
    step = planned(alone)
    (output,) = alone.commit(step, Decoded((), {}, told), 0.1)
    assert output == SequenceOutput(SequenceId(1), prompt_log_probs=told[SequenceId(1)])


def test_what_left_the_cache_is_named() -> None:
    """A cache that holds one of these prompts and what is computed of the next."""
    scheduler, engine = make(slots=1, context_size=32, most_parked=0), FakeEngine()
    for number in (1, 2):
        keys = ((12, number * 10), (24, number * 10 + 1))
        scheduler.add(replace(new(number, (number,) * 24, max_tokens=2), marks=keys))
        finish(scheduler, engine)
    gone = set(scheduler.marks.take_gone(9).keys)
    assert 11 in gone
    assert gone <= {10, 11}
    assert not scheduler.marks.take_gone(9)


def test_a_model_that_cannot_share_holds_nothing_that_is_named() -> None:
    scheduler, engine = make(can_share=False), FakeEngine()
    scheduler.add(replace(new(1, (5,) * 8, max_tokens=1), marks=((8, 7),)))
    finish(scheduler, engine)
    assert scheduler.marks.take_gone(9).keys == (7,)


# ---- what can never run is told why


def sized(length: int, shift: ContextShift | None = None, *, num_said: int = 0) -> NewSequence:
    return NewSequence(
        id=SequenceId(1),
        prompt=Prompt((5,) * length),
        max_tokens=None,
        sampling=Sampling(seed=0),
        shift=shift,
        said=(6,) * num_said,
    )


def test_what_no_engine_computes_is_refused_and_not_run() -> None:
    assert refusal(replace(sized(1), prompt=Prompt((5, 6), adapter="lora")), 8) is None


def test_a_prompt_with_media_ends_with_a_token_and_has_no_shift_and_no_scores() -> None:
    media = Media(b"image", 3)
    good = replace(sized(1), prompt=Prompt((5,), media, (6,)))
    assert refusal(good, 8) is None
    for bad, word in (
        (replace(good, prompt=Prompt((5, 6), media)), "at least one token after"),
        (replace(good, shift=ContextShift(1, 1)), "n_discard"),
        (replace(good, scores_prompt=True), "log-probabilities"),
    ):
        error = refusal(bad, 8)
        assert isinstance(error, InvalidRequest)
        assert word in error.message


def test_a_prompt_needs_tokens() -> None:
    assert isinstance(refusal(sized(0), 8), InvalidRequest)
    assert isinstance(refusal(sized(0, ContextShift(1, 1)), 8), InvalidRequest)


def test_a_prompt_leaves_room_for_an_answer() -> None:
    assert refusal(sized(7), 8) is None
    error = refusal(sized(8), 8)
    assert isinstance(error, PromptTooLong)
    assert "8 tokens > 7 maximum" in error.message


def test_a_prompt_that_may_be_shifted_is_never_too_long() -> None:
    assert refusal(sized(100, ContextShift(1, 1)), 8) is None


def test_an_answer_that_goes_on_has_to_fit_as_well() -> None:
    assert refusal(sized(5, num_said=3), 8) is None
    assert refusal(sized(5, ContextShift(1, 1), num_said=4), 8) is None
    error = refusal(sized(5, num_said=4), 8)
    assert isinstance(error, EngineFailed)
    assert "exceed this context of 8" in error.message
