"""The language of OpenAI-compatible servers, and its dialects; all of it pure.

`bodies` make their bodies of neutral requests, `event_lines` and `answer` make neutral items of
what they stream. `dialects` are what kinds of servers call things, `listing` reads their models,
`probes` finds out what they can do, `queries` are embeddings and tokens, `failures` their errors,
`address` is where they are.
"""
