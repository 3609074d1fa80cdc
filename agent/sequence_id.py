"""The number of a sequence: the same from the balancer's `Start` to the engine and back.

The type has its own file, so that the connections to balancers need not import the engine.
"""

from typing import NewType

SequenceId = NewType("SequenceId", int)
"""Unique in one agent process; not llama.cpp's `seq_id`, which is the number of a slot.

The session that accepts a request assigns the number, so that a pure core can name a request
before its shell starts it. Request ids are not unique in an agent, since every balancer has its
own and may reuse them.
"""
