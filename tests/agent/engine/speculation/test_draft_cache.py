"""The draft model's cache follows sequences, whatever becomes of them."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.agent.engine.prompt import History, Prompt
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.speculation.draft_cache import DraftCache, DraftText, num_alike

ONE, TWO, THREE = SequenceId(0), SequenceId(1), SequenceId(2)


def history(*tokens: int) -> History:
    return History(Prompt(tokens))


def followed(cache: DraftCache, id: SequenceId, *tokens: int) -> DraftText:
    """The text of a sequence, which holds all of it but the last token."""
    text = cache.follow(id, history(*tokens), {id})
    assert text is not None
    num_held = text.reconcile(history(*tokens))
    text.compute(num_held, tokens[num_held:-1])
    return text


def test_of_a_new_sequence_nothing_is_held_and_the_last_token_never() -> None:
    cache = DraftCache(2, 100)
    text = cache.follow(ONE, history(1, 2, 3), {ONE})
    assert text is not None
    assert text.reconcile(history(1, 2, 3)) == 0
    text.compute(0, (1, 2, 3))
    assert text.reconcile(history(1, 2, 3)) == 2


def test_drafted_tokens_are_held_as_far_as_they_were_right() -> None:
    text = followed(DraftCache(1, 100), ONE, 1, 2, 3)
    text.compute(2, (3, 4, 5))
    text.gain(3)
    assert text.reconcile(history(1, 2, 3, 4, 9, 9)) == 4
    assert text.num_gained == 3


def test_after_a_context_shift_all_is_compared_anew() -> None:
    text = followed(DraftCache(1, 100), ONE, 1, 2, 3, 4, 5, 6)
    text.gain(1)
    assert text.reconcile(history(1, 2, 5, 6, 7)) == 2


def test_a_sequence_that_begins_like_one_that_is_over_takes_its_text() -> None:
    cache = DraftCache(3, 100)
    first, second = followed(cache, ONE, 1, 2, 3, 4), followed(cache, TWO, 7, 8, 9)
    cache.detach(ONE)
    cache.detach(TWO)
    cache.detach(THREE)
    text = cache.follow(THREE, history(7, 8, 5), {THREE})
    assert text is not None
    assert (text.slot, text.tokens) == (second.slot, [7, 8])
    assert text.reconcile(history(7, 8, 5)) == 2
    assert first.id is None


def test_a_text_is_taken_from_those_that_are_not_asked_for_now_and_only_from_them() -> None:
    cache = DraftCache(2, 100)
    followed(cache, ONE, 1, 2)
    followed(cache, TWO, 3, 4)
    assert cache.follow(THREE, history(5, 6), {ONE, TWO, THREE}) is None
    assert cache.follow(THREE, history(5, 6), {TWO, THREE}) is not None
    assert cache.find(ONE) is None
    assert cache.find(TWO) is not None


def test_a_sequence_that_takes_a_text_takes_over_what_it_owes() -> None:
    cache = DraftCache(1, 100)
    followed(cache, ONE, 1, 2).debt = 0.5
    text = cache.follow(TWO, history(5, 6), {TWO})
    assert text is not None
    assert text.debt == 0.5


def test_what_was_used_longest_ago_is_evicted_first() -> None:
    cache = DraftCache(3, 10)
    for id, start in ((ONE, 0), (TWO, 10), (THREE, 20)):
        followed(cache, id, *range(start, start + 4))
    assert cache.num_used == 9
    assert cache.evict(1, {ONE, TWO, THREE}) == []
    assert cache.evict(2, {ONE, TWO, THREE}) is None
    evicted = cache.evict(2, {ONE})
    assert evicted is not None
    assert [text.id for text in evicted] == [TWO]
    assert cache.evict(8, {ONE}) is None


def test_how_many_of_the_first_tokens_are_alike() -> None:
    assert num_alike((), (1,)) == 0
    assert num_alike((1, 2, 3), [1, 2, 4, 5]) == 2
    assert num_alike((1, 2), (1, 2, 3)) == 2


class Lives(RuleBasedStateMachine):
    """Sequences grow, shift and end; drafts are right or wrong; what is held is always a prefix."""

    num_cells = 40

    def __init__(self) -> None:
        super().__init__()
        self.cache = DraftCache(2, self.num_cells)
        self.histories: dict[SequenceId, History] = {}
        self.model: dict[int, list[int]] = {0: [], 1: []}
        self.next = 0

    @rule(tokens=st.lists(st.integers(1, 3), min_size=1, max_size=12))
    def begin(self, tokens: list[int]) -> None:
        if len(self.histories) < 3:
            self.histories[SequenceId(self.next)] = history(*tokens)
            self.next += 1

    @rule(pick=st.integers(0, 2), guesses=st.lists(st.integers(1, 3), max_size=4))
    def draft(self, pick: int, guesses: list[int]) -> None:
        id = self.pick(pick)
        text = id is not None and self.cache.follow(id, self.histories[id], {id})
        if id is None or not text:
            return
        now = self.histories[id]
        num_held = text.reconcile(now)
        self.cut(text, num_held)
        assert text.tokens == list(now.tokens[:num_held])
        assert num_held < len(now)
        new = (*now.token_ids(num_held, len(now)), *guesses)
        evicted = self.cache.evict(len(new), {id})
        if evicted is None:
            return
        for other in evicted:
            self.cut(other, 0)
        self.model[text.slot] += new
        text.compute(num_held, new)

    @rule(pick=st.integers(0, 2), tokens=st.lists(st.integers(1, 3), min_size=1, max_size=4))
    def gain(self, pick: int, tokens: list[int]) -> None:
        id = self.pick(pick)
        if id is not None and len(self.histories[id]) < 20:
            self.histories[id].extend(tokens)
            text = self.cache.find(id)
            if text is not None:
                text.gain(len(tokens))

    @rule(pick=st.integers(0, 2), start=st.integers(0, 3), count=st.integers(1, 3))
    def shift(self, pick: int, start: int, count: int) -> None:
        id = self.pick(pick)
        if id is not None and len(self.histories[id]) > start + count:
            self.histories[id].discard(start, count)

    @rule(pick=st.integers(0, 2))
    def end(self, pick: int) -> None:
        id = self.pick(pick)
        if id is not None:
            del self.histories[id]
            self.cache.detach(id)
            self.cache.detach(id)

    @invariant()
    def holds(self) -> None:
        self.cache.check_integrity()
        assert {text.slot: text.tokens for text in self.cache.texts} == self.model

    def cut(self, text: DraftText, length: int) -> None:
        del text.tokens[length:]
        del self.model[text.slot][length:]

    def pick(self, number: int) -> SequenceId | None:
        ids = sorted(self.histories)
        return ids[number % len(ids)] if ids else None


TestLives = Lives.TestCase
TestLives.settings = settings(stateful_step_count=40)
