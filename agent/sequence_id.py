"""The number of a sequence: the same from the balancer's `Start` to the engine and back.

It has a file of its own, so that the links to balancers import no engine for it.
"""

from typing import NewType

SequenceId = NewType("SequenceId", int)
"""Unique in one agent process; not llama.cpp's `seq_id`, which is the number of a slot.

The session that accepts a request draws it, so that a pure core can name a request before its shell
starts it. Ids of requests are not unique here, since every balancer has its own and may use one
again.
"""
