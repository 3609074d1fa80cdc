from pathlib import Path

import pytest

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.assigned_settings import OptionsError, assigned_settings
from arriero.shared.models.assignments import Assignment, EngineOptions

SETTINGS = AgentSettings(name="box", slots=3, context_size=64, threads=2, max_stall=0.25)
PLAIN = Assignment(name="m", source="file:///m.gguf")


def test_the_agents_own_where_nothing_is_said() -> None:
    expected = SETTINGS.model_copy(update={"model": Path("/m.gguf")})
    assert assigned_settings(SETTINGS, PLAIN, "/m.gguf") == expected


def test_what_is_said_comes_first() -> None:
    options = EngineOptions(
        gpu_layers=0,
        kv_cells=64,
        host_cache=0,
        threads=1,
        max_stall=2.0,
        speculate=4,
        draft_model="/d.gguf",
    )
    assignment = Assignment(
        name="m", source="file:///m.gguf", slots=8, context_size=32, engine=options
    )
    expected = {
        "model": Path("/m.gguf"),
        "slots": 8,
        "context_size": 32,
        "gpu_layers": 0,
        "kv_cells": 64,
        "host_cache": 0,
        "threads": 1,
        "max_stall": 2.0,
        "speculate": 4,
        "draft_model": Path("/d.gguf"),
    }
    found = assigned_settings(SETTINGS, assignment, "/m.gguf")
    assert found == SETTINGS.model_copy(update=expected)


def test_options_that_do_not_go_together() -> None:
    assignment = Assignment(name="m", source="file:///m.gguf", engine=EngineOptions(kv_cells=32))
    with pytest.raises(OptionsError, match=r"`kv_cells`: .*64") as caught:
        assigned_settings(SETTINGS, assignment, "/m.gguf")
    assert caught.value.issue.code == "invalid_options"
