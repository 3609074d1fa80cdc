"""The scheduler's parts around one roster and one memory, for tests of one part at a time."""

from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.accounting import Accounting
from arriero.agent.engine.scheduling.background import Background
from arriero.agent.engine.scheduling.exports import Exports
from arriero.agent.engine.scheduling.planner import Planner
from arriero.agent.engine.scheduling.prefill_budget import PrefillBudget
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.scheduling.prompt_reading import PromptReading
from arriero.agent.engine.scheduling.queue import SequenceQueue
from arriero.agent.engine.scheduling.recovery import Recovery
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.drafter import Proposal
from arriero.agent.engine.speculation.speculation import Speculation
from arriero.agent.engine.statistics import Tally
from arriero.agent.engine.step import Step
from arriero.agent.engine.turns.step_mode import StepMode
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
        most_mixed: int = 64,
        holders: int = 8,
    ) -> None:
        self.queue = SequenceQueue(slots)
        self.memory = UnifiedMemory(
            slots=slots, holders=holders, num_cells=num_cells, can_share=can_share, most_parked=1000
        )
        self.tally = Tally()
        self.budget = budget = PrefillBudget(batch_size=64, max_stall=0.5)
        end_tokens = frozenset({END_TOKEN})
        speculation = Speculation(most=max_draft, cost=budget.cost, end_tokens=end_tokens)
        step_mode = StepMode(most_mixed)
        self.background = Background(0.5, may_pause=True, may_stop=can_share)
        self.prompts = PromptReading(
            self.queue,
            self.memory,
            budget,
            step_mode,
            self.background,
            self.tally,
            most_scored=8,
        )
        self.planner = Planner(
            self.queue,
            self.memory,
            budget,
            speculation,
            step_mode,
            self.tally,
            self.background,
            Exports(self.memory),
            self.prompts,
        )
        self.recovery = Recovery(self.queue, self.memory, self.planner, self.tally)
        self.accounting = Accounting(
            self.queue,
            self.memory,
            budget,
            self.tally,
            end_tokens=end_tokens,
            can_shift=can_share,
        )

    def plan(self) -> Step:
        """The next step, for which nothing is proposed."""
        return self.planner.plan({})

    def plan_with(self, *tokens: int, chance: float = 1.0) -> Step:
        """The next step; whoever is asked for is surely going on with `tokens`, as many as fit."""
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
        save_as: str | None = None,
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
            save_as=save_as,
            scores_prompt=scores_prompt,
        )
        one = Progress(sequence, arrival=number, ceiling=CEILING)
        self.queue.wait(one)
        return one
