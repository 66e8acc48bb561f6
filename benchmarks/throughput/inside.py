"""Runs KernelBench's own evaluator on one or more candidates, inside a sandbox.

    python inside.py ROOT TRIALS

``ROOT`` holds KernelBench's ``src``. File descriptor 3 brings one line of JSON, ``{"reference":
"...", "candidates": ["...", ...]}``; each candidate's seconds and verdict leave on 4, a line each,
after one that says how long the imports took. The clients of language models that
``kernelbench.utils`` imports, and never uses here, are replaced by empty modules.
"""

import json
import os
import sys
import time
import types

started = time.perf_counter()


def _empty_module(name: str, *members: str) -> None:
    module = types.ModuleType(name)
    for member in members:
        setattr(module, member, None)
    sys.modules[name] = module


def main() -> None:
    """Evaluate every candidate in turn."""
    _empty_module("openai", "OpenAI")
    _empty_module("litellm", "completion")
    _empty_module("dotenv", "load_dotenv")
    sys.modules["dotenv"].__dict__["load_dotenv"] = lambda *_, **__: None
    root, trials = sys.argv[1], int(sys.argv[2])
    replies = os.fdopen(4, "w")
    order = json.loads(os.fdopen(3).readline())
    sys.path.insert(0, f"{root}/src")
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    device = torch.device("cuda:0")
    print(json.dumps({"imported": time.perf_counter() - started}), file=replies, flush=True)
    for candidate in order["candidates"]:
        begun = time.perf_counter()
        result = eval_kernel_against_ref(
            order["reference"],
            candidate,
            num_correct_trials=trials,
            num_perf_trials=100,
            measure_performance=True,
            backend="triton",
            precision=torch.float32,
            device=device,
        )
        print(
            json.dumps(
                {
                    "seconds": time.perf_counter() - begun,
                    "correct": bool(result and result.correctness),
                    "runtime_ms": float(result.runtime) if result else -1.0,
                }
            ),
            file=replies,
            flush=True,
        )


main()
