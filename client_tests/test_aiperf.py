"""aiperf, a benchmark: each of its requests is answered, and it reads our counts."""

import json

import pytest

from client_tests.program import Desk
from client_tests.tokenizer import tokenizer_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUM_REQUESTS = 6
NUM_TOKENS = 16


async def test_a_benchmark(desk: Desk) -> None:
    arguments = [
        "--model=arriero-demo",
        f"--url={desk.arriero.url}",
        "--endpoint-type=chat",
        "--streaming",
        "--concurrency=2",
        f"--request-count={NUM_REQUESTS}",
        "--isl=40",
        f"--osl={NUM_TOKENS}",
        "--extra-inputs=ignore_eos:true",
        f"--tokenizer={tokenizer_in(desk.home)}",
        "--no-gpu-telemetry",
        "--ui=none",
        "--artifact-dir=results",
    ]
    (await desk.run("aiperf", "aiperf", "profile", *arguments)).ok()
    exchanges = desk.arriero.of("/v1/chat/completions")
    assert [each.status for each in exchanges] == [200] * NUM_REQUESTS
    report = json.loads((desk.work / "results" / "profile_export_aiperf.json").read_text())
    assert report["error_summary"] == []
    assert report["request_count"]["avg"] == NUM_REQUESTS
    told, counted = report["usage_completion_tokens"], report["output_sequence_length"]
    assert (told["min"], told["max"]) == (NUM_TOKENS, NUM_TOKENS)
    # The client tokenises the text anew, which can come out a token longer or shorter.
    assert abs(counted["avg"] - NUM_TOKENS) <= 1
