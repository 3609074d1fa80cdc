"""Detects an engine process that stalls, from its regular reports of the current step.

The watch counts checks, not seconds. If the host slept or the supervisor itself stood still, there
were no checks, and the engine process is not blamed for that time.
"""

from ...shared.messages import Issue
from ...shared.quantities import format_duration

CHECKS = 40
"""Checks during the time that a step may take; the engine process reports as often."""

PATIENCE = 4
"""Checks without progress after which the process counts as stalled: a tenth of that time."""

STALLED = "engine_stalled"
"""The issue's code."""


class StallWatch:
    """Watches one engine process whose steps may take `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._step: int | None = None
        self._num_checks = 0

    @property
    def pause(self) -> float:
        """Seconds between two checks."""
        return self._timeout / CHECKS

    def heard(self, step: int | None) -> None:
        """Note the number of the step that the process computes; `None` if it computes none."""
        if step is None or step != self._step:
            self._num_checks = 0
        self._step = step

    def check(self) -> None:
        """Check for progress. Call this after each `pause`; the properties may have changed."""
        self._num_checks += 1

    @property
    def is_stalled(self) -> bool:
        """Return whether the process has stalled long enough that it should get no requests."""
        return self._num_checks > PATIENCE

    @property
    def is_overdue(self) -> bool:
        """Return whether the process should be ended."""
        return self._num_checks > CHECKS

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The issue for operators while the process is stalled."""
        if not self.is_stalled:
            return ()
        stalled = format_duration(self._timeout * PATIENCE / CHECKS)
        bound = format_duration(self._timeout)
        return (
            Issue(
                code=STALLED,
                message=f"the engine has not finished a step for {stalled}; it gets no new "
                f"requests until it does, and its process is restarted after {bound}",
                hint="a GPU or its driver may hang; if steps really take that long here, raise "
                "--step-timeout",
            ),
        )

    @property
    def reason(self) -> str:
        """The reason for ending the process, in words."""
        return f"no step of the engine ended within {format_duration(self._timeout)}"
