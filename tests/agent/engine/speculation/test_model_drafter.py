"""A draft model drafts where that pays, and costs next to nothing where it does not."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt import History, Media, Prompt
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.speculation.draft_worth import EARNED, FIRST_LOSS, MOST_LOSS, PROVEN
from arriero.agent.engine.speculation.drafter import DraftRequest, StepPrices
from arriero.agent.engine.speculation.model_drafter import LEVEL, NUM_TRIED, ModelDrafter
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
        self.drafting = 0.0
        """Seconds in the draft model, and for checking what it proposed."""
        self.num_steps = 0
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
        drafting = self.model.now - began + self.token * drafted
        self.drafting += drafting
        self.seconds += STEP + drafting
        self.num_steps += 1
        for id, history in self.histories.items():
            gained = [count_up(history.tokens)]
            for token in proposals[id].tokens if id in proposals else ():
                if token != gained[-1]:
                    break
                gained.append(count_up(gained))
            history.extend(gained)
            if id in proposals:
                cost = self.token * len(proposals[id].tokens)
                saved = STEP / len(self.histories) * (len(gained) - 1)
                self.drafter.checked(id, cost, saved)
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
    sequences.run(60)
    sequences.model.calls.clear()
    assert {id: len(tokens) for id, tokens in sequences.step().items()} == {0: 4, 1: 4}
    assert [len(call) for call in sequences.model.calls] == [2, 2, 2, 2]


def test_before_it_has_shown_what_it_is_good_for_it_guesses_and_no_step_computes_that() -> None:
    sequences = Sequences(FakeDraftModel(), (1, 2))
    while sequences.step() == {}:
        assert sequences.num_steps < 20
    assert len(sequences.model.calls) >= PROVEN


def test_a_good_and_cheap_model_multiplies_the_speed() -> None:
    sequences = Sequences(FakeDraftModel(), (1, 2), (10, 11))
    sequences.run(50)
    assert sequences.run(300) > 4


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.2])
@pytest.mark.parametrize("token", [0.0, 0.05, 0.1])
def test_one_that_is_never_right_costs_next_to_nothing(seconds: float, token: float) -> None:
    sequences = Sequences(FakeDraftModel(guess=wrong, seconds=seconds), (1, 2), token=token)
    sequences.run(200)
    assert sequences.run(1500) > 0.98
    assert not token or sequences.num_drafted == 0, "guesses that nobody computes show enough"


@given(
    st.integers(1, 4),
    st.floats(0.0001, 0.3),
    st.floats(0.0, 0.01),
    st.floats(0.0, 0.3),
    st.floats(0.05, 1.0),
    st.integers(2, 400),
    st.integers(20, 200),
)
def test_one_that_is_never_right_takes_less_than_half_of_three_percent(
    num_sequences: int,
    seconds: float,
    each: float,
    token: float,
    sure: float,
    prompt_length: int,
    answer_length: int,
) -> None:
    """Sequences come and go, with prompts that it would have to read. Of 2,000 steps."""
    model = FakeDraftModel(guess=wrong, seconds=seconds, each=each, sure=sure, num_slots=4)
    prompt = tuple(range(1, prompt_length + 1))
    sequences = Sequences(model, *[prompt] * num_sequences, token=token)
    while sequences.num_steps < 2000:
        if sequences.num_steps % answer_length == 0:
            id = min(sequences.histories)
            del sequences.histories[id]
            sequences.drafter.forget(id)
            start = sequences.num_steps
            fresh = Prompt(tuple(range(start, start + prompt_length)))
            sequences.histories[SequenceId(start + num_sequences)] = History(fresh)
        sequences.step()
        once = 64 * each + 2 * NUM_TRIED * (seconds + LEVEL * num_sequences * each)
        allowed = (FIRST_LOSS + EARNED * sequences.num_steps) * STEP
        assert sequences.drafting <= allowed + once + 1e-6
    assert sequences.drafting <= 0.015 * sequences.seconds


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


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 500), (0.005, 1500), (0.01, 3000)])
def test_one_that_becomes_good_is_found_out(seconds: float, most: int) -> None:
    """Within as many steps as pay for the guesses of about sixty tries."""
    sequences = Sequences(FakeDraftModel(guess=wrong, seconds=seconds), (1, 2), token=0.02)
    sequences.run(1000)
    assert sequences.num_drafted == 0
    sequences.model.guess = count_up
    began = sequences.num_steps
    while sequences.num_drafted < 100:
        sequences.step()
        assert sequences.num_steps < began + most
    sequences.run(50)
    assert sequences.run(300) > 2


def test_a_long_prompt_is_tried_when_enough_was_saved_up_for_it() -> None:
    """Reading it takes three steps, which have to be earned first; then it is good."""
    model = FakeDraftModel(seconds=0.001, each=0.0001, batch_size=500)
    sequences = Sequences(model, tuple(range(1, 3001)))
    sequences.run(800)
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
    sequences.run(5)
    assert {run.slot for call in sequences.model.calls for run in call} == {0}


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
    sequences.run(30)
    assert len(sequences.step()[0]) == 4


def test_what_good_drafts_save_is_not_spent_on_tries() -> None:
    """One answer is easy to guess; in turn with it come prompts that are not worth reading."""
    model = FakeDraftModel(each=0.0004, num_slots=5, batch_size=500)
    sequences = Sequences(model, (1, 2), token=0.01)
    easy = dict(sequences.histories)
    sequences.run(300)
    model.calls.clear()
    num_rounds, num_steps = 40, sequences.num_steps
    for number in range(num_rounds):
        sequences.histories = easy
        sequences.run(40)
        ids = [SequenceId(10 * number + place) for place in range(1, 5)]
        sequences.histories = {id: History(Prompt(tuple(range(id, id + 1800)))) for id in ids}
        for _ in range(20):
            sequences.step()
        for id in ids:
            sequences.drafter.forget(id)
    num_read = sum(len(run.tokens) for call in model.calls for run in call if not run.guesses)
    num_steps = sequences.num_steps - num_steps
    assert num_read * model.each <= (MOST_LOSS + EARNED * num_steps) * STEP < 0.1 * num_rounds
