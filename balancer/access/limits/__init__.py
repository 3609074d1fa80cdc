"""How much each caller may use: requests and tokens a minute, requests at once.

`sliding_window` adds up the last minute, `account` is one caller's, `limiter` knows them all;
`token_estimate` says what a request may cost before it ran, `rules` what one request may ask for.
May import: `access/identity`, the fleet's vocabulary. Comes in: the fleet's core, `api/transport`.
"""
