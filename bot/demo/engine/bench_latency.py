"""Latency of one decoding step of a batch, after a warm-up."""

import argparse
import json
import statistics
import time

import torch

from pocketlm import Engine


def measure(batch: int, steps: int, repeats: int) -> list[float]:
    """Milliseconds per decoding step, one figure for each generation."""
    engine = Engine()
    prompts = torch.arange(batch * 2).reshape(batch, 2) % engine.config.vocabulary
    engine.generate(prompts, steps)
    figures = []
    for _ in range(repeats):
        start = time.perf_counter()
        engine.generate(prompts, steps)
        figures.append((time.perf_counter() - start) * 1e3 / (steps + 1))
    return figures


def main() -> None:
    """Print the median, as text or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.batch, options.steps, options.repeats)
    median = statistics.median(figures)
    if options.json:
        print(json.dumps({"metric": "decode_step_ms", "value": median, "samples": figures}))
    else:
        print(f"one decoding step of {options.batch} sequences: {median:.3f} ms")


if __name__ == "__main__":
    main()
