"""What runs inside the sandbox: torch, triton and the standard library, nothing else of ours.

The folder is bound read-only into the sandbox as the package ``worker`` and started
there; the supervisor imports its dataclasses from here, so both ends share one
definition of the protocol. This file stays empty of imports.
"""
