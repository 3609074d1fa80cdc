"""What llama.cpp sees of a filled batch."""

from arriero.agent.engine.llama.context import Batch
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Run


def seen(batch: Batch) -> list[tuple[int, int, list[int], bool]]:
    raw = batch.raw
    return [
        (
            raw.token[i],
            raw.pos[i],
            [raw.seq_id[i][k] for k in range(raw.n_seq_id[i])],
            bool(raw.logits[i]),
        )
        for i in range(raw.n_tokens)
    ]


def test_runs_are_laid_out_one_after_the_other() -> None:
    batch = Batch(8)
    batch.fill(
        [
            Run(SequenceId(1), 3, 7, (40,), True),
            Run(SequenceId(2), 0, 0, (50, 51), False),
            Run(SequenceId(3), 1, 2, (60, 61), True),
        ]
    )
    assert seen(batch) == [
        (40, 7, [3], True),
        (50, 0, [0], False),
        (51, 1, [0], False),
        (60, 2, [1], False),
        (61, 3, [1], True),
    ]


def test_nothing_is_left_of_the_batch_before() -> None:
    batch = Batch(4)
    batch.fill([Run(SequenceId(1), 0, 0, (1, 2, 3, 4), True)])
    batch.fill([Run(SequenceId(2), 1, 5, (9, 8), False)])
    assert seen(batch) == [(9, 5, [1], False), (8, 6, [1], False)]


def test_the_logits_before_each_drafted_token_are_asked_for() -> None:
    batch = Batch(8)
    batch.fill([Run(SequenceId(1), 0, 3, (5, 6, 7), True, 2), Run(SequenceId(2), 1, 0, (8,), True)])
    assert seen(batch) == [
        (5, 3, [0], True),
        (6, 4, [0], True),
        (7, 5, [0], True),
        (8, 0, [1], True),
    ]
    batch.fill([Run(SequenceId(1), 0, 0, (4, 5, 6), True, 1)])
    assert [wanted for *_, wanted in seen(batch)] == [False, True, True]


def test_the_logits_before_each_scored_token_are_asked_for() -> None:
    batch = Batch(8)
    batch.fill(
        [
            Run(SequenceId(1), 0, 3, (5, 6, 7), False, scored=(7, 8), first_scored=1),
            Run(SequenceId(2), 1, 0, (4, 5, 6), True, scored=(5, 6)),
        ]
    )
    assert [wanted for *_, wanted in seen(batch)] == [False, True, True, True, True, True]
