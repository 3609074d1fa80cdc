"""Every connection is an open file, and systems limit the open files of a process."""

import logging
import resource

SPARE = 64
"""Open files besides connections: listening sockets, logs, files of the interpreter."""

logger = logging.getLogger(__name__)


def raise_file_limit(num_connections: int) -> int:
    """Raises the process's own limit as far as permitted; logs if that is not enough.

    Returns the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        logger.warning(
            "the limit of open files is %d, and %d connections need %d: raise it (`ulimit -n`, or "
            "LimitNOFILE= of systemd), or lower --max-connections",
            *(soft, num_connections, wanted),
        )
    return soft
