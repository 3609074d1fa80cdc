"""What the next step computes. More of it is in the scheduler's tests."""

from arriero.agent.engine.memory import Memory
from arriero.agent.engine.planner import Planner
from arriero.agent.engine.progress import Progress
from arriero.agent.engine.prompt_budget import PromptBudget
from arriero.agent.engine.roster import Roster
from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.statistics import Tally
from arriero.agent.engine.step import Clear, Run, Step


class Setup:
    """A planner, what it works on, and a step that always works."""

    def __init__(self, *, slots: int = 2, num_cells: int = 100) -> None:
        self.roster = Roster(slots)
        self.memory = Memory(
            slots=slots, holders=8, num_cells=num_cells, can_share=True, keep_for=1000
        )
        budget = PromptBudget(batch_size=64, max_stall=0.5)
        self.planner = Planner(self.roster, self.memory, budget, Tally())

    def add(self, number: int, *prompt: int, priority: int = 0) -> Progress:
        sequence = NewSequence(
            id=SequenceId(number),
            prompt=prompt,
            max_tokens=None,
            sampling=Sampling(seed=0),
            priority=priority,
        )
        one = Progress(sequence, arrival=number, ceiling=100)
        self.roster.wait(one)
        return one

    def step(self) -> Step:
        step = self.planner.plan()
        for run in step.runs:
            one = self.roster.running[run.slot]
            self.memory.grow(run.slot, len(run.tokens))
            one.read(len(run.tokens), None)
            if run.samples:
                one.extend(7, 0.0)
        return step


def test_generating_sequences_come_first() -> None:
    setup = Setup()
    setup.add(1, 5)
    setup.step()
    setup.add(2, 6, 6)
    step = setup.step()
    assert step.runs == (
        Run(SequenceId(1), 1, 1, (7,), True),
        Run(SequenceId(2), 0, 0, (6, 6), True),
    )
    assert (step.num_generating, step.num_prompt_tokens) == (1, 2)


def test_who_is_last_by_rank_makes_room() -> None:
    setup = Setup(num_cells=30)
    first, second = setup.add(1, *[5] * 10, priority=1), setup.add(2, *[6] * 4)
    first_slot = 1
    setup.memory.lower_limit(14)
    for one in (first, second):  # as if there had been room for both
        slot = setup.roster.begin(one)
        setup.memory.enter(slot, one.history, setup.memory.find(one.history, 1))
    setup.step()
    assert setup.memory.num_available == 0
    step = setup.step()
    assert [run.slot for run in step.runs] == [first_slot]
    assert Clear(0) in step.edits
    assert setup.roster.waiting == [second]
    assert second.num_computed == 0
