"""The fleet's recent past: an hour in seconds, a day in minutes, and the last ended requests.

`sums` has the counts of one step, `series` the steps by age, `endings` the ended requests, and
`chart` the answers for readers. `recorder` fills them. `history_task` closes the steps and writes
them to the store.
"""
