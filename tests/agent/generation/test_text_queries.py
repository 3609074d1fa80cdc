import pytest

from arriero.agent.chat.templates.chat_templates import TemplateSource
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.text_queries import TextQueries
from arriero.shared.errors import InvalidRequest, NotSupported
from arriero.shared.inference import ChatMessage, GenerateRequest
from arriero.shared.queries import (
    MAX_TEXT,
    Counted,
    CountTokens,
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Tokenize,
    Tokenized,
    TokenizerDescription,
)
from tests.agent.fakes import BOS, byte_model


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
