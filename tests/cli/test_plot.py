from xml.etree import ElementTree

from arriero.cli.plot import HEIGHT, WIDTH, line_plot


def test_it_is_svg_with_a_point_for_each_value() -> None:
    root = ElementTree.fromstring(line_plot("<m>", ["1", "2"], [3.0, 6.0], unit="t/s"))
    circles = [each for each in root.iter() if each.tag.endswith("circle")]
    heights = [float(each.attrib["cy"]) for each in circles]
    assert heights[0] > heights[1] > 0
    assert all(0 < float(each.attrib["cx"]) < WIDTH for each in circles)
    assert max(heights) < HEIGHT
    assert "<m>" in "".join(root.itertext())


def test_one_value_and_none_can_be_drawn() -> None:
    for values in ([0.0], []):
        ElementTree.fromstring(line_plot("m", ["1"] * len(values), values, unit="s"))
