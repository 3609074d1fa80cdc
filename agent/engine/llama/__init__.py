"""The only place that knows llama.cpp: its low-level calls, one concern a file.

May import: the engine's vocabulary and its sampler. Comes in: the worker, the daemon.

Importing it sets the OpenMP spin count: how long llama.cpp's threads spin at a barrier before they
sleep; every layer has barriers. The OpenMP runtime's default is milliseconds. That is fine on an
otherwise idle machine, but where another process (such as a second agent) uses the same cores, each
step takes twenty times longer. 1000 rounds, the runtime's own choice when cores are oversubscribed,
are too few: a step of 8 streams of a model with 600 million weights takes 126 ms with 1000, 117 ms
with 3000 and 115 ms with more, while a second agent's steps slow down with each further round. The
variable must be set before the library is loaded; a user's own value stays.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "3000")
