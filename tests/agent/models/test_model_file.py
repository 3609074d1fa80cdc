"""A model's files on a host, and the adapters beside it."""

from dataclasses import replace

from arriero.agent.models.model_file import AdapterOnHost, AdaptersHere, ModelFile
from arriero.agent.models.port import OtherFile
from arriero.shared.models.assignments import Assignment, DesiredAdapter

PLAIN = Assignment(name="m", source="file:///m.gguf")
CALM = AdapterOnHost("file:///calm.gguf", "/calm.gguf", 10)
LOUD = AdapterOnHost("file:///loud.gguf", "/loud.gguf", 5)


def with_adapters(*adapters: AdapterOnHost) -> Assignment:
    found = (DesiredAdapter(name=one.path[1:-5], source=one.source) for one in adapters)
    return replace(PLAIN, adapters=tuple(found))


def test_adapters_are_counted_once_each() -> None:
    file = ModelFile("/m.gguf", 110, adapters=(CALM,))
    assert file.alone == ModelFile("/m.gguf", 100)
    assert file.with_adapters((LOUD, CALM, LOUD)).needed == 115
    assert ModelFile("/m.gguf", None).with_adapters((LOUD,)).needed is None


def test_the_longest_of_shorter_contexts_that_fits() -> None:
    file = ModelFile("/m.gguf", 200, shorter=((2048, 150), (1024, 125)))
    assert [file.context_within(memory) for memory in (160, 150, 149, 125, 124)] == [
        *(2048, 2048, 1024, 1024, None)
    ]
    with_adapter = replace(file, adapters=(CALM,))
    assert with_adapter.context_within(150) == 1024, "that takes memory, too"
    assert ModelFile("/m.gguf", 200).context_within(150) is None


def test_the_largest_other_quantisation_that_fits() -> None:
    others = tuple(OtherFile(str(size), size) for size in (90, 60, 70, 20))
    file = ModelFile("/m.gguf", 150, bytes=100, others=others)
    found = [file.other_within(memory) for memory in (150, 139, 120, 70, 69)]
    assert [None if each is None else each.bytes for each in found] == [90, 70, 70, 20, None]
    lean = replace(file, least=110).other_within(100)
    assert lean is not None and lean.bytes == 90
    assert ModelFile("/m.gguf", None, others=others).other_within(1000) is None


def test_what_a_wish_has_besides() -> None:
    here = AdaptersHere((CALM,))
    assert here.missing(PLAIN) == () == here.missing(with_adapters(CALM))
    (missing,) = here.missing(with_adapters(LOUD, CALM))
    assert missing.source == LOUD.source
    here.add((LOUD,))
    assert here.missing(with_adapters(LOUD, CALM)) == ()
    assert here.of(with_adapters(LOUD, CALM)) == (LOUD, CALM) and here.of(PLAIN) == ()


def test_what_nobody_wishes_for_is_forgotten() -> None:
    here = AdaptersHere((CALM, LOUD))
    here.keep_only(with_adapters(LOUD), with_adapters(CALM))
    assert here.all == (CALM, LOUD)
    here.keep_only(with_adapters(LOUD), PLAIN)
    assert here.all == (LOUD,)
