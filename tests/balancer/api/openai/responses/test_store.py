"""Which answers are still kept."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.balancer.api.openai.responses.items import Message, OutputText, Reasoning
from arriero.balancer.api.openai.responses.store import ResponseStore, Stored, stored


def entry(num_bytes: int = 10) -> Stored:
    return Stored(response=b"x" * num_bytes, input=(), history=(), history_bytes=0)


def answer(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": f"resp_{text}",
        "output": [
            {
                "id": f"msg_{text}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        ],
    }


def test_what_was_kept_is_found_and_forgotten() -> None:
    store = ResponseStore(max_bytes=100, max_age=60)
    store.keep("a", entry(), 0.0)
    assert store.find("a", 1.0) == entry()
    assert store.find("b", 1.0) is None
    assert len(store) == 1
    assert store.forget("a", 1.0)
    assert not store.forget("a", 1.0)
    assert store.num_bytes == 0


def test_the_least_recently_used_goes_first() -> None:
    store = ResponseStore(max_bytes=30, max_age=60)
    for now, id in enumerate("abc"):
        store.keep(id, entry(), float(now))
    store.find("a", 3.0)
    store.keep("d", entry(), 4.0)
    assert [id for id in "abcd" if store.find(id, 5.0)] == ["a", "c", "d"]


def test_the_number_is_bounded() -> None:
    store = ResponseStore(max_bytes=1000, max_age=60, max_responses=2)
    for id in "abc":
        store.keep(id, entry(), 0.0)
    assert store.find("a", 0.0) is None
    assert len(store) == 2


def test_what_is_not_shown_counts_too() -> None:
    part = OutputText(text="", annotations=("x" * 1000,), logprobs=("y" * 1000,))
    hidden = (
        Reasoning(encrypted_content="z" * 1000),
        Message(role="assistant", content=(part,), phase="p" * 1000),
    )
    plain = (Reasoning(), Message(role="assistant", content=""))
    more, less = (stored(answer("a"), items, None).num_bytes for items in (hidden, plain))
    assert more > less + 4000


def test_what_can_never_fit_costs_the_others_nothing() -> None:
    store = ResponseStore(max_bytes=30, max_age=60)
    store.keep("a", entry(), 0.0)
    store.keep("b", entry(31), 0.0)
    assert store.find("b", 0.0) is None
    assert store.find("a", 0.0)


def test_no_bytes_keep_nothing() -> None:
    store = ResponseStore(max_bytes=0, max_age=60)
    store.keep("a", entry(1), 0.0)
    assert store.find("a", 0.0) is None


def test_age_counts_from_the_last_use() -> None:
    store = ResponseStore(max_bytes=100, max_age=10)
    store.keep("a", entry(), 0.0)
    store.keep("b", entry(), 0.0)
    assert store.find("a", 10.0)
    assert store.find("a", 20.0)
    assert store.find("b", 20.0) is None
    assert not store.forget("a", 31.0)


def test_an_entry_holds_the_conversation_up_to_it() -> None:
    first = stored(answer("one"), (Message(role="user", content="a"),), None)
    second = stored(answer("two"), (Message(role="user", content="b"),), first)
    texts = [item.text for item in second.history if isinstance(item, Message)]
    assert texts == ["a", "one", "b", "two"]
    assert second.input == (Message(role="user", content="b"),)
    assert second.num_bytes > first.num_bytes > len("aone")


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = ResponseStore(max_bytes=50, max_age=5, max_responses=4)

    ids = st.sampled_from("abcdefg")

    @rule(id=ids, size=st.integers(0, 60))
    def keep(self, id: str, size: int) -> None:
        if self.store.find(id, self.now) is None:
            self.store.keep(id, entry(size), self.now)

    @rule(id=ids)
    def find(self, id: str) -> None:
        self.store.find(id, self.now)

    @rule(id=ids)
    def forget(self, id: str) -> None:
        self.store.forget(id, self.now)
        assert self.store.find(id, self.now) is None

    @rule(seconds=st.integers(0, 6))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def holds(self) -> None:
        self.store.check_integrity()


TestMachine = Machine.TestCase
