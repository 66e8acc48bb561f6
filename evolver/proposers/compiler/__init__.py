"""The ``compiler`` proposer: TorchInductor's kernels as the first translation of a problem."""
