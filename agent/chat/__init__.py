"""What a model speaks: templates, families, tool calls, grammars, and tokens to text.

One room each: `templates` renders, `families` knows how models write, `calls` and `parsing` tell
an answer's parts apart, `grammar` constrains it, `output` makes text of tokens.
May import: `shared`, and of the engine only plain values.
Comes in: `generation`.
"""
