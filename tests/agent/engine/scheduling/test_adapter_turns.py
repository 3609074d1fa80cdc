"""Whose turn a step is."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.scheduling.planner import AdapterKey, AdapterTurns, Turn, steps_of_a_turn
from tests.agent.engine.setting import Setting


def steps(
    turns: AdapterTurns,
    count: int,
    generating: Sequence[AdapterKey],
    reader: Sequence[AdapterKey] = (),
    *,
    mixes: bool = False,
    most: int = 1,
) -> list[str]:
    """What is done in the next `count` steps, such as `A` (generates), `read A`, `A, read A`."""
    done = []
    for _ in range(count):
        turn = turns.next(generating, reader, most)
        generates = turn.adapter in generating and (mixes or not turn.reads)
        turns.took(turn.adapter, has_generated=generates, has_read=turn.reads)
        parts = [str(turn.adapter)] * generates + [f"read {turn.adapter}"] * turn.reads
        done.append(", ".join(parts))
    return done


def test_adapters_take_turns() -> None:
    assert steps(AdapterTurns(), 5, [None, "A", "B", "A"]) == ["None", "A", "B", "None", "A"]


def test_a_newcomer_is_next_after_those_who_wait() -> None:
    turns = AdapterTurns()
    assert steps(turns, 1, ["A", "B"]) == ["A"]
    assert steps(turns, 3, ["A", "B", "C"]) == ["B", "A", "C"]


def test_everybody_generates_between_two_steps_that_read() -> None:
    done = steps(AdapterTurns(), 8, [None, "A"], ["B"])
    assert done == ["read B", "None", "A", "read B", "None", "A", "read B", "None"]


def test_alone_it_reads_and_generates_in_turn() -> None:
    assert steps(AdapterTurns(), 4, ["A"], ["A"]) == ["read A", "A", "read A", "A"]


def test_what_is_read_beside_generating_counts_for_both() -> None:
    assert steps(AdapterTurns(), 3, ["A"], ["A"], mixes=True) == ["A, read A"] * 3
    done = steps(AdapterTurns(), 5, ["A", "B"], ["A"], mixes=True)
    assert done == ["A, read A", "B", "A, read A", "B", "A, read A"]


def test_a_turn_may_have_several_steps() -> None:
    turns = AdapterTurns()
    assert "".join(steps(turns, 8, ["A", "B"], most=3)) == "AAABBBAA"
    assert "".join(steps(turns, 4, ["A", "B"], most=2)) == "BBAA", "the turn is over"


def test_while_prompts_wait_a_turn_is_one_step() -> None:
    turns = AdapterTurns()
    assert steps(turns, 1, ["A", "B"], most=3) == ["A"]
    assert steps(turns, 4, ["A", "B"], ["C"], most=3) == ["read C", "B", "A", "read C"]


def test_the_turn_of_one_that_is_gone_is_over() -> None:
    turns = AdapterTurns()
    steps(turns, 1, ["A", "B", "C"], most=3)
    assert "".join(steps(turns, 6, ["B", "C"], most=3)) == "BBBCCC"


def test_alone_one_goes_on_and_a_newcomer_comes_in() -> None:
    turns = AdapterTurns()
    assert "".join(steps(turns, 9, ["A"], most=2)) == "A" * 9
    assert "".join(steps(turns, 7, ["A", "B"], most=2)) == "ABBAABB"


def test_nothing_to_do_is_a_turn_of_nobody() -> None:
    assert AdapterTurns().next([], []) == Turn()


def test_who_is_gone_is_forgotten() -> None:
    turns = AdapterTurns()
    steps(turns, 9, ["A", "B", "C"], ["C"])
    steps(turns, 1, ["B"])
    assert len(turns) == 1


KEYS: list[AdapterKey] = [None, "A", "B", "C", "D"]


@given(
    adapters=st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
    readers=st.lists(st.lists(st.sampled_from(KEYS), max_size=2), min_size=40, max_size=40),
    mixes=st.booleans(),
)
def test_a_stream_waits_for_one_step_of_each_other_adapter_and_one_that_reads(
    adapters: list[AdapterKey], readers: list[list[AdapterKey]], mixes: bool
) -> None:
    turns, others, reads = AdapterTurns(), dict.fromkeys(adapters, 0), dict.fromkeys(adapters, 0)
    for reader in readers:
        (done,) = steps(turns, 1, adapters, reader, mixes=mixes)
        for key in adapters:
            if done.split(",")[0] == str(key):
                others[key] = reads[key] = 0
            elif done.startswith("read"):
                reads[key] += 1
            else:
                others[key] += 1
                reads[key] += "read" in done
        assert max(others.values()) < max(2, len(adapters))
        assert max(reads.values()) <= 1


@pytest.mark.parametrize(("seconds", "steps"), [(0.0001, [16]), (0.005, [4, 5]), (0.2, [1])])
def test_where_a_round_of_adapters_is_short_a_turn_has_several_steps(
    seconds: float, steps: list[int]
) -> None:
    budget = Setting().budget
    assert steps_of_a_turn(budget, [1, 1, 1, 1]) == 1, "what a step takes is not known"
    for _ in range(20):
        budget.cost.observe(num_generating=1, num_prompt_tokens=0, seconds=seconds)
    assert steps_of_a_turn(budget, [1, 1, 1, 1]) in steps


def test_turns_are_longer_where_a_change_of_the_adapter_is_dear() -> None:
    budget = Setting().budget

    def observe(seconds: float, *, changes_adapter: bool) -> None:
        budget.cost.observe(
            num_generating=1,
            num_prompt_tokens=0,
            seconds=seconds,
            changes_adapter=changes_adapter,
        )

    observe(0.010, changes_adapter=True)
    assert steps_of_a_turn(budget, [1] * 8) == 2, "then it is seen what a step takes without"
    for _ in range(20):
        observe(0.002, changes_adapter=False)
        observe(0.010, changes_adapter=True)
    assert steps_of_a_turn(budget, [1] * 8) == 2, "8 changes take 64 of 100 ms"
    assert steps_of_a_turn(budget, [1] * 4) in (8, 9)
    assert steps_of_a_turn(budget, [1] * 30) == 1
