"""Which conversations are still stored."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.balancer.api.conversation_store import ConversationStore


@dataclass(frozen=True)
class Entry:
    num_bytes: int


@dataclass(frozen=True)
class Other:
    num_bytes: int


def entry(num_bytes: int = 10) -> Entry:
    return Entry(num_bytes)


def test_what_was_kept_is_found_and_forgotten() -> None:
    store = ConversationStore(max_bytes=100, max_age=60)
    store.put("a", entry(), 0.0)
    assert store.find("a", Entry, 1.0) == entry()
    assert store.find("b", Entry, 1.0) is None
    assert len(store) == 1
    assert store.forget("a", Entry, 1.0)
    assert not store.forget("a", Entry, 1.0)
    assert store.num_bytes == 0


def test_each_kind_is_found_by_itself() -> None:
    store = ConversationStore(max_bytes=100, max_age=60)
    store.put("a", entry(), 0.0)
    assert store.find("a", Other, 1.0) is None
    assert not store.forget("a", Other, 1.0)
    assert store.find("a", Entry, 1.0) == entry()


def test_the_least_recently_used_goes_first() -> None:
    store = ConversationStore(max_bytes=30, max_age=60)
    for now, id in enumerate("abc"):
        store.put(id, entry(), float(now))
    store.find("a", Entry, 3.0)
    store.put("d", entry(), 4.0)
    assert [id for id in "abcd" if store.find(id, Entry, 5.0)] == ["a", "c", "d"]


def test_the_number_is_bounded() -> None:
    store = ConversationStore(max_bytes=1000, max_age=60, max_entries=2)
    for id in "abc":
        store.put(id, entry(), 0.0)
    assert store.find("a", Entry, 0.0) is None
    assert len(store) == 2


def test_what_can_never_fit_costs_the_others_nothing() -> None:
    store = ConversationStore(max_bytes=30, max_age=60)
    store.put("a", entry(), 0.0)
    store.put("b", entry(31), 0.0)
    assert store.find("b", Entry, 0.0) is None
    assert store.find("a", Entry, 0.0)


def test_no_bytes_keep_nothing() -> None:
    store = ConversationStore(max_bytes=0, max_age=60)
    store.put("a", entry(1), 0.0)
    assert store.find("a", Entry, 0.0) is None


def test_age_counts_from_the_last_use() -> None:
    store = ConversationStore(max_bytes=100, max_age=10)
    store.put("a", entry(), 0.0)
    store.put("b", entry(), 0.0)
    assert store.find("a", Entry, 10.0)
    assert store.find("a", Entry, 20.0)
    assert store.find("b", Entry, 20.0) is None
    assert not store.forget("a", Entry, 31.0)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = ConversationStore(max_bytes=50, max_age=5, max_entries=4)

    ids = st.sampled_from("abcdefg")

    @rule(id=ids, size=st.integers(0, 60))
    def put(self, id: str, size: int) -> None:
        is_stored = self.store.put(id, entry(size), self.now)
        assert is_stored == (size <= 50)
        assert not is_stored or self.store.find(id, Entry, self.now) == entry(size)

    @rule(id=ids)
    def find(self, id: str) -> None:
        self.store.find(id, Entry, self.now)

    @rule(id=ids)
    def forget(self, id: str) -> None:
        self.store.forget(id, Entry, self.now)
        assert self.store.find(id, Entry, self.now) is None

    @rule(seconds=st.integers(0, 6))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def holds(self) -> None:
        self.store.check_integrity()


TestMachine = Machine.TestCase


def test_what_belongs_to_one_nobody_else_finds() -> None:
    store = ConversationStore(max_bytes=100, max_age=60)
    store.put("a", entry(), 0.0, owner="ana")
    store.put("b", entry(), 0.0)
    for owner in ("ben", None):
        assert store.find("a", Entry, 1.0, owner=owner) is None
        assert not store.forget("a", Entry, 1.0, owner=owner)
    assert store.find("b", Entry, 1.0, owner="ana") is None
    assert store.find("a", Entry, 1.0, owner="ana") == entry()
    assert store.forget("a", Entry, 1.0, owner="ana")


def test_an_entry_is_dropped_whoevers_it_is() -> None:
    store = ConversationStore()
    store.put("a", entry(), 0.0, owner="ana")
    store.drop("a")
    store.drop("a")
    assert store.find("a", Entry, 0.0, owner="ana") is None
    store.check_integrity()


def test_one_owner_who_fills_it_loses_its_own() -> None:
    store = ConversationStore(max_bytes=100, max_age=60, max_entries=10)
    store.put("ben", entry(20), 0.0, owner="ben")
    for number in range(30):
        store.put(f"large {number}", entry(30), 1.0, owner="ana")
        store.put(f"small {number}", entry(0), 1.0, owner="ana")
        store.check_integrity()
    assert store.find("ben", Entry, 2.0, owner="ben") == entry(20)
    assert store.find("large 29", Entry, 2.0, owner="ana") == entry(30)


def test_one_that_grows_beyond_its_share_stays_as_it_was() -> None:
    store = ConversationStore(max_bytes=100, max_age=60)
    store.put("ben", entry(40), 0.0, owner="ben")
    assert store.put("ana", entry(50), 0.0, owner="ana")
    assert not store.put("ana", entry(61), 1.0, owner="ana")
    assert store.find("ana", Entry, 1.0, owner="ana") == entry(50)
    assert store.find("ben", Entry, 1.0, owner="ben")
