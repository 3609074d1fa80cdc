"""What a step computes of one sequence."""

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.scheduling.runs import chunk_run, next_run
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Run

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
