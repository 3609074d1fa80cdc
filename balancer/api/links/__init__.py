"""Pictures by link: fetched before a body is parsed, from public addresses only.

`places` finds links in a body and puts pictures there, `fetching` fetches one if it is public,
`filling` does it for a whole body.
"""
