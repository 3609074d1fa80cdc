"""A worker that serves nothing: it is ready at once, ends when told, and fails as it is told."""

import json
import os
import sys

from arriero.balancer.workers.messages import Ready, Spread, Stop, decode_to_worker, encode
from arriero.balancer.workers.place import VARIABLE


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
    return 1


if __name__ == "__main__":
    sys.exit(main())
