"""A prompt as it is told."""

from arriero.agent.chat.output.echo import EchoPart, EchoWriter
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.shared.inference import LogProb, TokenLogProbs

PIECES = [b"a", b"\xc3", b"\xa9", b"z"]
FIRST = TokenLogProbs(LogProb(0, b"a"))


def told(token: int, log_prob: float) -> TokenLogProbs:
    return TokenLogProbs(LogProb(token, PIECES[token], log_prob), (LogProb(3, b"z", -0.5),))


def found(token: int, log_prob: float) -> LogProbs:
    return LogProbs(token, log_prob, ((3, -0.5),))


def test_the_first_token_has_no_log_probability_and_characters_come_whole() -> None:
    echo = EchoWriter((0, 1, 2), None, PIECES.__getitem__)
    assert echo.push([found(1, -1.0)]) == EchoPart("a", (FIRST, told(1, -1.0)))
    assert echo.push([]) is None
    assert echo.push([found(2, -2.0)]) == EchoPart("é", (told(2, -2.0),))


def test_text_that_was_given_is_told_as_it_was() -> None:
    echo = EchoWriter((0, 1, 2), "given", PIECES.__getitem__)
    assert echo.push([]) == EchoPart("given", (FIRST,))
    assert echo.push([found(1, -1.0), found(2, -2.0)]) == EchoPart(
        "", (told(1, -1.0), told(2, -2.0))
    )
