"""Extraction: a function of a repository becomes a Problem, without importing the repository.

``ast`` decides (every node keeps its line in the original file), ``libcst`` edits (what is
kept stays as it was written), and the sandbox runs the result once to find its contract.
The steps, in order: ``target`` → ``closure`` (with ``pruning``, ``decorators``, ``methods``,
``construction``, ``resolution``, ``changes``, ``ordering``) → ``refusals`` → ``reference`` →
``contract`` (with ``selections``, ``writes``) → ``writing``; ``pipeline`` joins them.
"""
