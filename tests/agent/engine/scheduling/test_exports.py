"""Prefixes that are handed out: what is read when, and what comes of it."""

from arriero.agent.engine.cost.move_cost import MoveCost
from arriero.agent.engine.kv_cache.allowance import MOST_IN_PIECE
from arriero.agent.engine.kv_cache.checkpoint_memory import CheckpointMemory
from arriero.agent.engine.kv_cache.greedy_dual import GreedyDual
from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed
from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt, StoredState
from arriero.agent.engine.scheduling.exports import Exported, ExportId, Exports
from arriero.agent.engine.step import Edit, Free, Offload, OffloadState, ReadOut

ONE, TWO = ExportId(1), ExportId(2)


def memory_with(*tokens: int, num_cells: int = 4000) -> UnifiedMemory:
    """A slot has computed these."""
    memory = UnifiedMemory(
        slots=2, holders=8, num_cells=num_cells, policy=LeastRecentlyUsed(), most_parked=1000
    )
    memory.enter(0, list(tokens), memory.find(tokens, 0))
    memory.grow(0, len(tokens))
    return memory


def over(memory: UnifiedMemory) -> Exports:
    return Exports(memory, MoveCost(1))


def planned(exports: Exports, num_streaming: int = 0, now: float = 0.0) -> list[tuple[int, int]]:
    """Where the parts begin that the next step reads, and how many cells they have."""
    return parts(exports.plan(num_streaming, now))


def parts(edits: tuple[Edit, ...]) -> list[tuple[int, int]]:
    return [(edit.start, edit.count) for edit in edits if isinstance(edit, Offload)]


def test_the_longest_beginning_is_read_and_nothing_else() -> None:
    exports = over(memory_with(1, 2, 3, 4))
    assert exports.is_idle
    exports.add(ONE, Prompt((1, 2, 3, 9)), HandOut())
    assert not exports.is_idle
    assert planned(exports) == [(0, 3)]
    exports.read((b"state",))
    whole = StoredPrompt(Prompt((1, 2, 3)), (Piece(3, b"state"),))
    # Only the next look shows that there is no more.
    planned(exports)
    exports.read(())
    assert exports.take() == [Exported(ONE, whole)]
    assert exports.take() == []
    assert exports.is_idle


def test_one_comes_after_the_other_and_comes_last_in_a_step() -> None:
    exports = over(memory_with(1, 2))
    exports.add(ONE, Prompt((1, 2)), HandOut())
    exports.add(TWO, Prompt((7,)), HandOut())
    planned(exports)
    exports.read((b"saved", b"state"))
    assert exports.take() == [Exported(ONE, StoredPrompt(Prompt((1, 2)), (Piece(2, b"state"),)))]
    planned(exports)
    exports.read(())
    assert exports.take() == [Exported(TWO, None)]


def checkpoints(*lengths: int, gap: int = 1) -> CheckpointMemory:
    """Prompts of these lengths, of which all tokens are 1, were computed one after the other."""
    memory = CheckpointMemory(
        slots=1,
        holders=8,
        num_cells=50,
        policy=GreedyDual(),
        gap=gap,
        most_parked=1000,
        block=4,
        state_bytes=2,
    )
    for length in lengths:
        keys = [1] * length
        found = memory.find(keys, length - 1)
        memory.enter(0, keys, found)
        memory.grow(0, length - found.length)
        memory.leave(0)
    return memory


def test_a_checkpoint_is_handed_out_with_its_blocks() -> None:
    exports = Exports(checkpoints(6), MoveCost(1))
    exports.add(ONE, Prompt((1,) * 6 + (9,)), HandOut())
    edits = exports.plan(0, 0.0)
    assert [type(edit) for edit in edits if not isinstance(edit, ReadOut | Free)] == [
        *(Offload, Offload, OffloadState)
    ]
    exports.read((b"block", b"tail", b"state"))
    whole = StoredPrompt(
        Prompt((1,) * 6), (Piece(4, b"block"),), checkpoints=(StoredState(6, b"tail", b"state"),)
    )
    assert exports.take() == [Exported(ONE, whole)]
    exports.add(TWO, Prompt((1,) * 6 + (9,)), HandOut())
    planned(exports)
    exports.read((b"block", b"", b"state"))
    assert exports.take() == [Exported(TWO, None)], "a block could not be read"


def test_several_checkpoints_are_handed_out_the_shortest_first() -> None:
    exports = Exports(checkpoints(3, 6, 9), MoveCost(1))
    exports.add(ONE, Prompt((1,) * 9), HandOut(most_checkpoints=2))
    planned(exports)
    exports.read((b"one", b"two", b"tail 6", b"6", b"tail 9", b"9"))
    [exported] = exports.take()
    states = (StoredState(6, b"tail 6", b"6"), StoredState(9, b"tail 9", b"9"))
    pieces = (Piece(4, b"one"), Piece(4, b"two"))
    assert exported.prefix == StoredPrompt(Prompt((1,) * 9), pieces, checkpoints=states)
    exports.add(TWO, Prompt((1,) * 9), HandOut(most_checkpoints=9))
    planned(exports)
    exports.read((b"one", b"two", *[b"x"] * 6))
    planned(exports)
    exports.read(())
    [exported] = exports.take()
    assert exported.prefix is not None
    assert [one.length for one in exported.prefix.checkpoints] == [3, 6, 9], "all there are"


def test_of_a_checkpoint_that_goes_meanwhile_the_one_before_is_left() -> None:
    memory = checkpoints(6, 12)
    exports = Exports(memory, MoveCost(1))
    exports.add(ONE, Prompt((1,) * 12), HandOut())
    memory.allowance.renew(8, most_whole=2)
    assert planned(exports) == [(0, 4), (4, 4)]
    exports.read((b"one", b"two"))
    source = memory.find([1] * 12, 12).source
    assert source is not None
    memory.lose(source)
    memory.allowance.renew(100)
    planned(exports)
    exports.read((b"tail", b"state"))
    [exported] = exports.take()
    states = (StoredState(6, b"tail", b"state"),)
    assert exported.prefix == StoredPrompt(
        Prompt((1,) * 6), (Piece(4, b"one"),), checkpoints=states
    )


def test_a_long_one_is_read_in_pieces_and_beside_streams_in_several_steps() -> None:
    tokens = tuple(range(1, 2 * MOST_IN_PIECE + 11))
    memory = memory_with(*tokens)
    exports = over(memory)
    exports.add(ONE, Prompt(tokens), HandOut())
    memory.allowance.renew(float("inf"))
    assert [count for _, count in planned(exports)] == [MOST_IN_PIECE, MOST_IN_PIECE, 10]
    memory.allowance.renew(100)
    assert planned(exports) == [(0, 100)]
    exports.read((b"a",))
    memory.allowance.renew(100)
    assert planned(exports) == [(100, 100)]


def test_a_step_that_came_to_nothing_is_planned_again() -> None:
    exports = over(memory_with(1, 2))
    exports.add(ONE, Prompt((1, 2)), HandOut())
    assert planned(exports) == planned(exports) == [(0, 2)]


def test_it_ends_with_what_could_be_read() -> None:
    memory = memory_with(*range(1, 301))
    exports = over(memory)
    exports.add(ONE, Prompt(tuple(range(1, 301))), HandOut())
    memory.allowance.renew(100)
    planned(exports)
    exports.read((b"a",))
    memory.allowance.renew(100)
    planned(exports)
    exports.read((b"",))
    first = StoredPrompt(Prompt(tuple(range(1, 101))), (Piece(100, b"a"),))
    assert exports.take() == [Exported(ONE, first)]


def test_what_leaves_the_cache_meanwhile_is_missing() -> None:
    memory = memory_with(*range(1, 301))
    exports = over(memory)
    exports.add(ONE, Prompt(tuple(range(1, 301))), HandOut())
    memory.allowance.renew(100)
    planned(exports)
    exports.read((b"a",))
    memory.leave(0, keeps=False)
    planned(exports)
    exports.read(())
    [exported] = exports.take()
    assert exported.prefix is not None and len(exported.prefix.prompt) == 100


def test_one_that_is_withdrawn_is_read_no_further_and_the_next_is_read() -> None:
    memory = memory_with(*range(1, 301))
    exports = over(memory)
    exports.add(ONE, Prompt(tuple(range(1, 301))), HandOut())
    exports.add(TWO, Prompt((1, 2)), HandOut())
    memory.allowance.renew(100)
    planned(exports)
    exports.read((b"a",))
    exports.withdraw(ONE)
    memory.allowance.renew(100)
    assert planned(exports) == [(0, 2)]
    exports.read((b"b",))
    assert exports.take() == [Exported(TWO, StoredPrompt(Prompt((1, 2)), (Piece(2, b"b"),)))]
    assert exports.is_idle


def test_one_that_was_read_may_be_withdrawn_too() -> None:
    exports = over(memory_with(1, 2))
    exports.add(ONE, Prompt((1, 2)), HandOut())
    planned(exports)
    exports.read((b"a",))
    exports.withdraw(ONE)
    exports.withdraw(TWO)
    assert exports.take() == []
    assert exports.is_idle


class TestWhatCanWait:
    """It goes to disk: nobody waits for it."""

    TOKENS = tuple(range(1, 301))

    def exports(self, *, are_whole: bool = False) -> tuple[UnifiedMemory, Exports, MoveCost]:
        memory, moves = memory_with(*self.TOKENS), MoveCost(1)
        return memory, Exports(memory, moves, are_whole=are_whole), moves

    def test_it_begins_where_it_is_asked_to(self) -> None:
        _, exports, _ = self.exports()
        exports.add(ONE, Prompt(self.TOKENS), HandOut(200), can_wait=True)
        planned(exports)
        exports.read((b"rest",))
        (exported,) = exports.take()
        assert exported.prefix == StoredPrompt(Prompt(self.TOKENS), (Piece(100, b"rest"),), 200)

    def test_it_comes_after_what_cannot(self) -> None:
        _, exports, _ = self.exports()
        exports.add(ONE, Prompt(self.TOKENS), HandOut(), can_wait=True)
        exports.add(TWO, Prompt((1, 2)), HandOut())
        assert planned(exports) == [(0, 2)]

    def test_beside_streams_it_takes_a_small_part_of_the_time(self) -> None:
        memory, exports, moves = self.exports()
        moves.observe(100, 0.5)
        exports.add(ONE, Prompt(self.TOKENS), HandOut(), can_wait=True)
        memory.allowance.renew(100)
        assert planned(exports, 1, 7.0) == [(0, 100)]
        exports.read((b"a",))
        memory.allowance.renew(100)
        assert exports.plan(1, 11.9) == ()
        assert planned(exports, 1, 12.1) == [(100, 100)]

    def test_nor_does_a_checkpoint(self) -> None:
        memory, moves = checkpoints(8), MoveCost(1)
        moves.observe(4, 0.5)
        exports = Exports(memory, moves)
        exports.add(ONE, Prompt((1,) * 9), HandOut(), can_wait=True)
        memory.allowance.renew(4)
        assert planned(exports, 1, 7.0) == [(0, 4)]
        exports.read((b"block",))
        memory.allowance.renew(4)
        assert exports.plan(1, 11.9) == ()
        assert planned(exports, 1, 12.1) == [(4, 4)]

    def test_where_nobody_streams_it_does_not_wait(self) -> None:
        memory, exports, moves = self.exports()
        moves.observe(100, 0.5)
        exports.add(ONE, Prompt(self.TOKENS), HandOut(), can_wait=True)
        memory.allowance.renew(100)
        planned(exports, 1, 7.0)
        exports.read((b"a",))
        memory.allowance.renew(100)
        assert planned(exports, 0, 7.1) == [(100, 100)]

    def test_of_whole_states_nothing_is_read_beside_streams(self) -> None:
        _, exports, _ = self.exports(are_whole=True)
        exports.add(ONE, Prompt(self.TOKENS), HandOut(), can_wait=True)
        assert exports.plan(1, 0.0) == ()
        assert exports.plan(0, 0.0) != ()
        assert not exports.is_idle
