from openai.types.chat.chat_completion import ChoiceLogprobs
from openai.types.completion_choice import Logprobs

from arriero.balancer.api.openai.completions.log_probs import LogProbsWriter, chat_log_probs
from arriero.shared.inference import LogProb, TokenLogProbs

SNOWMAN = "☃".encode()


def one(piece: bytes, log_prob: float = -1.0, *top: LogProb) -> TokenLogProbs:
    return TokenLogProbs(LogProb(1, piece, log_prob), top)


def test_chat() -> None:
    told = chat_log_probs([one(b"a", -0.5, LogProb(2, b"b", -0.1))])
    parsed = ChoiceLogprobs.model_validate(told, strict=True)
    assert parsed.content is not None
    assert parsed.content[0].token == "a"
    assert parsed.content[0].top_logprobs[0].token == "b"
    assert parsed.refusal is None
    assert told.keys() == {"content", "refusal"}


def test_a_completions_tokens_know_where_they_stand() -> None:
    subject = LogProbsWriter(offset=10)
    first = subject.render([one(b"ab"), one(SNOWMAN[:1]), one(SNOWMAN[1:])])
    assert first == {
        "tokens": ["ab", r"\xe2", r"\x98\x83"],
        "token_logprobs": [-1.0, -1.0, -1.0],
        "top_logprobs": [{"ab": -1.0}, {r"\xe2": -1.0}, {r"\x98\x83": -1.0}],
        "text_offset": [10, 12, 12],
    }
    Logprobs.model_validate(first, strict=True)
    assert subject.render([one(b"c")])["text_offset"] == [13]
    assert subject.render([])["tokens"] == []


def test_the_chosen_token_is_among_the_likeliest_of_a_completion() -> None:
    likely = LogProb(2, b"b", -0.1)
    told = LogProbsWriter().render([one(b"a", -5.0, likely), one(b"b", -0.1, likely)])
    assert told["top_logprobs"] == [{"b": -0.1, "a": -5.0}, {"b": -0.1}]
