"""Which request is next: priority classes, and shares for callers within a class.

`fair_queue` is what others use. `fair_order` is start-time fair queueing among flows; the queue has
two levels of it: callers, and the connections of one caller. `turns` lets classes that wait for
long have a share, `charge` says what a request counts, `crowding` who has to go from a full queue;
`foreground` counts whom batches leave room for.

May import: the fleet's vocabulary. Comes in: `fleet.requests`.
"""
