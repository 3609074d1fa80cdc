"""Large messages in pieces: cut, joined, in turns, and within bounds."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.shared.framing import frames
from arriero.shared.framing.frames import (
    MAX_TRANSFERS,
    PIECE_BYTES,
    Assembler,
    BadPiece,
    FrameQueue,
    Topic,
)

LARGE = 3 * PIECE_BYTES


@dataclass(frozen=True)
class Note:
    """A message: what it says to each request, or to nobody."""

    parts: tuple[tuple[Topic, str], ...] = ()
    size: int = 0
    is_cancel: bool = False


class NoteCodec:
    def encode(self, message: Note) -> bytes:
        if message.size < 0:
            raise ValueError("cannot be written")
        return repr(message).encode().ljust(message.size, b" ")

    def topics(self, message: Note) -> Sequence[Topic]:
        return tuple(dict.fromkeys(topic for topic, _ in message.parts))

    def halves(self, message: Note) -> tuple[Note, Note]:
        topics = self.topics(message)
        first = {*topics[: len(topics) // 2]}
        return (
            Note(tuple(part for part in message.parts if part[0] in first), message.size),
            Note(tuple(part for part in message.parts if part[0] not in first), message.size),
        )

    def merged(self, message: Note, follower: Note) -> Note | None:
        if follower.size or message.size or message.is_cancel:
            return None
        return Note(message.parts + follower.parts)

    def cuts_short(self, message: Note) -> bool:
        return message.is_cancel

    def in_place_of(self, message: Note) -> Note | None:
        return Note(((message.parts[0][0], "unsent"),))

    def unsendable(self, message: Note, reason: str) -> Note | None:
        return Note(((message.parts[0][0], reason),))


def note(topic: str, text: str = "x", size: int = 0) -> Note:
    return Note(((topic, text),), size)


def cancel(topic: str) -> Note:
    return Note(((topic, "cancel"),), is_cancel=True)


def read(text: bytes) -> Note:
    message = eval(text)
    assert isinstance(message, Note)
    return message


@dataclass
class Line:
    """A queue and an assembler, with all frames between them."""

    queue: FrameQueue[Note] = field(default_factory=lambda: FrameQueue(NoteCodec()))
    assembler: Assembler = field(default_factory=Assembler)
    arrived: list[Note] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def put(self, *messages: Note) -> None:
        for message in messages:
            self.queue.put(message)

    def step(self) -> bool:
        """One frame goes over; whether there was one."""
        if (frame := self.queue.next()) is None:
            return False
        data, is_text = frame
        self.sizes.append(len(data))
        text = data if is_text else self.assembler.take(data)
        if text is not None:
            self.arrived.append(read(text))
        return True

    def drain(self) -> list[Note]:
        while self.step():
            pass
        return self.arrived


def test_small_messages_go_whole_and_in_order() -> None:
    line = Line()
    messages = [note(str(number)) for number in range(5)]
    line.put(*messages)
    assert line.drain() == messages
    assert len(line.sizes) == 5


def test_a_message_of_exactly_a_piece_goes_whole() -> None:
    line = Line()
    line.put(note("a", size=PIECE_BYTES))
    line.drain()
    assert line.sizes == [PIECE_BYTES]


def test_a_large_message_goes_in_pieces_and_arrives_whole() -> None:
    line = Line()
    line.put(note("a", "text", LARGE + 1))
    assert line.drain() == [note("a", "text", LARGE + 1)]
    assert line.sizes == [PIECE_BYTES + 5] * 3 + [1 + 5]


def test_others_go_between_the_pieces() -> None:
    line = Line()
    line.put(note("large", size=LARGE))
    line.step()
    line.put(Note(), note("other"))
    line.step()
    line.step()
    assert line.arrived == [Note(), note("other")]


def test_a_stream_of_small_messages_does_not_hold_up_a_large_one() -> None:
    line = Line()
    line.put(note("large", size=LARGE))
    for number in range(100):
        line.put(note("small", str(number)))
        line.step()
    assert note("large", size=LARGE) in line.arrived


def test_large_messages_take_turns() -> None:
    line = Line()
    line.put(note("longer", size=10 * LARGE), note("shorter", size=LARGE))
    line.drain()
    assert [each.parts[0][0] for each in line.arrived] == ["shorter", "longer"]


def test_what_is_about_the_same_request_waits_for_the_large_one() -> None:
    line = Line()
    messages = [note("a", "first", LARGE), note("a", "second", 10), note("a", "third", 11)]
    line.put(messages[0], note("b"), *messages[1:], note("b", "again"))
    arrived = line.drain()
    assert [each for each in arrived if each.parts[0][0] == "a"] == messages
    assert arrived[:2] == [note("b"), note("b", "again")]


def test_a_message_about_several_is_split_where_one_of_them_has_to_wait() -> None:
    line = Line()
    line.put(note("a", "large", LARGE), Note((("a", "more"), ("b", "now"))))
    assert line.drain() == [note("b", "now"), note("a", "large", LARGE), note("a", "more")]


def test_a_large_message_about_several_is_split() -> None:
    line = Line()
    line.put(Note((("a", "1"), ("b", "2")), LARGE), note("c"))
    arrived = line.drain()
    assert arrived[0] == note("c")
    assert set(arrived[1:]) == {note("a", "1", LARGE), note("b", "2", LARGE)}


def test_a_large_message_about_many_is_not_a_frame_for_each() -> None:
    line = Line()
    parts = tuple((f"{number:03}", "x" * 250) for number in range(256))
    line.put(Note(parts))
    arrived = line.drain()
    assert tuple(part for each in arrived for part in each.parts) == parts
    assert len(line.sizes) == 8
    assert max(line.sizes) <= PIECE_BYTES


def test_only_those_wait_for_a_large_message_whom_it_is_about() -> None:
    line = Line()
    parts = tuple((f"{number}", "x") for number in range(64))
    line.put(note("17", "large", LARGE), Note(parts))
    arrived = line.drain()
    assert arrived[-2:] == [note("17", "large", LARGE), note("17")]
    assert tuple(part for each in arrived[:-2] for part in each.parts) == (*parts[:17], *parts[18:])
    assert len(arrived) - 2 == 6


def test_a_small_message_is_encoded_once_and_nothing_else() -> None:
    called: list[str] = []

    class Counting(NoteCodec):
        def encode(self, message: Note) -> bytes:
            called.append("encode")
            return super().encode(message)

        def topics(self, message: Note) -> Sequence[Topic]:
            called.append("topics")
            return super().topics(message)

    line = Line(FrameQueue(Counting()))
    line.put(note("a"), note("b"))
    line.drain()
    assert called == ["encode", "encode"]


def test_what_waits_for_a_large_message_is_merged() -> None:
    line = Line()
    line.put(note("a", "large", LARGE), *[note("a", str(number)) for number in range(50)])
    line.step()
    line.step()
    assert len(line.queue) == 2
    merged = line.drain()[1]
    assert [text for _, text in merged.parts] == [str(number) for number in range(50)]


def test_a_large_message_that_is_cut_short_leaves_the_line() -> None:
    line = Line()
    line.put(note("a", size=LARGE), note("b"))
    line.step()
    line.step()
    assert line.assembler.num_bytes > 0
    line.put(cancel("a"))
    assert line.drain() == [note("b"), note("a", "unsent")]
    assert line.assembler.num_bytes == 0
    assert len(line.queue) == line.queue.num_bytes == 0


def test_one_that_is_cut_short_before_its_first_piece_is_never_seen() -> None:
    line = Line()
    line.put(note("a", size=LARGE), cancel("a"))
    assert line.drain() == [note("a", "unsent")]
    assert len(line.sizes) == 1


def test_a_cancel_after_the_last_piece_goes_as_it_is() -> None:
    line = Line()
    line.put(note("a", size=LARGE))
    line.drain()
    line.put(cancel("a"))
    assert line.drain()[1:] == [cancel("a")]


def test_few_messages_are_on_their_way_at_once() -> None:
    line = Line()
    names = [str(number) for number in range(3 * MAX_TRANSFERS)]
    line.put(*[note(name, size=LARGE) for name in names])
    most = 0
    while line.step():
        most = max(most, line.queue.num_bytes)
    assert most <= MAX_TRANSFERS * LARGE
    assert {each.parts[0][0] for each in line.arrived} == set(names)


def test_one_that_waits_for_its_turn_can_be_cut_short() -> None:
    line = Line()
    names = [str(number) for number in range(MAX_TRANSFERS + 1)]
    line.put(*[note(name, size=LARGE) for name in names], cancel(names[-1]))
    assert note(names[-1], "unsent") in line.drain()
    assert len(line.arrived) == len(names)


def test_what_cannot_be_encoded_is_replaced() -> None:
    line = Line()
    line.put(note("a", size=-1), note("b"))
    assert line.drain() == [note("a", "cannot be written"), note("b")]


def test_one_part_that_cannot_be_encoded_does_not_take_the_others_along() -> None:
    line = Line()
    line.put(Note((("a", "1"), ("b", "2")), -1))
    assert line.drain() == [note("a", "cannot be written"), note("b", "cannot be written")]


def test_what_nobody_would_take_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_MESSAGE_BYTES", 2 * PIECE_BYTES)
    line = Line()
    line.put(note("a", size=LARGE))
    assert line.drain() == [note("a", f"{LARGE} bytes; {2 * PIECE_BYTES} are allowed")]


def test_clearing_forgets_everything() -> None:
    line = Line()
    line.put(note("a", size=LARGE), note("a"), note("b"))
    line.step()
    line.queue.clear()
    assert len(line.queue) == 0
    assert line.queue.next() is None


def piece(number: int, kind: int, text: bytes = b"x") -> bytes:
    return struct.pack(">IB", number, kind) + text


class TestBadPieces:
    def test_too_short_for_a_header(self) -> None:
        with pytest.raises(BadPiece, match="header"):
            Assembler().take(b"\0\0\0\0")

    def test_of_an_unknown_kind(self) -> None:
        with pytest.raises(BadPiece, match="not 3"):
            Assembler().take(piece(1, 3))

    def test_of_too_many_messages(self) -> None:
        assembler = Assembler()
        for number in range(MAX_TRANSFERS):
            assert assembler.take(piece(number, 0)) is None
        with pytest.raises(BadPiece, match="on their way"):
            assembler.take(piece(MAX_TRANSFERS, 0))

    def test_of_a_message_that_is_too_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(frames, "MAX_MESSAGE_BYTES", 10)
        assembler = Assembler()
        assembler.take(piece(1, 0, b"x" * 10))
        with pytest.raises(BadPiece, match="longer than 10 bytes"):
            assembler.take(piece(1, 1))

    def test_giving_up_what_never_began_is_no_fault(self) -> None:
        assembler = Assembler()
        assert assembler.take(piece(1, 2, b"")) is None
        assert assembler.num_bytes == 0


class LineMachine(RuleBasedStateMachine):
    """Whatever is put arrives once, in order for each request, unless it was cut short."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.put: dict[str, list[str]] = {}
        self.cancelled: set[str] = set()
        self.number = 0

    def _next(self) -> str:
        self.number += 1
        return str(self.number)

    @rule(
        topics=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3),
        size=st.sampled_from([0, 0, 0, LARGE, PIECE_BYTES, 7 * PIECE_BYTES + 3]),
    )
    def send(self, topics: list[str], size: int) -> None:
        parts = tuple((topic, self._next()) for topic in topics)
        for topic, text in parts:
            self.put.setdefault(topic, []).append(text)
        self.line.put(Note(parts, size))

    @rule(topic=st.sampled_from("abcdefgh"))
    def stop(self, topic: str) -> None:
        self.cancelled.add(topic)
        self.line.put(cancel(topic))

    @rule(num=st.integers(1, 20))
    def go_on(self, num: int) -> None:
        for _ in range(num):
            self.line.step()

    @invariant()
    def bounds_hold(self) -> None:
        assert all(size <= PIECE_BYTES + 5 for size in self.line.sizes)
        assert self.line.queue.num_bytes <= MAX_TRANSFERS * 8 * PIECE_BYTES

    def teardown(self) -> None:
        self.line.drain()
        assert len(self.line.queue) == 0
        assert self.line.assembler.num_bytes == 0
        for topic, sent in self.put.items():
            parts = [part for message in self.line.arrived for part in message.parts]
            came = [text for name, text in parts if name == topic and text.isdigit()]
            if topic in self.cancelled:
                assert came == [text for text in sent if text in set(came)]
            else:
                assert came == sent


TestLineMachine = LineMachine.TestCase
TestLineMachine.settings = settings(stateful_step_count=30)
