"""Profiler traces to ranked targets: read, join, attribute, score, render.

``stream`` and ``columns`` read a chrome trace of torch.profiler into columns; ``nesting``,
``launches`` and ``graphs`` say which host events stand behind a kernel; ``frames`` and
``sources`` name the function of a repository; ``ranking`` puts a score beside each.
"""
