"""An engine without a model, as strict as llama.cpp: it raises where llama.cpp would answer -1.

Its next token is a pure function of everything its slot's cells hold, so the tokens of a sequence
show at once whether cells were mixed up, lost or kept too long.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from arriero.agent.engine.loaded_model import LoadedModel
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Aborted, Decoded, Failed, NoRoom, Outcome, Run, Step
from arriero.shared.messages import ModelInfo

VOCAB_SIZE = 50
END_TOKEN = 0


class RuleBroken(Exception):
    """A step that llama.cpp would refuse, or not survive."""


class FakeVocab:
    """Token `n` stands for the byte after the space; a text for its bytes."""

    size = VOCAB_SIZE
    end_tokens = frozenset({END_TOKEN})
    bos_text = ""
    eos_text = "<end>"

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return tuple(byte % VOCAB_SIZE for byte in text.encode())

    def piece(self, token: int) -> bytes:
        return bytes([32 + token])


def next_token(history: Sequence[int]) -> int:
    """What comes after `history`: a hash of all of it (FNV-1a, then mixed)."""
    value = 2166136261
    for token in history:
        value = (value ^ (token + 1)) * 16777619 % 2**32
    value = (value ^ (value >> 15)) * 0x2C1B3C6D % 2**32
    return (value ^ (value >> 13)) % VOCAB_SIZE


def run_alone(sequence: NewSequence, context_size: int) -> tuple[tuple[int, ...], str]:
    """The tokens that `sequence` gets when nobody else is there, and why it ends."""
    history = list(sequence.prompt)
    limit = context_size
    if sequence.max_tokens is not None:
        limit = min(limit, len(history) + sequence.max_tokens)
    while len(history) < limit:
        token = next_token(history)
        if token == END_TOKEN:
            return tuple(history[len(sequence.prompt) :]), "stop"
        history.append(token)
    return tuple(history[len(sequence.prompt) :]), "length"


class FakeEngine:
    """`num_cells` bounds all slots' cells together. `fail_next` spoils the step that comes next."""

    def __init__(
        self,
        *,
        slots: int = 2,
        context_size: int = 64,
        batch_size: int = 16,
        num_cells: int | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.context_size = context_size
        self.num_cells = slots * context_size if num_cells is None else num_cells
        self.cells: list[list[int]] = [[] for _ in range(slots)]
        self.open_sequences: set[SequenceId] = set()
        self.steps: list[Step] = []
        self.is_freed = False
        self._spoiled: Failed | Aborted | NoRoom | None = None
        self._written = Random(0)
        info = ModelInfo(
            name="fake",
            architecture="fake",
            parameters=0,
            size_bytes=0,
            context_size=context_size,
        )
        self.model = LoadedModel(info, FakeVocab(), None)

    def load(
        self, path: Path, *, slots: int, context_size: int, threads: int, gpu_layers: int
    ) -> "FakeEngine":
        """Stands where a worker loads its engine."""
        return self

    def open(self, sequence: NewSequence) -> None:
        if sequence.id in self.open_sequences:
            raise RuleBroken(f"sequence {sequence.id} is open already")
        self.open_sequences.add(sequence.id)

    def close(self, sequence_id: SequenceId) -> None:
        self.open_sequences.discard(sequence_id)

    def free(self) -> None:
        self.is_freed = True

    def fail_next(self, outcome: Failed | Aborted | NoRoom) -> None:
        """Answer the next step that has runs with `outcome`, after writing some of its cells."""
        self._spoiled = outcome

    def fail_no_more(self) -> None:
        """Take `fail_next` back, if no step has met it."""
        self._spoiled = None

    def execute(self, step: Step) -> Outcome:
        self.steps.append(step)
        for slot in step.clears:
            self.cells[slot].clear()
        if not step.runs:
            return Decoded(())
        self._check(step)
        if self._spoiled is not None:
            outcome, self._spoiled = self._spoiled, None
            self._spoil(step, outcome)
            return outcome
        if sum(map(len, self.cells)) + self._size(step) > self.num_cells:
            return NoRoom()
        for run in step.runs:
            self.cells[run.slot] += run.tokens
        return Decoded(tuple(next_token(self.cells[run.slot]) for run in step.runs if run.samples))

    def _spoil(self, step: Step, outcome: Failed | Aborted | NoRoom) -> None:
        if isinstance(outcome, NoRoom):  # nothing is written then
            return
        for run in step.runs:
            self.cells[run.slot] += run.tokens[: self._written.randint(0, len(run.tokens))]

    def _check(self, step: Step) -> None:
        size = self._size(step)
        if size > self.batch_size:
            raise RuleBroken(f"{size} tokens in a batch of {self.batch_size}")
        if size != step.num_generating + step.num_prompt_tokens:
            raise RuleBroken(f"{size} tokens, announced otherwise: {step}")
        slots = [run.slot for run in step.runs]
        if len(set(slots)) != len(slots):
            raise RuleBroken(f"two runs in one slot: {slots}")
        for run in step.runs:
            self._check_run(run)

    def _check_run(self, run: Run) -> None:
        if not 0 <= run.slot < len(self.cells):
            raise RuleBroken(f"no slot {run.slot}")
        if not run.tokens:
            raise RuleBroken(f"an empty run: {run}")
        if run.start != len(self.cells[run.slot]):
            raise RuleBroken(f"position {run.start} after {len(self.cells[run.slot])} cells")
        if run.start + len(run.tokens) > self.context_size:
            raise RuleBroken(f"beyond the ceiling: {run}")
        if not all(0 <= token < VOCAB_SIZE for token in run.tokens):
            raise RuleBroken(f"a token outside the vocabulary: {run}")

    def _size(self, step: Step) -> int:
        return sum(len(run.tokens) for run in step.runs)
