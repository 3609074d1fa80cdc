"""A worker that serves nothing: it is ready at once, ends when told, and fails as it is told.

With `torn FILE` the first one that hears that all serve ends in the middle of a line.
"""

import json
import os
import sys
from pathlib import Path

from arriero.balancer.cluster.worker import VARIABLE
from arriero.balancer.cluster.worker_messages import (
    Living,
    Ready,
    Spread,
    Stop,
    decode_to_worker,
    encode,
)


def main() -> int:
    place = json.loads(os.environ[VARIABLE])
    if sys.argv[1:] == ["fails"]:
        return 3
    out = sys.stdout.buffer
    out.write(encode(Ready({"inference": place["inference"]})))
    out.write(encode(Spread((f"worker {place['number']}",))))
    out.flush()
    for line in sys.stdin.buffer:
        message = decode_to_worker(line)
        if isinstance(message, Stop):
            return 0
        if isinstance(message, Living) and len(message.runs) == 2 and is_first("torn"):
            out.write(b'{"type":"spread","news":["')
            out.flush()
            return 9
    return 1


def is_first(way: str) -> bool:
    """Whether it is to fail in this way, and no other has."""
    if sys.argv[1:2] != [way]:
        return False
    try:
        Path(sys.argv[2]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
