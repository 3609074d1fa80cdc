"""guidellm, a benchmark: each of its requests is answered, and it reads our counts."""

import json

import pytest

from client_tests.program import Desk
from client_tests.tokenizer import tokenizer_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUM_REQUESTS = 6
NUM_TOKENS = 16
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
async def test_a_benchmark(desk: Desk, path: str) -> None:
    report = desk.work / "report.json"
    arguments = [
        f"--backend=kind=openai_http,target={desk.arriero.url},request_format={path}",
        "--profile=kind=concurrent,streams=2",
        f"--constraint=kind=max_requests,count={NUM_REQUESTS}",
        f"--tokenizer=kind=hf_auto,model={tokenizer_in(desk.home)}",
        f"--data=kind=synthetic_text,prompt_tokens=40,output_tokens={NUM_TOKENS}",
        f"--output=kind=json,path={report}",
        "--disable-console",
    ]
    (await desk.run("guidellm", "guidellm", "run", *arguments, env=OFFLINE)).ok()
    exchanges = desk.arriero.of(path)
    assert len(exchanges) >= NUM_REQUESTS
    assert {each.status for each in exchanges} == {200}
    assert all(each.json["ignore_eos"] for each in exchanges)
    [benchmark] = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (NUM_REQUESTS, 0)
    counts = [each["output_metrics"]["text_tokens"] for each in benchmark["requests"]["successful"]]
    assert counts == [NUM_TOKENS] * NUM_REQUESTS
    assert benchmark["metrics"]["time_to_first_token_ms"]["successful"]["mean"] > 0
