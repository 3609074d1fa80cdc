"""The scheduler's parts around one roster and one memory, for tests of one part at a time."""

from arriero.agent.engine.capacity import Capacity
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.accounting import Accounting
from arriero.agent.engine.scheduling.planner import Planner
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.scheduling.recovery import Recovery
from arriero.agent.engine.scheduling.state import SchedulerState
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.drafter import Proposal
from arriero.agent.engine.step import Step
from tests.agent.engine.fake_engine import END_TOKEN

CEILING = 64


class Setting:
    """What a scheduler is made of."""

    def __init__(
        self,
        *,
        slots: int = 2,
        num_cells: int = 100,
        can_share: bool = True,
        max_draft: int = 0,
        batch_size: int = 65,
        most_mixed: int = 64,
        holders: int = 8,
        num_streams: int = 0,
        cell_bytes: int = 0,
        max_stall: float = 0.5,
        ceiling: int = CEILING,
        checkpoint_gap: int = 0,
        state_bytes: int = 1,
    ) -> None:
        self.ceiling = ceiling
        self.state = state = SchedulerState(
            slots=slots,
            max_stall=max_stall,
            end_tokens=frozenset({END_TOKEN}),
            capacity=Capacity(
                batch_size=batch_size,
                most_mixed=most_mixed,
                num_cells=num_cells,
                num_holders=holders,
                can_share=can_share and not checkpoint_gap,
                can_shift=can_share and not checkpoint_gap,
                most_parked=1000,
                max_draft=max_draft,
                most_scored=8,
                num_streams=num_streams,
                cell_bytes=cell_bytes,
                checkpoint_gap=checkpoint_gap,
                state_bytes=state_bytes,
            ),
        )
        self.queue, self.memory, self.tally = state.queue, state.memory, state.tally
        self.budget = state.budget
        self.planner = Planner(state)
        self.prefill = self.planner.prefill
        self.recovery = Recovery(state)
        self.accounting = Accounting(state)

    def plan(self) -> Step:
        """The next step, for which nothing is proposed."""
        return self.planner.plan({})

    def plan_with(self, *tokens: int, chance: float = 1.0) -> Step:
        """The next step; each sequence surely goes on with `tokens`, as far as they fit."""
        proposal = Proposal(tokens, (chance,) * len(tokens))
        return self.planner.plan(
            {one.id: proposal.first(one.most) for one in self.planner.draft_requests()}
        )

    def add(
        self,
        number: int,
        *prompt: int,
        max_tokens: int | None = None,
        priority: int = 0,
        stored: StoredPrompt | None = None,
        scores_prompt: bool = False,
        adapter: str | None = None,
    ) -> Progress:
        """A sequence that waits."""
        sequence = NewSequence(
            id=SequenceId(number),
            prompt=Prompt(prompt, adapter=adapter),
            max_tokens=max_tokens,
            sampling=Sampling(seed=0),
            priority=priority,
            stored=stored,
            scores_prompt=scores_prompt,
        )
        one = Progress(sequence, arrival=number, ceiling=self.ceiling)
        self.queue.wait(one)
        return one
