"""What runs inside the sandbox to turn a reference into kernels.

It imports torch, triton, the standard library and its own files, and nothing else of ours.
The folder is bound read-only into the sandbox as the package ``emitter`` and started there,
since tracing executes the reference, which is repository code. Our own process imports from
here only what is pure: the dataclasses of ``workloads.py`` and the passes over source text.
This file stays empty of imports.
"""
