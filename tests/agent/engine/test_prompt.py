"""Prompts and histories: positions, spans, cache keys."""

from operator import eq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt import History, Media, MediaPart, Prompt, Span, border

IMAGE, OTHER = Media(b"image", 3), Media(b"other", 3)

token_spans = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
media_spans = st.builds(Media, st.sampled_from([b"a", b"b"]), st.integers(1, 4))
spans = st.lists(token_spans | media_spans, max_size=5)
adapters = st.sampled_from([None, "lora", "other"])


def positions(spans: list[Span]) -> list[object]:
    """What stands at each position, by the meaning of spans."""
    found: list[object] = []
    for span in spans:
        if isinstance(span, Media):
            found += [(span, place) for place in range(span.num_positions)]
        else:
            found += span
    return found


def borders(spans: list[Span]) -> set[int]:
    """Positions at which no media are cut."""
    found, place = {0}, 0
    for span in spans:
        length = span.num_positions if isinstance(span, Media) else len(span)
        found |= (
            {place + length} if isinstance(span, Media) else {*range(place, place + length + 1)}
        )
        place += length
    return found


def test_a_text_prompts_keys_are_its_tokens_and_cost_nothing() -> None:
    tokens = tuple(range(1000))
    prompt = Prompt(tokens)
    assert prompt.keys is tokens
    assert prompt.tokens is tokens
    assert prompt.part(0, 1000).keys is tokens


def test_a_prompt_shows_what_it_is_made_of() -> None:
    prompt = Prompt((1, 2), (3,), IMAGE, (4,), adapter="lora")
    assert prompt.spans == ((1, 2, 3), IMAGE, (4,))
    assert prompt.tokens == (1, 2, 3, 4)
    assert prompt.has_media
    assert repr(prompt) == (
        "Prompt((1, 2, 3), Media(digest=b'image', num_positions=3, is_whole=False), (4,), "
        "adapter='lora')"
    )
    assert (len(Prompt()), Prompt().spans, Prompt().tokens) == (0, (), ())


def test_media_have_positions() -> None:
    with pytest.raises(ValueError, match="media of 0 positions"):
        Media(b"image", 0)


def test_tokens_are_not_had_of_media() -> None:
    prompt = Prompt((1, 2), IMAGE, (3, 4))
    assert prompt.token_ids(0, 2) == (1, 2)
    assert prompt.token_ids(5, 7) == (3, 4)
    for start, stop in ((0, 3), (4, 6), (3, 4), (0, 7)):
        with pytest.raises(ValueError, match="are not all tokens"):
            prompt.token_ids(start, stop)


def test_an_adapter_is_a_part_of_every_key_and_of_no_token() -> None:
    plain, adapted = (Prompt((0, 1), IMAGE, adapter=adapter) for adapter in (None, "lora"))
    assert not set(plain.keys) & set(adapted.keys)
    assert adapted.tokens == plain.tokens == (0, 1)
    assert plain != adapted == Prompt((0, 1), IMAGE, adapter="lora")


def test_a_scope_is_a_part_of_every_key_and_of_no_token() -> None:
    plain, mine, theirs = (Prompt((0, 1), IMAGE, scope=scope) for scope in (None, "a", "b"))
    both = Prompt((0, 1), IMAGE, adapter="lora", scope="a")
    assert plain.tokens == mine.tokens == theirs.tokens == both.tokens == (0, 1)
    keys = [set(one.keys) for one in (plain, mine, theirs, both, Prompt((0, 1), adapter="lora"))]
    assert len(set.union(*keys)) == sum(map(len, keys))
    assert mine == Prompt((0, 1), IMAGE, scope="a")
    assert "scope='a'" in repr(mine)
    history = History(mine.part(0, 2))
    history.append(7)
    assert history.part(0, 3) == Prompt((0, 1, 7), scope="a")
    assert history.part(0, 3).scope == "a"


def test_a_history_grows_under_its_adapter() -> None:
    history = History(Prompt((1, 2), adapter="lora"))
    history.append(3)
    assert history.part(0, 3) == Prompt((1, 2, 3), adapter="lora")
    assert history.token_ids(1, 3) == (2, 3)


def test_keys_stay_the_same_list() -> None:
    history = History(Prompt((1, 2, 3, 4)))
    keys = history.keys
    history.append(5)
    history.discard(1, 2)
    assert keys == [1, 4, 5]
    assert history.keys is keys


@given(one=spans, other=spans, adapter=adapters)
def test_prompts_are_equal_when_the_same_stands_at_every_position(
    one: list[Span], other: list[Span], adapter: str | None
) -> None:
    first, second = Prompt(*one, adapter=adapter), Prompt(*other, adapter=adapter)
    assert (first == second) == (positions(one) == positions(other))
    assert first == Prompt(*first.spans, adapter=adapter)
    assert hash(first) == hash(Prompt(*first.spans, adapter=adapter))


@given(one=spans, other=spans, adapter=adapters)
def test_keys_have_in_common_what_positions_have(
    one: list[Span], other: list[Span], adapter: str | None
) -> None:
    first, second = Prompt(*one, adapter=adapter), Prompt(*other, adapter=adapter)
    assert [*map(eq, first.keys, second.keys)] == [*map(eq, positions(one), positions(other))]


@given(made_of=spans, adapter=adapters)
def test_there_is_a_key_for_each_position_and_every_token_is_found(
    made_of: list[Span], adapter: str | None
) -> None:
    prompt = Prompt(*made_of, adapter=adapter)
    found = positions(made_of)
    assert len(prompt) == len(prompt.keys) == len(found)
    assert prompt.tokens == tuple(one for one in found if isinstance(one, int))
    for place, one in enumerate(found):
        if isinstance(one, int):
            assert prompt.token_ids(place, place + 1) == (one,)
        assert (prompt.keys[place] < 0) == (not isinstance(one, int))


@given(made_of=spans, adapter=adapters, data=st.data())
def test_parts_are_cut_at_the_borders_of_media(
    made_of: list[Span], adapter: str | None, data: st.DataObject
) -> None:
    prompt = Prompt(*made_of, adapter=adapter)
    start = data.draw(st.integers(0, len(prompt)))
    stop = data.draw(st.integers(start, len(prompt)))
    found, fits = positions(made_of), {start, stop} <= borders(made_of)
    history = History(prompt)
    if not fits:
        for cut in (
            lambda: prompt.part(start, stop),
            lambda: prompt.without(start, stop - start),
            lambda: history.discard(start, stop - start),
        ):
            with pytest.raises(ValueError, match="cut media"):
                cut()
        assert history.keys == list(prompt.keys), "nothing is changed"
        return
    assert positions([*prompt.part(start, stop).spans]) == found[start:stop]
    left = prompt.without(start, stop - start)
    assert positions([*left.spans]) == found[:start] + found[stop:]
    history.discard(start, stop - start)
    assert history.part(0, len(history)) == left
    assert history.spans == left.spans


@given(spans, adapters)
def test_a_prompt_is_cut_at_borders_only(spans: list[Span], adapter: str | None) -> None:
    prompt = Prompt(*spans, adapter=adapter)
    allowed = borders(spans)
    for length in range(len(prompt) + 1):
        found = border(prompt.keys, length)
        assert found == max(each for each in allowed if each <= length)


@given(spans)
def test_a_run_is_of_tokens_or_of_one_media(spans: list[Span]) -> None:
    prompt = Prompt(*spans)
    held = positions(spans)
    start = 0
    while start < len(prompt):
        count = prompt.span_left(start)
        part = prompt.media_part(start, count)
        if part is None:
            assert list(prompt.token_ids(start, start + count)) == held[start : start + count]
        else:
            assert (part.first, part.count) == (0, part.media.num_positions)
            assert prompt.media_part(start + 1, 1) in (
                (MediaPart(part.media, 1, 1),)
                if count > 1
                else (None, prompt.media_part(start + 1, 1))
            )
        start += count
    assert prompt.media == tuple(span for span in spans if isinstance(span, Media))
