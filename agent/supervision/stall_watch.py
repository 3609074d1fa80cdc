"""Whether an engine process gets on: it says now and then which step it computes.

It counts checks, not seconds. Where the host slept or the supervisor itself stood still there were
no checks, and the engine process is not blamed for that time.
"""

from ...shared.messages import Issue
from ...shared.quantities import format_duration

CHECKS = 40
"""In the time that a step may take. An engine process says as often which step it computes."""

PATIENCE = 4
"""Checks that find it where it was before it counts as stalled: a tenth of that time."""

STALLED = "engine_stalled"
"""The issue's code."""


class StallWatch:
    """Watches one engine process, a step of which may take `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._step: int | None = None
        self._num_checks = 0

    @property
    def pause(self) -> float:
        """Seconds between two checks."""
        return self._timeout / CHECKS

    def heard(self, step: int | None) -> None:
        """It computes this step, or none."""
        if step is None or step != self._step:
            self._num_checks = 0
        self._step = step

    def check(self) -> None:
        """Call this after each `pause`; the properties may have changed."""
        self._num_checks += 1

    @property
    def is_stalled(self) -> bool:
        """Whether it has not got on for so long that it should get no work."""
        return self._num_checks > PATIENCE

    @property
    def is_overdue(self) -> bool:
        """Whether to end the process."""
        return self._num_checks > CHECKS

    @property
    def issues(self) -> tuple[Issue, ...]:
        """What operators should know."""
        if not self.is_stalled:
            return ()
        stalled = format_duration(self._timeout * PATIENCE / CHECKS)
        bound = format_duration(self._timeout)
        return (
            Issue(
                code=STALLED,
                message=f"the engine has not ended a step for {stalled}; the agent takes nothing "
                f"new until it does, and after {bound} its process is ended and started again",
                hint="a GPU or its driver may hang; if steps do take that long here, raise "
                "--step-timeout",
            ),
        )

    @property
    def reason(self) -> str:
        """Why the process is ended."""
        return f"no step of the engine ended within {format_duration(self._timeout)}"
