"""A draft model that keeps the rules of llama.cpp's cells, and takes time by its own clock."""

from collections.abc import Callable, Sequence

from arriero.agent.engine.draft_model import DraftRun, Guess

END = 0


def count_up(tokens: Sequence[int]) -> int:
    """What both models say: one more than before."""
    return tokens[-1] + 1


class FakeDraftModel:
    """After some tokens it guesses `guess(tokens)`, and is `sure` of it.

    A batch takes `seconds`, and `each` for every token.
    """

    end_tokens = frozenset({END})

    def __init__(
        self,
        *,
        num_slots: int = 2,
        num_cells: int = 20_000,
        batch_size: int = 64,
        longest: int = 20_000,
        guess: Callable[[Sequence[int]], int] = count_up,
        sure: float = 0.9,
        seconds: float = 0.001,
        each: float = 0.0,
    ) -> None:
        self.num_slots = num_slots
        self.num_cells = num_cells
        self.batch_size = batch_size
        self.longest = longest
        self.guess = guess
        self.sure = sure
        self.seconds = seconds
        self.each = each
        self.now = 0.0
        self.held: list[list[int]] = [[] for _ in range(num_slots)]
        self.calls: list[tuple[DraftRun, ...]] = []

    def clock(self) -> float:
        return self.now

    def compute(self, runs: Sequence[DraftRun]) -> list[Guess]:
        self.calls.append(tuple(runs))
        num_tokens = sum(len(run.tokens) for run in runs)
        assert 0 < num_tokens <= self.batch_size
        assert len({run.slot for run in runs}) == len(runs)
        for run in runs:
            assert run.start == len(self.held[run.slot])
            self.held[run.slot] += run.tokens
        assert sum(map(len, self.held)) <= self.num_cells
        self.now += self.seconds + self.each * num_tokens
        return [Guess(self.guess(self.held[run.slot]), self.sure) for run in runs if run.guesses]

    def cut(self, slot: int, length: int) -> None:
        assert length < len(self.held[slot])
        del self.held[slot][length:]
