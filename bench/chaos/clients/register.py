"""What a store with one writer may hold: what it acknowledged last, or something asked since."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Register:
    """Values that were asked to be written, in order. A write without an answer may have happened.

    One that was refused has not.
    """

    _possible: set[int] = field(default_factory=lambda: {0})

    def asked(self, value: int) -> None:
        """A write was sent."""
        self._possible.add(value)

    def acknowledged(self, value: int) -> None:
        """The last write has succeeded: what was before is gone."""
        self._possible = {value}

    def refused(self, value: int) -> None:
        """The last write has not happened."""
        self._possible.discard(value)

    def finding(self, value: int) -> str | None:
        """What is wrong with `value`, which was read when no write was under way.

        It is what the store holds from now on.
        """
        possible, self._possible = self._possible, {value}
        if value in possible:
            return None
        return f"the desired state is number {value}; it can be {sorted(possible)} only"
