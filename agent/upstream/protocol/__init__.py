"""The language of OpenAI-compatible servers and its dialects; all modules are pure.

`bodies` converts neutral requests; `event_lines` and `answer` convert streams to neutral items.
`dialects` has the names that kinds of servers use, `listing` reads their models, `probes` tests
their abilities, `queries` handles embeddings and tokens, `failures` their errors, and `address`
their URLs.
"""
