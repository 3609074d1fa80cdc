"""Events: log-probabilities as JSON, and tokens that show nothing."""

from pydantic import TypeAdapter

from arriero.shared.inference import LogProb, Token, TokenLogProbs


def test_log_probabilities_keep_any_bytes() -> None:
    adapter = TypeAdapter(TokenLogProbs)
    one = LogProb(7, b"\xe2\x98", -0.5)
    both = TokenLogProbs(one, (one, LogProb(8, b"", -9999.0)))
    assert adapter.validate_json(adapter.dump_json(both)) == both


def test_a_token_is_silent_if_it_shows_neither_text_nor_log_probabilities() -> None:
    log_probs = (TokenLogProbs(LogProb(7, b"a", -0.5)),)
    assert Token("", tokens=(7,)).is_silent
    assert not Token("a").is_silent
    assert not Token("", log_probs=log_probs).is_silent
