"""The records of families, one constant each; related families share a file.

This package contains only records. A new record needs no other change: `families` finds it.
"""
