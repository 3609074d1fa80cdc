"""The recent past of the fleet: an hour in seconds, a day in minutes, and the last ended requests.

`sums` has the counts of one step, `series` the steps, `endings` the ended requests, and `chart`
the answers for readers. `recorder` counts events. `history_task` ends each step and writes the
steps to the store.
"""
