"""The lines of the log about requests: one when it moves to another agent, one when it ends.

And one about each agent whose connection ends for what it said.
"""

import logging

from ....shared.log import context
from ..decisions import LogBad, Moved
from ..recorder import Ending

logger = logging.getLogger(__name__)


def log_end(ending: Ending) -> None:
    """A request has ended, with its figures."""
    timings = ending.timings
    values = context(
        id=ending.request_id,
        model=ending.model,
        agent=ending.agent,
        caller=ending.caller.name,
        address=ending.caller.address,
        user_agent=ending.caller.user_agent,
        code=ending.code,
        prompt_tokens=ending.usage.prompt_tokens,
        cached_tokens=ending.usage.cached_tokens,
        completion_tokens=ending.usage.completion_tokens,
        queue_ms=timings.queue_ms,
        first_token_ms=timings.first_token_ms,
        total_ms=timings.total_ms,
        prefill_tokens_per_second=timings.prefill_tokens_per_second,
        decode_tokens_per_second=timings.decode_tokens_per_second,
        error=ending.error.message if ending.error is not None else None,
    )
    if ending.is_suspect:
        logger.warning("request ended: it may be what ends its agents", extra=values)
    else:
        logger.info("request ended", extra=values)


def log_move(moved: Moved) -> None:
    """A request leaves its agent and goes to another."""
    values = context(id=moved.request, agent=moved.origin.agent, reason=moved.reason)
    logger.info("request moves to another agent", extra=values)


def log_bad(bad: LogBad) -> None:
    """An agent's connection ends for what came over it."""
    values = context(agent=bad.agent, reason=bad.reason)
    if bad.error is None:
        logger.warning("bad message from an agent: its connection ends", extra=values)
    else:
        logger.error(
            "a message of an agent could not be handled: its connection ends",
            extra=values,
            exc_info=bad.error,
        )
