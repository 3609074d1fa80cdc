"""Blocks of prefixes: whose names are equal, and what reading one is thought to cost."""

from dataclasses import replace
from itertools import islice

import pytest

from arriero.agent.engine.capacity import BLOCK
from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.prompt_store.blocks import (
    FIRST_RATE,
    LATENCY,
    BlockNames,
    CheckpointOnDisk,
    OnDisk,
    ReadingPrice,
    place_of,
    whole,
)
from tests.agent.engine.prompt_store.test_prompt_store import ORIGIN

TOKENS = tuple(range(1, 3 * BLOCK + 10))


def names(*spans: tuple[int, ...] | Media, **salts: str) -> list[str]:
    return [*BlockNames(ORIGIN).of(Prompt(*spans, **salts))]


def test_whole_blocks_have_names() -> None:
    assert len(names(TOKENS)) == 3
    assert names(TOKENS[: BLOCK - 1]) == []
    assert len(set(names(TOKENS))) == 3
    assert all(name.startswith(f"{BlockNames(ORIGIN).tag}-") for name in names(TOKENS))


def test_what_begins_alike_has_the_first_names_in_common() -> None:
    other = (*TOKENS[: 2 * BLOCK], 0, *TOKENS[2 * BLOCK + 1 :])
    assert names(other)[:2] == names(TOKENS)[:2]
    assert names(other)[2] != names(TOKENS)[2]


def test_a_block_is_named_after_all_that_is_before_it() -> None:
    other = (0, *TOKENS[1:])
    assert not set(names(other)) & set(names(TOKENS))


@pytest.mark.parametrize("salts", [{"adapter": "a"}, {"scope": "a"}, {"adapter": "a", "scope": ""}])
def test_adapters_and_scopes_have_names_of_their_own(salts: dict[str, str]) -> None:
    assert not set(names(TOKENS, **salts)) & set(names(TOKENS))


def test_other_models_have_names_of_their_own() -> None:
    other = BlockNames(replace(ORIGIN, cache="f8"))
    assert other.tag != BlockNames(ORIGIN).tag
    assert not set(other.of(Prompt(TOKENS))) & set(names(TOKENS))


def test_a_picture_ends_it() -> None:
    assert names(TOKENS[: BLOCK + 5], Media(b"cat", 7), TOKENS) == names(TOKENS)[:1]


def test_names_are_worked_out_as_they_are_asked_for() -> None:
    assert len([*islice(BlockNames(ORIGIN).of(Prompt(TOKENS)), 1)]) == 1


def test_whole() -> None:
    assert [whole(count) for count in (0, BLOCK - 1, BLOCK, 2 * BLOCK + 1)] == [
        *(0, 0, BLOCK, 2 * BLOCK)
    ]
    on_disk = OnDisk(("a", "b"), block=4)
    assert on_disk.num_tokens == 8
    assert on_disk.whole(7) == 4


def checkpoint(tokens: tuple[int, ...], start: int, end: int, **salts: str) -> str:
    made = BlockNames(ORIGIN)
    prompt = Prompt(tokens, **salts)
    after = [made.start, *made.of(prompt)][start // BLOCK]
    return made.checkpoint(after, prompt, start, end)


def test_a_checkpoint_is_named_after_its_block_and_what_follows() -> None:
    name = checkpoint(TOKENS, BLOCK, BLOCK + 7)
    assert name.startswith(f"{names(TOKENS)[0]}-7-")
    assert place_of(name) == (names(TOKENS)[0], 7)
    others = [
        checkpoint((*TOKENS[: BLOCK + 6], 0), BLOCK, BLOCK + 7),
        checkpoint((0, *TOKENS[1:]), BLOCK, BLOCK + 7),
        checkpoint(TOKENS, BLOCK, BLOCK + 8),
        checkpoint(TOKENS, BLOCK, BLOCK + 7, scope="a"),
        checkpoint(TOKENS, BLOCK, BLOCK + 7, adapter="a"),
    ]
    assert len({name, *others}) == 6
    assert len({checkpoint(TOKENS, 0, 9), checkpoint(TOKENS, 0, 9, scope="a")}) == 2


@pytest.mark.parametrize(
    "name", ["", "a", "a-b", "a-b-c", "a-b-7", "a-b-c-d", "a-b-0-d", "a-b-٣-d", "a-b-7-d-e"]
)
def test_other_names_are_those_of_no_checkpoint(name: str) -> None:
    assert place_of(name) is None


def test_of_a_checkpoint_all_is_read_or_nothing() -> None:
    on_disk = OnDisk(("a", "b"), 1.0, block=4, checkpoint=CheckpointOnDisk("c", 11, 0.5))
    assert on_disk.num_tokens == on_disk.usable(12) == on_disk.usable(11) == 11
    assert on_disk.usable(10) == 0
    assert on_disk.reading(11) == 2.5
    blocks = OnDisk(("a", "b"), 1.0, block=4)
    assert [blocks.usable(num) for num in (20, 7, 3)] == [8, 4, 0]
    assert blocks.reading(4) == 1.0


def test_what_reading_costs_is_learnt() -> None:
    price = ReadingPrice()
    assert price.seconds(FIRST_RATE) == pytest.approx(1.0 + LATENCY)
    for _ in range(20):
        price.observe(10**6, LATENCY + 0.5)
    assert price.seconds(2 * 10**6) == pytest.approx(1.0 + LATENCY)
    for _ in range(400):
        price.doubt()
    assert price.seconds(2 * 10**6) < 2 * LATENCY, "a disk that was slow once is tried again"
    price.observe(10**6, LATENCY + 0.5)
    assert price.seconds(2 * 10**6) > 0.1
