import asyncio
import threading
from collections.abc import Iterator

import pytest

from arriero.agent.chat.templates.chat_templates import TemplateSource
from arriero.agent.engine.withdrawal import Withdrawn, check_wanted
from arriero.agent.generation.port import QueryId
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.query_executor import QueryExecutor, TextQueries
from arriero.agent.generation.text_length import LONG_TEXT
from arriero.shared.errors import InvalidRequest, NotSupported
from arriero.shared.inference import ChatMessage, GenerateRequest
from arriero.shared.queries import (
    MAX_TEXT,
    Counted,
    CountTokens,
    Declined,
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Query,
    Rank,
    Result,
    Tokenize,
    Tokenized,
    TokenizerDescription,
    Vector,
)
from tests.agent.fakes import BOS, byte_model, soon
from tests.waiting import HANGS

EMBED = Embed(inputs=("x",))
TOKENIZE = Tokenize(text="ab")


class SlowEmbedder:
    """Answers when the test says so, and notices when nobody waits any more."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.begun = threading.Event()
        self.asked: list[Embed | Rank] = []
        self.was_withdrawn = False
        self.is_free = False

    def answer(self, query: Embed | Rank) -> Result:
        self.asked.append(query)
        self.begun.set()
        self.may_go_on.wait()
        try:
            check_wanted()
        except Withdrawn:
            self.was_withdrawn = True
            raise
        return Embedded(vectors=(Vector(vector="AAAA", num_tokens=1),))

    def free(self) -> None:
        self.is_free = True


class Room:
    def __init__(self) -> None:
        self.embedder = SlowEmbedder()
        model = byte_model()
        self.executor = QueryExecutor(TextQueries(model.vocab, Preparer(model, 16)), self.embedder)

    def ask(self, query: Query, id: int = 1) -> asyncio.Future[Result]:
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.executor.answer(QueryId(id), query, answered.set_result)
        return answered


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.embedder.may_go_on.set()
    room.executor.close()
    assert room.embedder.is_free


async def test_texts_do_not_wait_for_embeddings(room: Room) -> None:
    embedded = room.ask(EMBED)
    assert await room.ask(TOKENIZE, 2) == Tokenized(tokens=(97, 98))
    assert not embedded.done()
    room.embedder.may_go_on.set()
    assert isinstance(await embedded, Embedded)


@pytest.mark.parametrize(
    "long",
    [
        Tokenize(text="x" * (LONG_TEXT + 1)),
        CountTokens(request=GenerateRequest(prompt="x" * (LONG_TEXT + 1))),
    ],
)
async def test_short_texts_do_not_wait_for_long_ones(long: Query) -> None:
    may_go_on = threading.Event()

    class SlowTexts(TextQueries):
        def answer(
            self, query: Tokenize | Detokenize | CountTokens
        ) -> Tokenized | Detokenized | Counted:
            assert query != long or may_go_on.wait(HANGS)
            return super().answer(query)

    model = byte_model()
    executor = QueryExecutor(SlowTexts(model.vocab, Preparer(model, 16)), None)
    answers: asyncio.Queue[Result] = asyncio.Queue()
    executor.answer(QueryId(1), long, answers.put_nowait)
    executor.answer(QueryId(2), TOKENIZE, answers.put_nowait)
    assert await soon(answers.get()) == Tokenized(tokens=(97, 98))
    may_go_on.set()
    assert isinstance(await soon(answers.get()), Tokenized | Counted)
    executor.close()


async def test_one_that_cannot_begin_is_declined(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    room.embedder.may_go_on.set()
    room.executor.close()  # as when no thread can be started: nothing can be submitted
    declined = await soon(room.ask(TOKENIZE))
    assert isinstance(declined, Declined) and declined.error.code == "internal_error"
    assert "a query could not be answered" in caplog.text


async def test_an_error_is_the_answer(room: Room) -> None:
    declined = await room.ask(Detokenize(tokens=(999,)))
    assert isinstance(declined, Declined)
    assert declined.error.field == "tokens[0]"


async def test_one_that_was_withdrawn_stops_and_is_not_answered(room: Room) -> None:
    answered = room.ask(EMBED)
    await asyncio.to_thread(room.embedder.begun.wait)
    room.executor.withdraw(QueryId(1))
    room.embedder.may_go_on.set()
    assert isinstance(await room.ask(EMBED, 2), Embedded)
    assert room.embedder.was_withdrawn and not answered.done()
    room.executor.withdraw(QueryId(1))


async def test_one_that_was_withdrawn_before_it_began_never_does(room: Room) -> None:
    first = room.ask(EMBED)
    room.ask(Embed(inputs=("never",)), 2)
    room.executor.withdraw(QueryId(2))
    room.embedder.may_go_on.set()
    await first
    await room.ask(EMBED, 3)
    assert room.embedder.asked == [EMBED, EMBED]


async def test_without_an_embedder_there_are_no_vectors() -> None:
    model = byte_model()
    executor = QueryExecutor(TextQueries(model.vocab, Preparer(model, 16)), None)
    answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    executor.answer(QueryId(1), EMBED, answered.set_result)
    declined = await soon(answered)
    assert isinstance(declined, Declined) and declined.error.code == "not_supported"
    executor.close()


async def test_a_mistake_of_ours_is_logged_and_answered(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(query: Embed | Rank) -> Result:
        raise OSError("a mistake of ours")

    room.embedder.answer = broken  # type: ignore[method-assign]
    declined = await room.ask(EMBED)
    assert isinstance(declined, Declined) and declined.error.code == "internal_error"
    assert "a mistake of ours" in caplog.text


# ---- texts


def text_queries(template: str | None = "{{ messages[0].content }}") -> TextQueries:
    model = byte_model(template)
    return TextQueries(model.vocab, Preparer(model, 16))


def test_tokens_of_a_text() -> None:
    assert text_queries().answer(Tokenize(text="a<s>")) == Tokenized(tokens=tuple(b"a<s>"))
    both = Tokenize(text="a<s>", add_special=True, parse_special=True)
    assert text_queries().answer(both) == Tokenized(tokens=(BOS, ord("a"), BOS))


def test_text_of_tokens() -> None:
    query = Detokenize(tokens=(BOS, *"Grüße".encode()))
    assert text_queries().answer(query) == Detokenized(text="Grüße")
    assert text_queries().answer(Detokenize(tokens=())) == Detokenized(text="")


def test_bytes_where_they_are_no_whole_characters() -> None:
    query = Detokenize(tokens=tuple("ü".encode()[:1]))
    assert text_queries().answer(query) == Detokenized(
        text="\N{REPLACEMENT CHARACTER}", bytes_base64="ww=="
    )


def test_a_token_that_does_not_exist() -> None:
    with pytest.raises(InvalidRequest, match="go up to 257") as caught:
        text_queries().answer(Detokenize(tokens=(1, 258)))
    assert caught.value.field == "tokens[1]"


def test_the_length_of_a_prompt_whether_it_fits_or_not() -> None:
    query = CountTokens(request=GenerateRequest(prompt="x" * 50))
    assert text_queries().answer(query) == Counted(num_tokens=51)
    messages = (ChatMessage(role="user", content="hello"),)
    query = CountTokens(request=GenerateRequest(messages=messages))
    assert text_queries().answer(query) == Counted(num_tokens=6)


def test_without_a_template_messages_cannot_be_counted() -> None:
    messages = (ChatMessage(role="user", content="hello"),)
    with pytest.raises(NotSupported):
        text_queries(None).answer(CountTokens(request=GenerateRequest(messages=messages)))


@pytest.mark.parametrize(
    ("template", "told"),
    [("{{ 1 }}", "{{ 1 }}"), (None, None), ("{{ 1 }}" + "x" * MAX_TEXT, None)],
)
def test_a_tokenizer_is_described(template: str | None, told: str | None) -> None:
    description = TokenizerDescription(bos_text="<s>", eos_text="</s>", chat_template=told)
    assert text_queries(template).answer(DescribeTokenizer()) == description


def test_the_operators_template_is_told() -> None:
    model = byte_model("{{ 1 }}")
    texts = TextQueries(model.vocab, Preparer(model, 16, template=TemplateSource("{{ 2 }}")))
    description = texts.answer(DescribeTokenizer())
    assert isinstance(description, TokenizerDescription)
    assert description.chat_template == "{{ 2 }}"
