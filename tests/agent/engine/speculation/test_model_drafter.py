"""A draft model drafts where that pays, and costs next to nothing where it does not."""

from random import Random

import pytest

from arriero.agent.engine.prompt import History, Media, Prompt
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.speculation.drafter import DraftRequest, StepPrices
from arriero.agent.engine.speculation.model_drafter import ModelDrafter
from tests.agent.engine.speculation.fake_draft_model import END, FakeDraftModel, count_up

STEP = 0.1


class Sequences:
    """Sequences that count up; each step takes what was right of the proposals."""

    def __init__(self, model: FakeDraftModel, *prompts: tuple[int, ...], token: float = 0.0):
        self.model = model
        self.drafter = ModelDrafter(model, clock=model.clock)
        self.histories = {
            SequenceId(number): History(Prompt(prompt)) for number, prompt in enumerate(prompts)
        }
        self.token = token
        self.seconds = 0.0
        self.num_drafted = 0
        self.most = 1.0

    def prices(self) -> StepPrices:
        return StepPrices(STEP, self.token, len(self.histories), self.most)

    def step(self) -> dict[int, tuple[int, ...]]:
        """What was proposed, by sequence."""
        began = self.model.now
        requests = [DraftRequest(id, one, 4) for id, one in self.histories.items()]
        proposals = self.drafter.propose(requests, self.prices())
        drafted = sum(len(proposal.tokens) for proposal in proposals.values())
        self.num_drafted += drafted
        self.seconds += self.model.now - began + STEP + self.token * drafted
        for id, history in self.histories.items():
            gained = [count_up(history.tokens)]
            for token in proposals[id].tokens if id in proposals else ():
                if token != gained[-1]:
                    break
                gained.append(count_up(gained))
            history.extend(gained)
            self.drafter.observe(id, gained)
        return {id: proposal.tokens for id, proposal in proposals.items()}

    def run(self, num_tokens: int) -> float:
        """Until each sequence has so many; the tokens a second, in those of plain steps."""
        before = {id: len(history) for id, history in self.histories.items()}
        began = self.seconds
        while any(len(one) < before[id] + num_tokens for id, one in self.histories.items()):
            self.step()
        gained = sum(len(one) - before[id] for id, one in self.histories.items())
        return gained / len(before) * STEP / (self.seconds - began)


def wrong(tokens: object) -> int:
    return 7


def test_all_sequences_are_drafted_for_in_one_batch_a_token() -> None:
    sequences = Sequences(FakeDraftModel(), (1, 2), (10, 11))
    assert sequences.step() == {0: (3, 4), 1: (12, 13)}, "the first drafts are short"
    assert [len(call) for call in sequences.model.calls] == [2, 2]
    sequences.run(60)
    assert all(len(tokens) == 4 for tokens in sequences.step().values())


def test_a_good_and_cheap_model_multiplies_the_speed() -> None:
    assert Sequences(FakeDraftModel(), (1, 2), (10, 11)).run(300) > 4


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.2])
@pytest.mark.parametrize("token", [0.0, 0.05, 0.1])
def test_one_that_is_never_right_costs_next_to_nothing(seconds: float, token: float) -> None:
    sequences = Sequences(FakeDraftModel(guess=wrong, seconds=seconds), (1, 2), token=token)
    sequences.run(200)
    assert sequences.run(1500) > 0.98
    assert not token or sequences.num_drafted < 200


@pytest.mark.parametrize("seconds", [0.1, 0.5])
def test_one_that_is_too_slow_costs_next_to_nothing(seconds: float) -> None:
    sequences = Sequences(FakeDraftModel(seconds=seconds), (1, 2), token=0.01)
    sequences.run(200)
    assert sequences.run(1500) > 0.98


def test_one_that_was_good_and_is_not_any_more_is_given_up_soon() -> None:
    sequences = Sequences(FakeDraftModel(), (1, 2), token=0.02)
    sequences.run(300)
    sequences.model.guess = wrong
    num_drafted = sequences.num_drafted
    assert sequences.run(1000) > 0.97
    assert sequences.num_drafted < num_drafted + 150


def test_one_that_becomes_good_is_found_out() -> None:
    sequences = Sequences(FakeDraftModel(guess=wrong), (1, 2), token=0.02)
    sequences.run(500)
    sequences.model.guess = count_up
    sequences.run(1500)
    assert sequences.run(300) > 2


def test_drafts_end_where_the_next_token_is_unlikely() -> None:
    """Every third token is a surprise, and the model knows it."""
    model = FakeDraftModel()
    sequences = Sequences(model, (1, 2), token=0.03)

    def guess(tokens: list[int]) -> int:
        model.sure = 0.05 if tokens[-1] % 3 == 0 else 0.97
        return -1 if tokens[-1] % 3 == 0 else tokens[-1] + 1

    model.guess = guess  # type: ignore[assignment]
    sequences.run(300)
    lengths = {len(tokens) for _ in range(30) for tokens in sequences.step().values()}
    assert 1 < max(lengths) < 4


def test_a_long_prompt_is_caught_up_with_in_chunks_and_no_longer_than_allowed() -> None:
    model = FakeDraftModel(seconds=0.0, each=0.0001, batch_size=40)
    sequences = Sequences(model, tuple(range(1, 401)))
    sequences.most = 0.002
    while not sequences.step():
        assert len(sequences.histories[SequenceId(0)]) < 500
    sizes = [sum(len(run.tokens) for run in call) for call in model.calls]
    assert max(sizes) == 40, "the first, whose cost nobody knew"
    assert sorted(sizes)[-3] <= 20


def test_streams_wait_for_nothing_while_prompts_are_read() -> None:
    sequences = Sequences(FakeDraftModel(), (1, 2))
    sequences.most = 0.0
    assert sequences.step() == {}
    assert sequences.model.calls == []


def test_nothing_is_drafted_after_an_end_token_nor_beside_media() -> None:
    ending = Sequences(FakeDraftModel(guess=lambda tokens: END), (1, 2))
    assert ending.step() == {}
    assert len(ending.model.calls) == 1
    image = Sequences(FakeDraftModel())
    image.histories[SequenceId(0)] = History(Prompt(Media(b"digest", 3), (1, 2)))
    assert image.step() == {}


def test_sequences_that_are_too_long_for_the_model_go_without() -> None:
    sequences = Sequences(FakeDraftModel(longest=10), (1, 2), tuple(range(3, 13)))
    assert list(sequences.step()) == [0]


def test_it_follows_through_churn_shifts_and_few_cells() -> None:
    """The fake model checks that each run goes on where its slot ends."""
    draw = Random(3)
    model = FakeDraftModel(num_slots=3, num_cells=120, batch_size=32)
    sequences = Sequences(model, (1, 2), (50, 51, 52), token=0.01)
    number = 10
    for _ in range(600):
        sequences.step()
        id = draw.choice(list(sequences.histories))
        match draw.randrange(6):
            case 0:
                del sequences.histories[id]
                sequences.drafter.forget(id)
                start = draw.randrange(100)
                prompt = tuple(range(start, start + draw.randint(1, 30)))
                sequences.histories[SequenceId(number)] = History(Prompt(prompt))
                number += 1
            case 1 if len(sequences.histories[id]) > 20:
                sequences.histories[id].discard(2, 10)
            case 2 if len(sequences.histories) < 5:
                sequences.histories[SequenceId(number)] = History(Prompt((number,)))
                number += 1
            case 3 if len(sequences.histories) > 2:
                del sequences.histories[id]
                sequences.drafter.forget(id)
    assert sequences.num_drafted > 100


def test_unknown_sequences_are_ignored() -> None:
    sequences = Sequences(FakeDraftModel(), (1, 2))
    sequences.drafter.observe(SequenceId(9), (1,))
    sequences.drafter.forget(SequenceId(9))
    assert sequences.step() == {0: (3, 4)}
