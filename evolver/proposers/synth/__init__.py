"""The ``synth`` proposer: our own lowering of a reference to fused kernels; needs no model.

A reference is traced to an ATen graph in the sandbox, lowered to a row program (``ir.py``), and
emitted by a genome (``genome.py``) that says which nodes share a kernel, which algorithm each
operation takes and how it is launched. ``source = emit(programs, genome)`` is pure.
"""
