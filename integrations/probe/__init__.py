"""Scripts that run under the target's interpreter, in a sandbox, started by path.

They import the standard library, torch and their own siblings alone, never ksmith.
"""
