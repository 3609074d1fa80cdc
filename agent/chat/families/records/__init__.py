"""The records of families, one constant each; kindred families share a file.

Lives here: nothing but records. A new one needs no other change: `families` finds it.
May import: `families`' own files and `calls`. Comes in: nobody but `families.families`.
"""
