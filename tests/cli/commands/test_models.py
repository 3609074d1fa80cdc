import json
from typing import Any

import pytest

from arriero.cli.commands.models import main, name_of
from tests.client.fakes import FakeServer, says

MODELS = [
    {
        "name": "m",
        "status": "loading",
        "progress": 0.5,
        "agents": ["a"],
        "slots": {"total": 4, "busy": 3},
        "waiting": 2,
        "placement": "on box; not on laptop, which has 1.0 GiB too little",
        "issues": [],
    },
    {
        "name": "n",
        "status": "failed",
        "progress": None,
        "agents": [],
        "issues": [{"code": "not_found", "message": "no such file", "hint": "check the path"}],
    },
]


def test_models(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(*[says({"models": MODELS})] * 2, says({"models": []}))
    assert main([]) == 0
    _, *rows, issue = [each.split() for each in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["m", "loading", "50%", "1", "3/4", "2"]
    assert rows[1] == ["n", "failed", "0", "-/-", "-"]
    assert " ".join(rows[2]) == "m: on box; not on laptop, which has 1.0 GiB too little"
    assert " ".join(issue) == "n: no such file → check the path"
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == MODELS
    assert main([]) == 0
    assert "arriero models --help" in capsys.readouterr().out


FITS = {
    "source": "hf://org/repo:Q4_K_M",
    "agents": [
        {
            "agent": "2",
            "name": "small",
            "fit": {
                "said": "9 layers in memory (2.0 of 1.0 GiB)",
                "missing": 2**30,
                "nearest": "hf://org/repo:Q2_K (0.9 GiB) fits",
            },
            "issue": None,
        },
        {
            "agent": "1",
            "name": "large",
            "fit": {"said": "9 of 9 layers on CUDA0", "missing": 0, "nearest": ""},
            "issue": None,
        },
        {
            "agent": "3",
            "name": "tiny",
            "fit": None,
            "issue": {"code": "gated", "message": "the hub refuses", "hint": "set HF_TOKEN"},
        },
    ],
}


def test_where_one_fits(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(*[says(FITS)] * 2, says({"source": "file:///m", "agents": []}))
    argv = ["fit", "hf://org/repo:Q4_K_M", "--slots", "2"]
    assert main(argv) == 0
    rows = [" ".join(each.split()) for each in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [
        "large yes 9 of 9 layers on CUDA0",
        "small no 1.0 GiB too little, even for 9 layers in memory (2.0 of 1.0 GiB); "
        "hf://org/repo:Q2_K (0.9 GiB) fits",
        "tiny unknown the hub refuses; set HF_TOKEN",
        "the memory of models that run now does not count as free",
    ]
    method, path, _ = balancer.seen[0]
    assert method == "GET"
    assert path == "/api/v1/models/fit?source=hf://org/repo:Q4_K_M&slots=2"
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == FITS
    assert main(["fit", "/m"]) == 0
    assert "no agent is connected" in capsys.readouterr().out


STATE = {
    "models": [
        {"name": "m", "source": "file:///m", "agents": {"labels": {"a": "b"}, "replicas": 1}},
        {"name": "n", "source": "file:///n"},
    ]
}


def written(balancer: FakeServer, *argv: str) -> Any:
    """The models that a command wished for."""
    balancer.seen.clear()
    balancer.will(says(STATE, ETag='"7"'), says({"agents": []}), says(STATE))
    assert main([*argv]) == 0
    method, path, body = balancer.seen[2]
    assert (method, path) == ("PUT", "/api/v1/desired-state")
    return json.loads(body)["models"]


def test_one_more(balancer: FakeServer) -> None:
    flags = [
        "--replicas",
        "2",
        "--slots",
        "8",
        "--label",
        "gpu=yes",
        "--alias",
        "gpt",
        "--no-preload",
    ]
    *before, new = written(balancer, "add", "hf://org/Qwen3-8B-GGUF:Q4_K_M", *flags)
    assert before == STATE["models"]
    assert new == {
        "name": "Qwen3-8B",
        "source": "hf://org/Qwen3-8B-GGUF:Q4_K_M",
        "slots": 8,
        "preload": False,
        "aliases": ["gpt"],
        "agents": {"replicas": 2, "labels": {"gpu": "yes"}},
    }


def test_one_is_changed_where_flags_say_so(balancer: FakeServer) -> None:
    changed, other = written(balancer, "set", "m", "--replicas", "all", "--slots", "2")
    labels = {"labels": {"a": "b"}, "replicas": "all"}
    assert changed == {"name": "m", "source": "file:///m", "slots": 2, "agents": labels}
    assert other == STATE["models"][1]


def test_one_is_removed_without_a_question(balancer: FakeServer) -> None:
    assert written(balancer, "remove", "m") == STATE["models"][1:]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["add"], "add which model? Give its source"),
        (["fit"], "fit which model? Give its source"),
        (["remove"], "remove which model? Give its name"),
        (["remove", "x"], "no desired model is called 'x'; desired: m, n"),
        (["add", "/other/m.gguf"], "m is desired already: give another --name"),
        (["add", "m.gguf"], "'m.gguf' is not a source"),
    ],
)
def test_what_cannot_be_done(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    balancer.will(says(STATE, ETag='"7"'))
    assert main(argv) == 2
    assert said in capsys.readouterr().err
    assert "PUT" not in [method for method, _, _ in balancer.seen]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("hf://org/Qwen3-8B-GGUF:Q4_K_M@main", "Qwen3-8B"),
        ("hf://org/repo/folder/Model-Q8_0.gguf@v1", "Model-Q8_0"),
        ("https://host/a/M-00001-of-00003.gguf?download=true", "M"),
        ("file:///models/qwen3-8b.gguf", "qwen3-8b"),
    ],
)
def test_the_name_of_a_source(source: str, name: str) -> None:
    assert name_of(source) == name
