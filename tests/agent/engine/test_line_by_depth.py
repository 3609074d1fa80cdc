"""Lines by depth."""

import pytest

from arriero.agent.engine.line_by_depth import LineByDepth


def test_each_octave_has_its_own() -> None:
    lines = LineByDepth()
    assert not lines.at(0).is_known
    for depth, seconds in ((0, 0.4), (300, 0.5), (5000, 2.0), (255, 0.4)):
        lines.observe(depth, 100, seconds)
    assert lines.at(255).predict(100) == pytest.approx(0.4)
    assert lines.at(256).predict(100) == pytest.approx(0.5)
    assert lines.at(4096).predict(100) == pytest.approx(2.0)
    assert lines.at(2000).predict(100) == pytest.approx(0.5), "the next shallower one"


def test_a_deeper_one_is_better_than_none() -> None:
    lines = LineByDepth()
    lines.observe(5000, 100, 2.0)
    assert lines.at(0).predict(100) == pytest.approx(2.0)
