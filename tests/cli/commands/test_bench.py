import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from arriero.cli.commands.bench import HEIGHT, WIDTH, line_plot, main
from tests.cli.test_load import END, USAGE, chunk
from tests.client.fakes import FakeServer, says, writes

GOOD = writes(chunk(content="a"), chunk(content="b"), USAGE, END)
MODELS = says({"data": [{"id": "m"}]})


def test_each_level_is_measured(
    balancer: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(MODELS, *[GOOD] * 5)
    plot = tmp_path / "plot.svg"
    argv = [f"{balancer.url}/v1/", "--concurrency", "1,2", "--json", "--plot", str(plot)]
    assert main([*argv, "--requests", "2", "--prompt-words", "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["concurrency"], each["requests"]) for each in told["levels"]] == [(1, 2), (2, 2)]
    assert all(each["tokens_per_second"] > 0 for each in told["levels"])
    body = json.loads(balancer.seen[1][2])
    assert (body["model"], len(body["messages"][0]["content"].split())) == ("m", 3)
    assert "<svg" in plot.read_text()


def test_answers_in_one_piece(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"choices": [{"message": {"content": "a b"}}], "usage": {"completion_tokens": 5}}
    balancer.will(MODELS, says(answer), says(answer))
    argv = [balancer.url, "--concurrency", "1", "--requests", "2", "--no-stream", "--json"]
    assert main(argv) == 0
    (level,) = json.loads(capsys.readouterr().out)["levels"]
    assert "stream" not in json.loads(balancer.seen[1][2])
    assert (level["failed"], level["first_p50"]) == (0, None)
    assert level["requests_per_second"] > 0
    assert 0 < level["total_p50"] <= level["total_p95"] <= level["total_p99"]


def test_failures_are_counted_and_told(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(GOOD, says({"error": {"message": "full"}}, status=503))
    argv = [balancer.url, "--model", "m", "--concurrency", "1", "--requests", "2"]
    assert main(argv) == 1
    out = capsys.readouterr().out
    assert "503" in out
    [row] = [each.split() for each in out.splitlines() if each.split()[:1] == ["1"]]
    assert row[:3] == ["1", "2", "1"]


def test_a_server_without_a_model_is_told_of(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(says({"data": []}))
    assert main([balancer.url]) == 2
    assert "serves no model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["--concurrency", "0"], ["--requests", "x"], ["--max-tokens", "-1"]]
)
def test_wrong_arguments_are_refused(argv: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)


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
