"""What tests of the real engine run on it."""

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.step import Clear, Decoded, Step

TEXTS = (
    "What is a slot?",
    "How do I start the balancer, and on which ports does it listen?",
    "Why do agents dial in?",
    "queue",
    "Tell me what happens when an agent is lost while it streams an answer to a client.",
    "What does --max-stall mean?",
    "{",
    "Which errors can a client see? Name three of them.",
    "Hello!",
    "Is there a dashboard?",
    "What is continuous batching?",
    "Can I stop a request?",
)

GREEDY = Sampling(seed=0, temperature=0)


def tokenize(engine: LlamaEngine, text: str) -> tuple[int, ...]:
    return engine.model.vocab.tokenize(text, add_special=True, parse_special=True)


def prompt(engine: LlamaEngine, text: str) -> tuple[int, ...]:
    return tokenize(engine, f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")


def wipe(engine: LlamaEngine) -> None:
    clears = tuple(Clear(holder) for holder in range(engine.capacity.num_holders))
    assert engine.execute(Step(clears, (), 0, 0)) == Decoded(())
