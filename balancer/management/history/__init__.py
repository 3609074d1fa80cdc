"""The fleet's past over REST: charts of the last day, and the requests that ended.

May import: `history`, the store's records, `api/transport`. Comes in: `management`.
"""
