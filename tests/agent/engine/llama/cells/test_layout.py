"""Which layout is chosen."""

from functools import partial
from typing import Any

import pytest

from arriero.agent.engine.llama.cells import layout
from arriero.agent.engine.llama.cells.layout import Layout, choose_layout
from arriero.agent.engine.load_options import LayoutChoice, LoadOptions
from arriero.agent.engine.model_error import ModelError


def choose(
    kv_layout: LayoutChoice,
    *,
    can_share: bool = True,
    is_offloaded: bool = False,
    has_grid: bool = False,
    **options: Any,
) -> Layout:
    wanted = LoadOptions(**{"context_size": 1000, "kv_layout": kv_layout, **options})
    return choose_layout(wanted, can_share=can_share, is_offloaded=is_offloaded, has_grid=has_grid)


def test_streams_have_whole_blocks_of_cells() -> None:
    assert choose("streams") == Layout(4 * 1024, 4)
    assert choose("streams").name == "streams"
    assert choose("streams", kv_cells=9000) == Layout(8 * 1024, 8), "more of them keep prefixes"


def test_one_cache_has_as_many_as_it_is_given() -> None:
    assert choose("unified") == Layout(4000)
    assert choose("unified", kv_cells=1500) == Layout(1500)
    assert choose("unified").name == "unified"


def test_auto_takes_one_cache() -> None:
    assert choose("auto") == Layout(4000)
    assert choose("auto", kv_cells=9000) == Layout(9000)


def test_auto_would_take_streams_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "AUTO", "streams")
    assert choose("auto") == choose("streams")
    assert choose("auto", kv_cells=3999).name == "unified"
    assert choose("auto", can_share=False).name == "unified"
    assert choose("auto", has_grid=True).name == "unified"
    assert choose("auto", is_offloaded=True).name == "unified"
    assert choose("auto", slots=1).name == "unified"


def test_a_deterministic_engine_has_streams_in_groups_with_room_for_filling_rows() -> None:
    fixed = partial(choose, "auto", deterministic=True)
    assert fixed() == Layout(4 * 1024, 4)
    assert fixed(slots=3) == Layout(4 * 1024, 4)
    assert fixed(slots=5) == Layout(8 * 1024, 8)
    assert fixed(slots=9) == Layout(16 * 1024, 16)
    assert fixed(context_size=1024) == Layout(4 * 1280, 4)
    with pytest.raises(ModelError, match="cannot drop their last"):
        fixed(can_share=False)
    with pytest.raises(ModelError, match="--gpu-layers 0"):
        fixed(is_offloaded=True)
    with pytest.raises(ModelError, match="raise --kv-cells 3999"):
        fixed(kv_cells=3999)


def test_streams_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(ModelError, match=r"raise --kv-cells 3999 to 4000, or set --kv-layout"):
        choose("streams", kv_cells=3999)
    with pytest.raises(ModelError, match="cannot drop their last tokens"):
        choose("streams", can_share=False)
