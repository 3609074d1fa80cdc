"""HTTP: reading bodies within limits, refusing other origins, answering errors, streaming.

May import: `shared`. Comes in: every API, and `management`.
"""
