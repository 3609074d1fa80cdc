"""The fleet's recent past: an hour in seconds, a day in minutes, and the last ended requests.

`sums` is what one step counts, `series` the steps and their ages, `endings` the ended requests,
`chart` what a reader asks for. `recorder` fills them, and `history_task` keeps the time and writes
to the store.
"""
