"""The planner: joining, chunks, ends, and what happens when a step does not work."""

from collections import defaultdict

import pytest

from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.scheduler import MIN_CHUNK, Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceEnd, SequenceId, SequenceOutput
from arriero.agent.engine.step import Aborted, Decoded, Failed, NoRoom, Outcome, Run, Step
from arriero.shared.errors import EngineFailed, InvalidRequest, PromptTooLong
from tests.agent.engine.fake_engine import END_TOKEN, FakeEngine, run_alone

GREEDY = Sampling(seed=0, temperature=0)


def new(
    number: int, prompt: tuple[int, ...], max_tokens: int | None = None, priority: int = 0
) -> NewSequence:
    return NewSequence(
        id=SequenceId(number),
        prompt=prompt,
        max_tokens=max_tokens,
        sampling=GREEDY,
        priority=priority,
    )


def make(*, slots: int = 2, context_size: int = 64, batch_size: int = 16) -> Scheduler:
    return Scheduler(
        slots=slots,
        context_size=context_size,
        batch_size=batch_size,
        max_stall=0.5,
        end_tokens=frozenset({END_TOKEN}),
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
    assert step.clears == (0,)
    assert step.runs == (Run(SequenceId(2), 0, 0, (8,), True),)


def test_nothing_comes_for_a_sequence_dropped_during_its_step() -> None:
    scheduler = make()
    scheduler.add(new(1, (5,)))
    scheduler.add(new(2, (6,)))
    step = planned(scheduler)
    scheduler.drop(step.runs[0].id)
    outputs = scheduler.commit(step, Decoded((7, 8)), 0.1)
    assert outputs == (SequenceOutput(step.runs[1].id, (8,)),)
    scheduler.check_integrity()


def test_dropping_the_unknown_is_no_mistake() -> None:
    scheduler = make()
    scheduler.drop(SequenceId(9))
    assert scheduler.is_idle


def test_the_last_cells_are_cleared_in_a_step_of_their_own() -> None:
    scheduler = make(slots=1)
    scheduler.add(new(1, (5,), max_tokens=1))
    take(scheduler, Decoded((7,)))
    assert planned(scheduler) == Step((0,), (), 0, 0)


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
    assert (stats.prefill_seconds, stats.decode_seconds) == (0.5, 0.25)


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


def refusal(sequence: NewSequence) -> SequenceEnd:
    scheduler = make(context_size=8)
    scheduler.add(sequence)
    assert not scheduler.is_idle
    (output,) = take(scheduler, Decoded(()))
    assert scheduler.is_idle
    assert output.end is not None
    return output.end


def test_a_prompt_over_the_ceiling_never_runs() -> None:
    reason = refusal(new(1, (5,) * 8)).reason
    assert isinstance(reason, PromptTooLong)
    assert "8 tokens" in reason.message


def test_an_empty_prompt_ends_at_once() -> None:
    assert isinstance(refusal(new(1, ())).reason, InvalidRequest)


def test_a_request_with_nothing_to_do_ends_at_once() -> None:
    assert refusal(new(1, (5,), max_tokens=0)).reason == "length"


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


def test_alone_prompts_get_the_whole_batch() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    scheduler.add(new(1, (5,) * 500))
    assert planned(scheduler).num_prompt_tokens == 300


def test_beside_a_stream_prompts_get_what_max_stall_leaves() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    teach(scheduler, per_prompt=0.004, per_generated=0.1)
    scheduler.add(new(1, (5,) * 500))
    step = planned(scheduler)
    assert step.num_generating == 1
    assert step.num_prompt_tokens == pytest.approx((0.5 - 0.1) / 0.004, abs=2)


def test_a_prompt_advances_even_when_steps_are_too_slow() -> None:
    scheduler = make(context_size=1000, batch_size=300)
    teach(scheduler, per_prompt=0.1, per_generated=2.0)
    scheduler.add(new(1, (5,) * 500))
    assert planned(scheduler).num_prompt_tokens == MIN_CHUNK


def test_prompts_share_fairly() -> None:
    scheduler = make(slots=3, context_size=1000, batch_size=300)
    for number, length in ((1, 500), (2, 20), (3, 500)):
        scheduler.add(new(number, (5,) * length))
    step = planned(scheduler)
    assert [len(run.tokens) for run in step.runs] == [140, 20, 140]
    assert [run.samples for run in step.runs] == [False, True, False]


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


def test_a_failed_step_ends_its_sequences_after_their_cells_are_cleared() -> None:
    scheduler = make(slots=2)
    for number in (1, 2, 3):
        scheduler.add(new(number, (5,), max_tokens=2))
    assert take(scheduler, Failed("the kernel is gone")) == []
    step = planned(scheduler)
    assert sorted(step.clears) == [0, 1]
    assert [run.id for run in step.runs] == [3]
    outputs = scheduler.commit(step, Decoded((7,)), 0.1)
    reasons = [output.end and output.end.reason for output in outputs]
    assert [output.id for output in outputs] == [1, 2, 3]
    assert reasons == [EngineFailed("the engine failed: the kernel is gone")] * 2 + [None]
    scheduler.check_integrity()


def test_clean_up_counts_even_when_the_next_step_fails_too() -> None:
    scheduler = make(slots=1)
    scheduler.add(new(1, (5,)))
    scheduler.add(new(2, (6,)))
    take(scheduler, Failed("first"))
    assert [output.id for output in take(scheduler, Failed("second"))] == [1]
    assert [output.id for output in take(scheduler, Decoded(()))] == [2]
    assert scheduler.is_idle


def test_an_aborted_step_is_computed_again_from_the_start() -> None:
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
        scheduler.commit(step, Decoded(()), 0.1)
    assert sizes == [16, 32, 32]


@pytest.mark.parametrize("num_cells", [24, 30, 45])
def test_memory_pressure_ends_nobody_who_fits_alone(num_cells: int) -> None:
    context_size = 22
    engine = FakeEngine(slots=3, context_size=context_size, num_cells=num_cells)
    scheduler = make(slots=3, context_size=context_size)
    sequences = [new(n, tuple(range(n, n + 5 + n))) for n in range(1, 8)]
    for sequence in sequences:
        scheduler.add(sequence)
    ended = finish(scheduler, engine)
    assert ended == {one.id: run_alone(one, context_size) for one in sequences}


def test_the_last_by_rank_makes_room_and_waits_until_another_has_left() -> None:
    scheduler = make(slots=4)
    for number, priority in ((1, 0), (2, 0), (3, 0), (4, 5)):
        scheduler.add(new(number, (5,), max_tokens=3, priority=priority))
    take(scheduler, Decoded((7, 7, 7, 7)))
    take(scheduler, NoRoom())
    step = planned(scheduler)
    assert sorted(run.id for run in step.runs) == [1, 2, 4]
    assert step.clears
    scheduler.commit(step, Decoded((8, 8, 8)), 0.1)
    take(scheduler, Decoded((9, 9, 9)))
    assert planned(scheduler).runs[0].tokens == (5, 7), "it reads its own tokens again"


def test_a_sequence_without_room_even_alone_fails() -> None:
    engine = FakeEngine(slots=2, context_size=64, num_cells=10)
    scheduler = make()
    scheduler.add(new(1, (5,) * 20))
    scheduler.add(new(2, (6,) * 3, max_tokens=2))
    ended = finish(scheduler, engine)
    assert isinstance(ended[1][1], EngineFailed)
    assert ended[2] == run_alone(new(2, (6,) * 3, max_tokens=2), 64)
