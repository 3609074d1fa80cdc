"""Files on disk, and the keys of prefixes that need them."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt_store.known_files import KnownFiles

A, B, CHECKPOINT = "t-a", "t-b", "t-a-5-c"


def nowhere(key: int) -> bool:
    return False


def known(*names: str, max_keys: int = 100) -> KnownFiles:
    files = KnownFiles(max_keys=max_keys)
    for name in names:
        files.add(name, 10)
    return files


def test_files_and_their_bytes_are_counted() -> None:
    files = known(A, CHECKPOINT)
    files.add(A, 15)
    assert (len(files), files.num_blocks, files.num_bytes) == (2, 1, 25)
    files.drop(A)
    files.drop(A)
    assert (A in files, len(files), files.num_blocks, files.num_bytes) == (False, 1, 0, 10)
    files.replace({A: 1, B: 2})
    assert (len(files), files.num_blocks, files.num_bytes) == (2, 2, 3)
    files.check_integrity()


def test_a_key_is_not_gone_while_its_file_is_there() -> None:
    files = known(A, B)
    files.note(1, A)
    files.note(2, B)
    assert files.without((1, 2, 3)) == (3,)
    files.drop(A)
    assert files.without((1, 2, 3)) == (1, 3)
    assert files.take_gone(nowhere) == (1,)
    assert files.take_gone(nowhere) == ()


def test_what_memory_still_has_is_not_gone_with_its_file() -> None:
    files = known(A)
    files.note(1, A)
    files.note(2, A)
    files.replace({})
    assert files.take_gone(lambda key: key == 1) == (2,)


def test_a_key_that_is_back_is_not_gone() -> None:
    files = known(A, B)
    files.note(1, A)
    files.drop(A)
    files.note(1, B)
    assert files.take_gone(nowhere) == ()
    files.note(2, "t-none")
    assert files.without((2,)) == (2,), "its file is not there"


def test_keys_are_bounded() -> None:
    files = known(A, max_keys=2)
    for key in range(5):
        files.note(key, A)
    assert files.num_keys == 2
    assert files.without(range(5)) == (0, 1, 2)
    for number in range(4):
        files.add(f"t-{number}", 1)
        files.note(10 + number, f"t-{number}")
        files.drop(f"t-{number}")
    assert files.take_gone(nowhere) == (12, 13)
    files.check_integrity()


NAMES = st.sampled_from([A, B, CHECKPOINT, "t-b-9-d"])
EVENTS = st.one_of(
    st.tuples(st.just("add"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("drop"), NAMES, st.just(0)),
    st.tuples(st.just("note"), NAMES, st.integers(0, 6)),
    st.tuples(st.just("replace"), NAMES, st.integers(0, 9)),
)


@given(st.lists(EVENTS, max_size=40))
def test_what_is_known_holds_together(events: list[tuple[str, str, int]]) -> None:
    files, there, files_of, gone = (
        KnownFiles(max_keys=100),
        set[str](),
        dict[int, str](),
        set[int](),
    )
    for event, name, number in events:
        if event == "add":
            files.add(name, number)
            there.add(name)
        elif event == "note":
            files.note(number, name)
            if name in there:
                files_of[number] = name
                gone.discard(number)
        else:
            left = {name} if event == "replace" else there - {name}
            if event == "replace":
                files.replace({name: number})
            else:
                files.drop(name)
            lost = {key for key, file in files_of.items() if file in there and file not in left}
            gone |= lost
            for key in lost:
                del files_of[key]
            there = left
        files.check_integrity()
        assert set(range(7)) - set(files.without(range(7))) == files_of.keys()
    assert set(files.take_gone(nowhere)) == gone
