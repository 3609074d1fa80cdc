"""Pictures by link: fetched before a body is parsed, from public addresses only.

`fetching` fetches one link if it is public. `filling` finds the links in a body and replaces them.
"""
