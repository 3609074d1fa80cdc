"""The engines of a host: who is here in which role, and what fits beside whom."""

from dataclasses import replace

import pytest

from arriero.agent.models.model_file import AdapterOnHost, ModelFile
from arriero.agent.models.port import OtherFile
from arriero.agent.supervision.decisions import (
    ChangeEngine,
    EndEngine,
    EngineId,
    RetireEngine,
    StartEngine,
)
from arriero.agent.supervision.engines import Engine, Engines, Load
from arriero.agent.supervision.room import Room
from arriero.shared.models.assignments import HOST, Assignment, MemoryPart

A = Assignment(name="a", source="file:///a.gguf", slots=2)
HALF, MOST = ModelFile("half.gguf", 50), ModelFile("most.gguf", 90)
UNKNOWN = ModelFile("unknown.gguf", None)


@pytest.fixture
def engines() -> Engines:
    return Engines(Room(100))


def started(engines: Engines, file: ModelFile) -> Engine:
    decision = engines.start(Load(A, file), "replacing")
    return engines[decision.id]


def test_a_role_has_one_engine(engines: Engines) -> None:
    assert engines.start(None, "serving") == StartEngine(EngineId(1), None, None)
    second = started(engines, HALF)
    assert (engines.serving, engines.replacing) == (engines[EngineId(1)], second)
    assert engines.latest is second
    second.role = "retiring"
    assert engines.latest is engines.serving
    assert (engines.staying, engines.leaving) == ([engines.serving], [second])
    assert engines.pop(second.id) is second
    assert engines.get(second.id) is None and len(engines) == 1


def test_one_that_leaves_connects_nobody(engines: Engines) -> None:
    engine = started(engines, HALF)
    assert not (engines.is_connected or engines.is_connecting)
    engine.is_loaded = True
    assert engines.is_connecting
    engine.has_joined = True
    assert engines.is_connected and not engines.is_connecting
    engine.role = "retiring"
    assert not engines.is_connected


def test_what_fits_beside_others(engines: Engines) -> None:
    half = started(engines, HALF)
    assert engines.fits(Load(A, MOST), [])
    assert engines.fits(Load(A, HALF), [half])
    assert not engines.fits(Load(A, MOST), [half])
    assert not engines.fits(Load(A, UNKNOWN), [half]), "who knows"
    assert Load(A, HALF).is_free(50) and not Load(A, HALF).is_free(49)
    assert Load(A, HALF).is_free(None) and Load(A, UNKNOWN).is_free(1)


def test_what_fits_nowhere() -> None:
    issue = Engines(Room(80)).too_large(MOST)
    assert issue is not None and issue.code == "too_large"
    assert "tokens" not in issue.hint
    known = replace(MOST, shorter=((2048, 85), (1024, 75), (512, 70)))
    shorter = Engines(Room(80)).too_large(known)
    assert shorter is not None and "with a context of 1024 tokens" in shorter.hint
    smaller = replace(MOST, bytes=50, others=(OtherFile("hf://o/r:Q4_0", 40),))
    other = Engines(Room(80)).too_large(smaller)
    assert other is not None and other.hint.startswith("hf://o/r:Q4_0 (0 MiB) fits; or")
    assert Engines(Room(90)).too_large(MOST) is None
    assert Engines(Room(80)).too_large(replace(MOST, least=80)) is None
    assert Engines(Room(80)).too_large(replace(MOST, least=81)) is not None
    assert Engines(Room(80)).too_large(UNKNOWN) is None
    assert Engines(Room(0)).too_large(MOST) is None, "unknown memory"


def test_only_one_that_serves_has_something_to_finish(engines: Engines) -> None:
    loading, serving = started(engines, HALF), started(engines, HALF)
    serving.role, serving.is_loaded = "serving", True
    assert loading.retire(7.0) == EndEngine(loading.id)
    assert serving.retire(7.0) == RetireEngine(serving.id, 7.0)
    assert serving.role == loading.role == "retiring"


def test_fewer_slots_need_no_reload(engines: Engines) -> None:
    engine = started(engines, HALF)
    fewer = Assignment(name="b", source=A.source, slots=1)
    assert engine.can_become(fewer, slots=4)
    assert not engine.can_become(Assignment(name="b", source=A.source), slots=4), "4 are more"
    assert engine.change(fewer) == [], "it is told once it is loaded"
    engine.is_loaded = True
    assert engine.change(fewer) == []
    assert engine.change(A) == [ChangeEngine(engine.id, A)]


def test_a_pinned_engine_becomes_nothing_else(engines: Engines) -> None:
    engines.start(None, "serving")
    assert engines.serving is not None and not engines.serving.can_become(A, slots=4)


def test_two_where_memory_is_short(engines: Engines) -> None:
    started(engines, MOST).role = "serving"
    engines.check_integrity()
    started(engines, HALF)
    with pytest.raises(RuntimeError, match="more memory than there is"):
        engines.check_integrity()


def test_what_it_holds_once_it_is_loaded_counts() -> None:
    def claims(**parts: int) -> tuple[MemoryPart, ...]:
        return tuple(MemoryPart(device=name, bytes=size) for name, size in parts.items())

    engines = Engines(Room(150, {HOST: 50, "GPU": 100}))
    file = ModelFile("a.gguf", 60, claims=claims(CPU=20, GPU=40))
    engine = started(engines, file)
    assert engines.fits(Load(A, file), [engine])
    engine.held = claims(GPU=70)
    assert engine.in_memory == replace(file, claims=claims(GPU=70, CPU=20))
    assert engine.file == file, "by which its lease is known"
    assert not engines.fits(Load(A, file), [engine]), "it took more than it claimed"
    modest = replace(A, takes_what_is_left=True)
    assert engines.fits(Load(modest, file), [engine]) and modest == A
    engine.held = claims(GPU=70, CPU=40)
    engine.adapters.add([AdapterOnHost("file:///x.gguf", "x.gguf", 5)])
    assert engine.in_memory is not None
    assert engine.in_memory.claims == claims(GPU=70, CPU=40), "as balancers know it"
    assert engine.in_memory.needed == 65
    other = started(engines, file)
    assert engines.beside(other.id) == claims(GPU=70, CPU=40)
    assert dict_of(engines.beside(EngineId(9))) == {"GPU": 110, "CPU": 60}, "both"


def dict_of(parts: tuple[MemoryPart, ...]) -> dict[str, int]:
    return {part.device: part.bytes for part in parts}
