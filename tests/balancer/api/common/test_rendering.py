"""What an API's rendering need not say."""

from arriero.balancer.api.common.rendering import Rendering
from arriero.shared.inference import Event


class Silent(Rendering):
    def render(self, _event: Event, _number: int = 0, /) -> bytes:
        return b""

    def take(self, _event: Event, _number: int = 0, /) -> None:
        """Nothing is gathered."""

    def whole(self) -> object:
        return None


def test_most_answers_have_no_frame_and_no_tail() -> None:
    silent = Silent()
    assert (silent.frame_of("content"), silent.tail()) == (None, b"")
