"""lm-eval, a harness for evaluations: texts scored, and texts generated."""

import json
from typing import Any

import pytest

from client_tests.program import Desk
from client_tests.tokenizer import tokenizer_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

QUESTIONS = [
    {"question": "What is a slot?", "choices": [" A place for one running sequence", " A hole"]},
    {"question": "Who dials in?", "choices": [" Agents", " Browsers of operators"]},
    {"question": "What is a queue?", "choices": [" Where requests wait", " It is ü blue"]},
]
"""The first choice is what the demo model learnt."""

CHOICE = {
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}\nAnswer:",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": 0,
    "metric_list": [{"metric": "acc"}],
}
ROLLING = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{question}}{{choices[0]}}",
    "metric_list": [{"metric": "bits_per_byte"}],
}
GENERATED = {
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{choices[0]}}",
    "generation_kwargs": {"until": ["\n\n", "."], "max_gen_toks": 24, "do_sample": False},
    "metric_list": [{"metric": "exact_match"}],
}


class Evaluation:
    """Tasks of the test's own, and what became of them."""

    def __init__(self, desk: Desk, **tasks: dict[str, Any]) -> None:
        self.desk = desk
        self.tasks = tasks
        data = desk.work / "questions.jsonl"
        data.write_text("".join(f"{json.dumps(each)}\n" for each in QUESTIONS))
        source = {
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
        }
        for name, task in tasks.items():  # JSON is YAML, too.
            (desk.work / f"{name}.yaml").write_text(json.dumps({"task": name} | source | task))

    async def run(self, model: str, arguments: str, *flags: str) -> dict[str, Any]:
        """The results by task."""
        command = ["run", "--model", model, "--model_args", f"model=arriero-demo,{arguments}"]
        command += ["--tasks", ",".join(self.tasks), "--include_path", str(self.desk.work)]
        command += ["--output_path", "results", *flags]
        (await self.desk.run("lm-eval", "lm-eval", *command, env=OFFLINE)).ok()
        [report] = self.desk.work.glob("results/**/results_*.json")
        results: dict[str, Any] = json.loads(report.read_text())["results"]
        return results


async def test_likelihoods_and_generation(desk: Desk) -> None:
    """With the model's tokenizer in a folder: prompts are token ids."""
    path = "/v1/completions"
    arguments = f"base_url={desk.arriero.url}{path},tokenizer={tokenizer_in(desk.home)}"
    arguments += ",tokenizer_backend=huggingface,num_concurrent=4,max_retries=1"
    evaluation = Evaluation(desk, choice=CHOICE, rolling=ROLLING, generated=GENERATED)
    results = await evaluation.run("local-completions", arguments, "--batch_size", "4")
    assert results["choice"]["acc,none"] == 1.0
    assert 0 < results["rolling"]["bits_per_byte,none"] < 8
    assert "exact_match,none" in results["generated"]
    exchanges = desk.arriero.of(path)
    assert {each.status for each in exchanges} == {200}
    scored = [each for each in exchanges if each.json.get("echo")]
    assert any(len(each.json["prompt"]) > 1 for each in scored)  # several texts in a request
    assert desk.outside.asked == []


async def test_likelihoods_with_the_servers_tokenizer(desk: Desk) -> None:
    """Found by lm-eval itself; the scores are those of the model's own tokenizer."""
    path = "/v1/completions"
    arguments = f"base_url={desk.arriero.url}{path},num_concurrent=4,max_retries=1"
    evaluation = Evaluation(desk, choice=CHOICE, rolling=ROLLING, generated=GENERATED)
    results = await evaluation.run("local-completions", arguments, "--batch_size", "4")
    assert results["choice"]["acc,none"] == 1.0
    assert 0 < results["rolling"]["bits_per_byte,none"] < 8
    for each in (path, "/tokenizer_info", "/tokenize"):
        exchanges = desk.arriero.of(each)
        assert {exchange.status for exchange in exchanges} == {200}, each
    assert desk.outside.asked == []


async def test_generation_in_chats(desk: Desk) -> None:
    path = "/v1/chat/completions"
    arguments = f"base_url={desk.arriero.url}{path},num_concurrent=4,max_retries=1"
    evaluation = Evaluation(desk, generated=GENERATED)
    flags = ("--apply_chat_template", "--batch_size", "1")
    results = await evaluation.run("local-chat-completions", arguments, *flags)
    assert "exact_match,none" in results["generated"]
    exchanges = desk.arriero.of(path)
    assert [each.status for each in exchanges] == [200] * len(QUESTIONS)
    said = {each.answered["choices"][0]["message"]["content"] for each in exchanges}
    assert any(each.startswith("A slot is a place for one running sequence") for each in said)
