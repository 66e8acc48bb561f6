"""KernelBench's files as problems, unchanged: the file's own text is the reference.

What a file constructs and is called with is found by running it in a sandbox. What cannot be
carried as it is (nested inputs, values with a structure that no generator draws, more bytes
than this machine can compare in float64) is refused with the reason, never bent to fit.
"""
