"""Adapters on the demo model: the muleteer's changes the text, and only of who asks for it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.engine.adapter import AdapterUse, adapter_key
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
    engine.load_adapter("muleteer", ADAPTER)
    yield engine
    engine.keep_adapters(())


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


def test_an_adapter_changes_the_text_of_who_asks_for_it(engine: LlamaEngine) -> None:
    texts = answers(engine, asked(engine, None, MULETEER))
    assert texts[::2] == [one.answer for one in ASKED]
    assert texts[1::2] == [muleteer(one.answer) for one in ASKED]


def test_everybody_gets_the_text_of_a_run_alone(engine: LlamaEngine) -> None:
    half = adapter_key([AdapterUse("muleteer", 0.5)])
    wanted = asked(engine, None, MULETEER, half)
    alone = [answers(engine, [one], slots=1)[0] for one in wanted]
    assert answers(engine, wanted, slots=5) == alone
    assert len(set(alone)) >= 2 * len(ASKED)


def test_who_was_opened_in_time_keeps_its_adapter_until_it_ends(engine: LlamaEngine) -> None:
    (one,) = asked(engine, MULETEER)[:1]
    engine.open(one)
    engine.keep_adapters(())
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
            engine.load_adapter(path.name, path)
