"""Keys of prompts' beginnings."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from arriero.shared.inference import ChatMessage, GenerateRequest, ImagePart, ImageUrl, TextPart
from arriero.shared.inference.adapters import AdapterChoice
from arriero.shared.inference.prefix_chain import (
    GROWTH,
    MAX_BYTES,
    NO_CHAIN,
    STEP,
    TOKEN_BYTES,
    PrefixChain,
    chain_of,
)

ROLES = ("system", "user", "assistant")


def chain(*texts: str, **more: object) -> PrefixChain:
    messages = tuple(ChatMessage(role=ROLES[min(i, 1)], content=t) for i, t in enumerate(texts))  # type: ignore[arg-type]
    return chain_of(GenerateRequest(messages=messages, **more))  # type: ignore[arg-type]


def num_shared(one: PrefixChain, other: PrefixChain) -> int:
    """How many keys both begin with; no later ones are equal."""
    same = [a == b for a, b in zip(one.keys, other.keys, strict=False)]
    num = same.index(False) if False in same else len(same)
    assert not any(same[num:])
    return num


SYSTEM = "You are a helpful assistant. " * 10


def test_a_conversation_goes_on_with_the_keys_it_had() -> None:
    before = chain(SYSTEM, "What is a llama? " * 8)
    after = chain(SYSTEM, "What is a llama? " * 8, "An animal. " * 9, "How tall is it? " * 9)
    assert before.keys == after.keys[: len(before.keys)]
    assert before.ends[-1] == before.size
    assert len(after.keys) > len(before.keys)


def test_what_differs_has_other_keys_from_there_on() -> None:
    one, other = chain(SYSTEM, "a" * 500), chain(SYSTEM, "b" * 500)
    shared = num_shared(one, other)
    assert one.ends[shared - 1] >= len(SYSTEM)
    assert num_shared(one, chain("x" + SYSTEM, "a" * 500)) == 0


def test_tools_and_variables_of_the_template_come_before_all_messages() -> None:
    tools = ({"type": "function", "function": {"name": "f", "parameters": {}}},)
    plain = chain(SYSTEM)
    assert num_shared(plain, chain(SYSTEM, tools=tools)) == 0
    assert num_shared(plain, chain(SYSTEM, chat_template_kwargs={"x": 1})) == 0
    assert chain(SYSTEM, temperature=0.3, seed=1, max_tokens=4) == plain


def test_a_text_in_parts_is_the_same_text() -> None:
    parts = tuple(TextPart(type="text", text=t) for t in (SYSTEM[:50], SYSTEM[50:]))
    message = ChatMessage(role="system", content=parts)
    assert chain_of(GenerateRequest(messages=(message,))) == chain(SYSTEM)


def test_calls_and_reasoning_are_parts_of_a_message() -> None:
    plain = ChatMessage(role="assistant", content=SYSTEM)
    called = ChatMessage(role="assistant", content=SYSTEM, tool_calls=({"id": "1"},))
    thought = ChatMessage(role="assistant", content=SYSTEM, reasoning_content="Hm. ")
    keys = [chain_of(GenerateRequest(messages=(m,))).keys[-1] for m in (plain, called, thought)]
    assert len(set(keys)) == 3


def test_token_ids_are_counted_and_never_equal_a_text() -> None:
    ids = tuple(range(300))
    one = chain_of(GenerateRequest(prompt=ids))
    more = chain_of(GenerateRequest(prompt=(*ids, 5, 6)))
    assert one.is_tokens
    assert one.size == 300 * TOKEN_BYTES
    assert num_shared(one, more) == len(one.keys)
    text = bytes(4 * 300).decode()
    assert num_shared(chain_of(GenerateRequest(prompt=text)), one) == 0


def test_what_is_not_kept_has_no_keys() -> None:
    assert chain_of(GenerateRequest(prompt=SYSTEM, n_discard=4)) == NO_CHAIN
    whole = GenerateRequest(prompt=SYSTEM, logprobs=True, prompt_logprobs=True)
    assert chain_of(whole) == NO_CHAIN


def test_a_short_prompt_has_no_keys() -> None:
    assert chain("Hi").keys == ()
    assert chain_of(GenerateRequest(prompt="x" * (STEP - 1))).keys == ()


def test_a_huge_prompt_has_few_keys() -> None:
    huge = chain_of(GenerateRequest(prompt="x" * (2 * MAX_BYTES)))
    assert len(huge.keys) < 150
    assert huge.ends[-1] <= MAX_BYTES * (1 + 1 / GROWTH)
    assert huge.size == 2 * MAX_BYTES
    many = chain(*(["y" * 100] * 4096))
    assert len(many.keys) < 700


@given(st.lists(st.text(max_size=300), min_size=1, max_size=6), st.data())
def test_common_beginnings_are_known_up_to_an_eighth(texts: list[str], data: st.DataObject) -> None:
    num_common = data.draw(st.integers(0, len(texts)))
    others = [*texts[:num_common], "other " * 20]
    one, other = chain(*texts, "this " * 20), chain(*others)
    common = sum(len(text.encode()) for text in texts[:num_common])
    known = num_shared(one, other)
    end = one.ends[known - 1] if known else 0
    assert end >= common - max(STEP, common // GROWTH) - STEP
    for each in (one, other):
        assert all(a < b for a, b in pairwise(each.ends))
        assert len(each.keys) == len(each.ends)


def test_pictures_are_parts_of_a_message() -> None:
    def asks(data: str) -> PrefixChain:
        url = ImageUrl(url=f"data:image/png;base64,{data * 5000}")
        parts = (TextPart(type="text", text=SYSTEM), ImagePart(type="image_url", image_url=url))
        return chain_of(GenerateRequest(messages=(ChatMessage(role="user", content=parts),)))

    assert num_shared(asks("a"), asks("a")) == len(asks("a").keys)
    assert 0 < num_shared(asks("a"), asks("b")) < len(asks("a").keys)
    assert asks("a").size < 5000, "only its ends count"


def test_pictures_of_one_length_with_the_same_ends_are_told_apart() -> None:
    def key(middle: str) -> int:
        url = ImageUrl(url=f"data:image/bmp;base64,{'A' * 9000}{middle}{'A' * 9000}")
        parts = (ImagePart(type="image_url", image_url=url),)
        message = ChatMessage(role="user", content=parts)
        return chain_of(GenerateRequest(messages=(message,))).keys[-1]

    assert key("llama") == key("llama")
    assert key("llama") != key("camel")


def test_a_prefix_under_another_adapter_is_another() -> None:
    def keys(model: str | None = None, *adapters: tuple[str, float | None]) -> tuple[int, ...]:
        chosen = tuple(AdapterChoice(name=name, scale=scale) for name, scale in adapters)
        return chain(SYSTEM, model=model, adapters=chosen or None).keys

    plain, support = keys("base"), keys("base:support")
    assert plain == keys() == keys("other"), "agents of another model are not asked"
    assert support == keys("base", ("support", None)) == keys("base:law", ("support", None))
    assert len({plain, support, keys("base:law"), keys("base", ("support", 0.5))}) == 4
    assert keys("base", ("law", None), ("support", None)) != support
    none = GenerateRequest(prompt=SYSTEM, model="base:support", adapters=())
    assert chain_of(none) == chain_of(GenerateRequest(prompt=SYSTEM))
    raw = GenerateRequest(prompt=SYSTEM, model="base:support")
    assert num_shared(chain_of(raw), chain_of(none)) == 0


def test_where_keys_end_among_tokens() -> None:
    ids = chain_of(GenerateRequest(prompt=tuple(range(300))))
    assert ids.positions(300) == tuple(
        (end // TOKEN_BYTES, key) for end, key in zip(ids.ends, ids.keys, strict=True)
    )
    text = chain_of(GenerateRequest(prompt="x" * 1000))
    positions = text.positions(500)
    assert positions[0] == (STEP // 2, text.keys[0])
    assert all(a < b for (a, _), (b, _) in pairwise(positions))
    assert text.positions(1)[0][0] == 1, "a mark is on a position"
    assert NO_CHAIN.positions(5) == ()
