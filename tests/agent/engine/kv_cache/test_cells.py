"""Counting cells that several holders share."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.agent.engine.kv_cache.cells import Cells

SLOTS = 3
HOLDERS = 6


def test_shared_cells_count_once() -> None:
    cells = Cells(slots=2)
    cells.grow(0, 10)
    cells.share(0, 1, 6)
    cells.grow(1, 3)
    assert (cells.num_used, cells.length(0), cells.length(1)) == (13, 10, 9)
    cells.close(0)
    assert (cells.num_used, cells.num_in_use) == (9, 9)
    cells.close(1)
    assert (cells.num_used, cells.num_in_use) == (0, 0)


def test_what_only_a_kept_prefix_has_is_not_in_use() -> None:
    cells = Cells(slots=2)
    cells.grow(0, 10)
    cells.share(0, 2, 8)
    cells.close(0)
    assert (cells.num_used, cells.num_in_use) == (8, 0)
    cells.share(2, 1, 5)
    assert (cells.num_used, cells.num_in_use) == (8, 5)
    assert cells.num_not_in_use(2, 8) == 3
    cells.truncate(2, 6)
    assert (cells.num_used, cells.num_in_use) == (6, 5)


def test_cells_move_up_only_where_nobody_else_has_them() -> None:
    cells = Cells(slots=2)
    cells.grow(0, 10)
    cells.share(0, 1, 4)
    assert cells.is_alone(0, 4)
    assert not cells.is_alone(0, 3)
    cells.discard(0, 4, 2)
    assert (cells.length(0), cells.num_used) == (8, 8)
    with pytest.raises(ValueError, match="slot 0 cannot discard 2 cells from 3 on"):
        cells.discard(0, 3, 2)


def test_mistakes() -> None:
    cells = Cells(slots=2)
    cells.grow(0, 3)
    with pytest.raises(ValueError, match="has 3 cells, not 4"):
        cells.share(0, 1, 4)
    cells.share(0, 1, 2)
    with pytest.raises(ValueError, match="holder 1 has cells already"):
        cells.share(0, 1, 2)


class Machine(RuleBasedStateMachine):
    """Against lists of cells that are what they are."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells(slots=SLOTS)
        self.model: dict[int, list[object]] = {holder: [] for holder in range(HOLDERS)}

    @rule(slot=st.integers(0, SLOTS - 1), count=st.integers(0, 5))
    def grow(self, slot: int, count: int) -> None:
        self.cells.grow(slot, count)
        self.model[slot] += [object() for _ in range(count)]

    @rule(source=st.integers(0, HOLDERS - 1), holder=st.integers(0, HOLDERS - 1), data=st.data())
    def share(self, source: int, holder: int, data: st.DataObject) -> None:
        if source == holder or self.model[holder] or not self.model[source]:
            return
        length = data.draw(st.integers(1, len(self.model[source])))
        self.cells.share(source, holder, length)
        self.model[holder] = self.model[source][:length]

    @rule(holder=st.integers(0, HOLDERS - 1), data=st.data())
    def truncate(self, holder: int, data: st.DataObject) -> None:
        if self.model[holder]:
            length = data.draw(st.integers(0, len(self.model[holder])))
            self.cells.truncate(holder, length)
            del self.model[holder][length:]

    @rule(holder=st.integers(0, HOLDERS - 1))
    def close(self, holder: int) -> None:
        self.cells.close(holder)
        self.model[holder] = []

    @rule(slot=st.integers(0, SLOTS - 1), data=st.data())
    def discard(self, slot: int, data: st.DataObject) -> None:
        own = self.model[slot]
        if not own:
            return
        start = data.draw(st.integers(0, len(own) - 1))
        count = data.draw(st.integers(1, len(own) - start))
        others = {cell for holder in self.model if holder != slot for cell in self.model[holder]}
        is_alone = not others & {*own[start:]}
        assert self.cells.is_alone(slot, start) == is_alone
        if is_alone:
            self.cells.discard(slot, start, count)
            del own[start : start + count]

    @invariant()
    def counts(self) -> None:
        self.cells.check_integrity()
        used = {cell for own in self.model.values() for cell in own}
        in_use = {cell for slot in range(SLOTS) for cell in self.model[slot]}
        assert self.cells.num_used == len(used)
        assert self.cells.num_in_use == len(in_use)
        for holder, own in self.model.items():
            assert self.cells.length(holder) == len(own)
            if own:
                assert self.cells.num_not_in_use(holder, len(own)) == len({*own} - in_use)
                others = (self.model[other] for other in self.model if other != holder)
                num_alone = len({*own}.difference(*others))
                assert self.cells.num_alone(holder) == num_alone
                assert (holder in self.cells.kept_alone) == (num_alone > 0 and holder >= SLOTS)


TestAnyHistory = Machine.TestCase
TestAnyHistory.settings = settings(stateful_step_count=30)
