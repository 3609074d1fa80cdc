"""The records of families, one constant each; kindred families share a file.

Lives here: nothing but records. A new one needs no other change: `families` finds it.
"""
