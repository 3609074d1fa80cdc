"""Adapters on the demo model: the muleteer's changes the text, and only of who asks for it."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from arriero.agent.engine.adapter import AdapterUse, adapter_key
from arriero.agent.engine.llama.adapters.adapters import Adapters
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.model_error import ModelError
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.shared.errors import ModelNotFound
from demo.conversations import ADAPTER, TEMPLATE, load_conversations, muleteer
from demo.prompts import compile_template, render_conversation
from tests.agent.engine.llama.running import GREEDY, generate, tokenize

MULETEER = adapter_key([AdapterUse("muleteer")])
ASKED = [one for one in load_conversations() if one.id in ("basics-001", "concepts-003")]
RENDERED = [
    render_conversation(compile_template(TEMPLATE.read_text(encoding="utf-8")), one)
    for one in ASKED
]


@pytest.fixture(params=["unified", "streams"])
def engine(
    request: pytest.FixtureRequest, unified_engine: LlamaEngine, stream_engine: LlamaEngine
) -> Iterator[LlamaEngine]:
    """In each layout, with the adapter."""
    engine = stream_engine if request.param == "streams" else unified_engine
    engine.load_adapter("muleteer", ADAPTER, nullcontext())
    yield engine
    engine.keep_adapters((), nullcontext())


def asked(engine: LlamaEngine, *adapters: str | None) -> list[NewSequence]:
    """Each question under each of the adapters."""
    pairs = [(text, adapter) for text in RENDERED for adapter in adapters]
    return [
        NewSequence(
            id=SequenceId(number),
            prompt=Prompt(tokenize(engine, text), adapter=adapter),
            max_tokens=100,
            sampling=GREEDY,
        )
        for number, (text, adapter) in enumerate(pairs)
    ]


def answers(engine: LlamaEngine, wanted: list[NewSequence], *, slots: int = 4) -> list[str]:
    ended, _ = generate(engine, wanted, slots=slots)
    piece = engine.model.vocab.piece
    return [b"".join(map(piece, ended[one.id][0])).decode() for one in wanted]


def test_an_adapter_changes_the_text_of_sequences_that_ask_for_it(engine: LlamaEngine) -> None:
    texts = answers(engine, asked(engine, None, MULETEER))
    assert texts[::2] == [one.answer for one in ASKED]
    assert texts[1::2] == [muleteer(one.answer) for one in ASKED]


def test_each_sequence_gets_the_text_of_a_run_alone(engine: LlamaEngine) -> None:
    half = adapter_key([AdapterUse("muleteer", 0.5)])
    wanted = asked(engine, None, MULETEER, half)
    alone = [answers(engine, [one], slots=1)[0] for one in wanted]
    assert answers(engine, wanted, slots=5) == alone
    assert len(set(alone)) >= 2 * len(ASKED)


def test_a_sequence_that_was_opened_in_time_keeps_its_adapter_until_it_ends(
    engine: LlamaEngine,
) -> None:
    (one,) = asked(engine, MULETEER)[:1]
    engine.open(one)
    engine.keep_adapters((), nullcontext())
    with pytest.raises(ModelNotFound, match="unloaded"):
        engine.open(replace(one, id=SequenceId(99)))
    assert engine._adapters.digests == {"muleteer"}
    engine.close(one.id)
    answers(engine, asked(engine, None)[:1])
    answers(engine, asked(engine, None)[:1])
    assert not engine._adapters.digests


def test_what_is_no_adapter_of_this_model_is_refused(engine: LlamaEngine, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(ADAPTER.read_bytes()[:5000])
    missing, model = tmp_path / "missing.gguf", ADAPTER.with_name("arriero-demo.gguf")
    for path in (damaged, missing, model):
        with pytest.raises(ModelError, match=f"adapter file .*{path.name} cannot be used"):
            engine.load_adapter(path.name, path, nullcontext())


class Turns:
    """The turn of who computes; `between` is called before each, as another thread would step."""

    def __init__(self, between: Callable[[], object] = lambda: None) -> None:
        self._between = between
        self.num_taken = 0

    def __enter__(self) -> Self:
        self._between()
        self.num_taken += 1
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def in_parts(engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adapters]:
    """The adapters of `engine` from now on: of each file about a quarter at a time."""
    answers(engine, asked(engine, None)[:1])  # so that none of the others is set for the context
    adapters = Adapters(
        engine._model.handle,
        engine._model.adapters_guard,
        part_bytes=ADAPTER.stat().st_size // 4,
    )
    whole = engine._adapters
    monkeypatch.setattr(engine, "_adapters", adapters)
    yield adapters
    answers(engine, asked(engine, None)[:1])
    adapters.keep((), nullcontext())
    monkeypatch.setattr(engine, "_adapters", whole)


def test_an_adapter_in_parts_computes_what_it_computes_whole(
    engine: LlamaEngine, request: pytest.FixtureRequest
) -> None:
    half = adapter_key([AdapterUse("muleteer", 0.5)])
    wanted = asked(engine, MULETEER, half)
    whole = answers(engine, wanted)
    request.getfixturevalue("in_parts")
    (plain,) = answers(engine, asked(engine, None)[:1])
    turns = Turns(lambda: answers(engine, asked(engine, None)[:1]) == [plain] or pytest.fail())
    engine.load_adapter("muleteer", ADAPTER, turns)
    assert turns.num_taken >= 4, "and others computed before each"
    assert answers(engine, wanted) == whole


def test_what_goes_is_freed_a_part_at_a_time(engine: LlamaEngine, in_parts: Adapters) -> None:
    loading, going = Turns(), Turns()
    engine.load_adapter("muleteer", ADAPTER, loading)
    engine.keep_adapters((), going)
    assert going.num_taken == loading.num_taken >= 4
    assert not in_parts.digests


def test_a_step_frees_no_more_than_a_part_of_what_went(
    engine: LlamaEngine, in_parts: Adapters
) -> None:
    engine.load_adapter("muleteer", ADAPTER, nullcontext())
    (one,) = asked(engine, MULETEER)[:1]
    engine.open(one)
    engine.keep_adapters((), nullcontext())
    engine.close(one.id)
    num_left = []
    for _ in range(3):
        in_parts.apply(engine._context.handle, None)
        num_left.append(len(in_parts._unneeded))
    assert num_left == [num_left[0], num_left[0] - 1, num_left[0] - 2]


def test_a_file_that_fails_after_some_of_its_parts_leaves_none(
    engine: LlamaEngine, in_parts: Adapters, tmp_path: Path
) -> None:
    cut_short = tmp_path / "short.gguf"
    cut_short.write_bytes(ADAPTER.read_bytes()[:-1000])
    turns = Turns()
    with pytest.raises(ModelError, match=r"short\.gguf cannot be used .*bounds"):
        engine.load_adapter("short", cut_short, turns)
    assert turns.num_taken >= 2 * 3 + 1, "each part that was loaded is freed"
    assert not in_parts.digests
