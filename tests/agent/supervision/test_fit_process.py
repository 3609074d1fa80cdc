"""What this host would choose, of files that are here and of one that is not."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.fit_process import answer
from arriero.agent.supervision.fit_reader import COMMAND, FitOrder
from arriero.shared.inference import RequestId
from arriero.shared.messages import FitRead, Issue, ReadFit
from arriero.shared.reports.model_info import ModelFit
from tests.agent.gguf.gguf_files import header
from tests.agent.models.file_server import Served, file_server
from tests.waiting import HANGS

ABOUT = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 8192,
    "llama.embedding_length": 1024,
    "llama.attention.head_count": 8,
}
TENSORS = {"token_embd.weight": (1024, 32), "blk.0.attn_q.weight": (1024, 1024)}
NUM_BYTES = 4 * 1024 * (32 + 1024)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(ABOUT, TENSORS) + bytes(NUM_BYTES))
    return path


def order(source: str, question: dict[str, Any] | None = None, **settings: Any) -> FitOrder:
    asked = ReadFit(id=RequestId("r"), source=source, **(question or {}))
    return FitOrder(settings=AgentSettings(**settings), question=asked)


def fits(order: FitOrder) -> ModelFit:
    read = answer(order)
    assert read.id == "r"
    assert read.fit is not None, read.issue
    return read.fit


def fails(order: FitOrder) -> Issue:
    issue = answer(order).issue
    assert issue is not None
    return issue


def test_a_model_that_fits(model: Path) -> None:
    fit = fits(order(f"file://{model}", slots=2, fit_target=0))
    assert (fit.missing, fit.slots, fit.context_size, fit.cells) == (0, 2, 8192, 16_384)
    assert fit.said.startswith("2 layers in memory (")
    assert fit.said.endswith("2 slots of 8,192")
    assert fit.file_bytes == model.stat().st_size


def test_the_question_may_say_how_many_slots_and_how_long(model: Path) -> None:
    fit = fits(order(f"file://{model}", {"slots": 3, "context_size": 512}, slots=2, fit_target=0))
    assert (fit.slots, fit.context_size, fit.cells) == (3, 512, 1536)


def test_a_model_for_which_there_is_no_memory(model: Path) -> None:
    fit = fits(order(f"file://{model}", fit_target=2**50))
    assert fit.missing > fit.file_bytes
    assert fit.context_size == fit.cells == AgentSettings().fit_ctx
    assert fit.nearest == ""


def test_a_shorter_context_would_do(model: Path) -> None:
    """Of cells of 16 KiB; 2**24 of them for each slot are more than hosts of tests have."""
    question = {"slots": 256, "context_size": 2**24}
    fit = fits(order(f"file://{model}", question, fit_target=0, kv_layout="streams"))
    assert fit.missing > 2**40
    found = re.fullmatch(r"with a context of (\d+) tokens a slot it fits", fit.nearest)
    assert found is not None
    shorter = {"slots": 256, "context_size": int(found[1])}
    assert fits(order(f"file://{model}", shorter, kv_layout="streams", fit_target=0)).missing == 0


@pytest.mark.parametrize(
    ("source", "settings", "code", "said"),
    [
        ("file:///nowhere/m.gguf", {}, "not_found", "/nowhere/m.gguf: No such file"),
        ("http://files.example/m.gguf", {}, "denied", "--model-source-http files.example"),
        ("MODEL", {"fit": "off"}, "invalid_options", "--fit off"),
        ("MODEL", {"device": "CUDA7", "gpu_layers": "auto"}, "invalid_options", "CUDA7"),
        ("MODEL", {"gpu_layers": "auto", "rpc": "127.0.0.1:9"}, "invalid_options", "--rpc"),
    ],
)
def test_why_it_cannot_be_said(
    model: Path, source: str, settings: dict[str, Any], code: str, said: str
) -> None:
    issue = fails(order(source.replace("MODEL", f"file://{model}"), **settings))
    assert (issue.code, said in issue.message) == (code, True), issue


def test_a_header_that_says_too_little(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header({"general.architecture": "llama"}))
    assert "too little information" in fails(order(f"file://{path}")).message


def test_the_process_answers_for_a_file_that_is_not_here(model: Path) -> None:
    with file_server() as server:
        source = server.serve("/m.gguf", Served(model.read_bytes()))
        line = TypeAdapter(FitOrder).dump_json(order(source, slots=2, fit_target=0))
        process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        with process, process.stdin:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            read = TypeAdapter(FitRead).validate_json(process.stdout.readline())
    assert read.fit is not None
    assert (read.fit.missing, read.fit.context_size) == (0, 8192)
    assert read.fit.file_bytes == model.stat().st_size


def test_the_process_ends_with_its_agent() -> None:
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=HANGS)
    assert (done.returncode, done.stdout) == (0, b"")
