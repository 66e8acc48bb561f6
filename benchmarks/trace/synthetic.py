"""A trace of any size with the make-up of a real one: steps of a model with stacks and shapes.

Each call is a stack of eight Python frames around two operators, with two launches and their
kernels and flows, and memory events, as an eager run with stacks records them.
"""

from __future__ import annotations

from pathlib import Path

_HEADER = (
    '{"schemaVersion": 1, "record_shapes": 1, "with_stack": 1, "distributedInfo": {"rank": 0},\n'
    '"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [\n'
)
_FRAMES = 8
EVENTS_PER_CALL = _FRAMES + 2 * 6
_CALL_US = 100.0


def write_synthetic(path: Path, events: int) -> int:
    """Write at least ``events`` events and return how many; a block at a time, nothing is kept."""
    calls = -(-events // EVENTS_PER_CALL)
    with path.open("w", encoding="utf-8") as file:
        file.write(_HEADER)
        for call in range(calls):
            file.write(",\n".join(_call(call)) + (",\n" if call + 1 < calls else "\n"))
        file.write('], "traceName": "synthetic"}\n')
    return calls * EVENTS_PER_CALL


def _caller(call: int, depth: int) -> str:
    return str(_FRAMES * call + depth - 1) if depth else "null"


def _call(call: int) -> list[str]:
    start, layer = _CALL_US * call, call % 40
    host = '"pid": 4711, "tid": 4711'
    lines = [
        f'{{"ph": "X", "cat": "python_function", "name": "engine/layers/block_{depth}.py'
        f'({10 * layer + 7}): forward_{layer}", {host}, "ts": {start + depth}, '
        f'"dur": {90 - 2 * depth}, "args": {{"Python parent id": {_caller(call, depth)}, '
        f'"Python id": {_FRAMES * call + depth}, "Ev Idx": {EVENTS_PER_CALL * call + depth}}}}}'
        for depth in range(_FRAMES)
    ]
    for half in range(2):
        at, correlation = start + 12 + 30 * half, 2 * call + half + 1
        name = f"void at::native::vectorized_elementwise_kernel<4, Functor_{layer}_{half}>"
        kernel_at = at + 5000
        lines += [
            f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op_{layer}", {host}, "ts": {at}, '
            f'"dur": 25, "args": {{"External id": {correlation}, "Record function id": 0, '
            f'"Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], '
            f'"Input Strides": [[4096, 1], [4096, 1]], "Input Dims": [[{layer + 1}, 4096], '
            f'[{layer + 1}, 4096]], "Ev Idx": {correlation}}}}}',
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {host}, '
            f'"ts": {at + 10}, "dur": 4, "args": {{"External id": {correlation}, "cbid": 211, '
            f'"correlation": {correlation}}}}}',
            f'{{"ph": "s", "id": {correlation}, {host}, "ts": {at + 10}, "cat": "ac2g", '
            f'"name": "ac2g"}}',
            f'{{"ph": "f", "id": {correlation}, "pid": 0, "tid": 7, "ts": {kernel_at}, '
            f'"cat": "ac2g", "name": "ac2g", "bp": "e"}}',
            f'{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, '
            f'"ts": {kernel_at}, "dur": 20.5, "args": {{"External id": {correlation}, '
            f'"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation}, '
            f'"registers per thread": 32, "shared memory": 0, "grid": [64, 1, 1], '
            f'"block": [128, 1, 1], "est. achieved occupancy %": 50}}}}',
            f'{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", {host}, '
            f'"ts": {at + 11}, "args": {{"Total Reserved": 2629828608, "Total Allocated": '
            f'1003059712, "Bytes": 18317312, "Addr": {139443981778944 + call}}}}}',
        ]
    return lines
