"""The metrics of several workers behind one port as one text: each sample says whose it is.

Prometheus asks the port, and any worker may answer. Sums over workers are its own to make:
`sum without (worker) (…)`. Families stand together, as both text formats want it.
"""

import re
from collections.abc import Mapping

_NAME = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(\{)?")
_END = "# EOF"
_UP = (
    "# HELP arriero_worker_up 1 if the worker told its metrics.",
    "# TYPE arriero_worker_up gauge",
)


def merged(texts: Mapping[int, str | None]) -> str:
    """By worker, in either text format; `None` of one that did not answer."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for worker, text in texts.items():
        family, is_new = "", False
        for line in (text or "").splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                is_new = family not in heads
                heads.setdefault(family, [])
            if line.startswith("#"):
                if line != _END and is_new:
                    heads[family].append(line)
            elif line:
                samples.setdefault(family, []).append(labelled(line, worker))
    lines = [line for name, head in heads.items() for line in [*head, *samples.get(name, ())]]
    values = {worker: float(text is not None) for worker, text in texts.items()}
    up = [labelled(f"arriero_worker_up {value}", worker) for worker, value in values.items()]
    ended = any(text is not None and text.rstrip().endswith(_END) for text in texts.values())
    return "\n".join([*lines, *_UP, *up, *([_END] if ended else [])]) + "\n"


def labelled(sample: str, worker: int) -> str:
    """A line of a sample, with the worker as its first label."""
    found = _NAME.match(sample)
    if found is None:
        return sample
    name, has_labels = found.groups()
    rest = sample[found.end() :]
    if not has_labels:
        return f'{name}{{worker="{worker}"}}{rest}'
    comma = "" if rest.startswith("}") else ","
    return f'{name}{{worker="{worker}"{comma}{rest}'
