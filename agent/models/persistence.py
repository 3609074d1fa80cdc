"""Fetches until the files are here, however long that takes, and says what stands in the way."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from ...shared.log import context
from ...shared.messages import Issue
from ...shared.models.assignments import Download
from .port import FetchedModel, FetchError, ModelFiles, OnProgress
from .retry_pauses import pause_after

logger = logging.getLogger(__name__)

OnIssue = Callable[[Issue | None], None]
"""What stands in the way now; `None`: nothing any more."""


async def fetch_until_here(
    files: ModelFiles,
    source: str,
    *,
    sha256: str | None = None,
    on_progress: OnProgress,
    on_issue: OnIssue,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> FetchedModel:
    """The files of `source`. Ends only so, or as its task is cancelled.

    `on_issue` is called after each failed attempt, and with `None` once bytes arrive again or the
    files are here.
    """
    issues = _Issues(on_issue, on_progress)
    failures = 0
    while True:
        try:
            model = await files.fetch(source, sha256=sha256, on_progress=issues.progress)
        except FetchError as error:
            failures += 1
            issues.tell(error.issue)
            pause = pause_after(error.code, failures) * random.uniform(0.75, 1.25)
            logger.warning(
                "model files cannot be had",
                extra=context(
                    source=source, code=error.code, reason=error.message, retry_seconds=pause
                ),
            )
            await sleep(pause)
        else:
            issues.tell(None)
            return model


class _Issues:
    """Tells each change once, and clears an issue as soon as bytes arrive."""

    def __init__(self, on_issue: OnIssue, on_progress: OnProgress) -> None:
        self._on_issue = on_issue
        self._on_progress = on_progress
        self._told: Issue | None = None

    def tell(self, issue: Issue | None) -> None:
        if issue != self._told:
            self._told = issue
            self._on_issue(issue)

    def progress(self, download: Download) -> None:
        self.tell(None)
        self._on_progress(download)
