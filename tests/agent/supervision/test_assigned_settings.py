from dataclasses import fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.adapter_table import AdapterFile
from arriero.agent.models.model_file import AdapterOnHost, ModelFile
from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.assigned_settings import (
    OptionsError,
    assigned_settings,
    with_share_of_threads,
)
from arriero.shared.models.assignments import Assignment, DesiredAdapter
from arriero.shared.models.engine_options import EngineOptions
from tests.agent.engine.changed_options import changed

SETTINGS = AgentSettings(name="box", slots=3, context_size=64, threads=2, max_stall=0.25)
PLAIN = Assignment(name="m", source="file:///m.gguf")
FILE = ModelFile("/m.gguf")


def test_the_agents_own_where_nothing_is_said() -> None:
    expected = SETTINGS.model_copy(update={"model": Path("/m.gguf")})
    assert assigned_settings(SETTINGS, PLAIN, FILE) == expected


def test_what_is_said_comes_first() -> None:
    desired: dict[str, Any] = {"slots": 8, "context_size": 32}
    settings = SETTINGS.model_copy(update={"rope_scaling": "none"})
    names = [each.name for each in fields(EngineOptions)]
    all_changed = reduce(changed, names, settings.load_options)
    others = {name: getattr(all_changed, name) for name in names}
    options = EngineOptions(**{**others, "draft_model": str(others["draft_model"])})
    assignment = Assignment(name="m", source="file:///m.gguf", engine=options, **desired)
    expected = {"model": Path("/m.gguf"), **desired, **others}
    found = assigned_settings(settings, assignment, FILE)
    assert found == settings.model_copy(update=expected)


def test_options_that_do_not_go_together() -> None:
    assignment = Assignment(name="m", source="file:///m.gguf", engine=EngineOptions(kv_cells=32))
    with pytest.raises(OptionsError, match=r"^`kv_cells` must hold .*64") as caught:
        assigned_settings(SETTINGS, assignment, FILE)
    assert caught.value.issue.code == "invalid_options"


def test_options_of_both_sides_that_do_not_go_together() -> None:
    """The agent has no flash attention, and the desired state wants what needs it."""
    settings = SETTINGS.model_copy(update={"flash_attn": "off"})
    assignment = replace(PLAIN, engine=EngineOptions(cache_type_v="q8_0"))
    with pytest.raises(OptionsError, match=r"^`cache_type_v` must be f32, f16 or bf16"):
        assigned_settings(settings, assignment, FILE)


def test_what_is_wished_for_beside_the_model_replaces_the_agents_own() -> None:
    own = SETTINGS.model_copy(update={"projector": Path("/own"), "adapter": ("own=/own.gguf",)})
    adapters = (
        DesiredAdapter(name="a", source="file:///a.gguf"),
        DesiredAdapter(name="b", source="file:///b.gguf", scale=-1e-05),
    )
    desired = replace(PLAIN, projector="file:///p.gguf", adapters=adapters)
    on_host = (
        AdapterOnHost("file:///a.gguf", "/a.gguf", 1),
        AdapterOnHost("file:///b.gguf", "/b:2.gguf", 1),
    )
    file = replace(FILE, projector="/p.gguf", adapters=on_host)
    found = assigned_settings(own, desired, file)
    assert found.projector == Path("/p.gguf")
    assert found.adapters == (
        AdapterFile("a", Path("/a.gguf")),
        AdapterFile("b", Path("/b:2.gguf"), -1e-05),
    )
    assert assigned_settings(own, PLAIN, FILE).adapter == own.adapter
    assert assigned_settings(own, replace(PLAIN, adapters=()), FILE).adapter == ()


def test_a_draft_model_that_was_fetched() -> None:
    desired = replace(PLAIN, engine=EngineOptions(draft_model="https://host/d.gguf"))
    found = assigned_settings(SETTINGS, desired, replace(FILE, draft_model="/models/d.gguf"))
    assert found.draft_model == Path("/models/d.gguf")


def test_models_of_one_host_share_its_threads() -> None:
    settings = AgentSettings(threads=8, threads_batch=12)
    assert with_share_of_threads(settings, 1) == settings
    shared = with_share_of_threads(settings, 3)
    assert (shared.threads, shared.threads_batch) == (2, 4)
    assert with_share_of_threads(AgentSettings(threads=2), 4).threads == 1
    assert with_share_of_threads(AgentSettings(threads=2), 4).threads_batch is None
