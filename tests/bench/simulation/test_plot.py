from xml.etree import ElementTree

import pytest

from bench.simulation.plot import HEIGHT, WIDTH, Axis, line_chart


def test_a_chart_is_well_formed_and_names_are_escaped() -> None:
    lines = {"a < b": [(1.0, 0.0), (100.0, 1.0)], "other": [(1.0, 1.0), (10.0, 0.5)]}
    text = line_chart("T & U", "seconds", lines, Axis(1, 100, is_logarithmic=True), Axis(0, 1))
    root = ElementTree.fromstring(text)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"T & U", "seconds", "a < b", "other", "1", "10", "100"} <= set(texts)
    drawn = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(drawn) == 2
    for line in drawn:
        for point in line.attrib["points"].split():
            across, down = map(float, point.split(","))
            assert 0 <= across <= WIDTH and 0 <= down <= HEIGHT


def test_places_on_axes() -> None:
    assert Axis(1, 100, is_logarithmic=True).place(10) == pytest.approx(0.5)
    assert Axis(1, 100, is_logarithmic=True).place(0) == 0
    assert Axis(0, 4).place(1) == 0.25
    assert Axis(0, 4).ticks() == [0, 1, 2, 3, 4]
    assert Axis(0.05, 50, is_logarithmic=True).ticks() == [0.1, 1.0, 10.0]
