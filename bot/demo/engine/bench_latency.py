"""Latency of one decoding step of a batch, after a warm-up.

The figure is the lower quartile over generations: what disturbs a run only adds time.
"""

import argparse
import json
import statistics
import time

import torch

from pocketlm import Engine, engine, model


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


PROFILED = {
    "pocketlm/norm.py::add_rms_norm": model,
    "pocketlm/rotary.py::apply_rotary": model,
    "pocketlm/router.py::route": model,
    "pocketlm/sampling.py::apply_penalties": engine,
}


def profile(batch: int, steps: int) -> dict[str, float]:
    """Share of a generation's time that is spent in each function of ``PROFILED``."""
    seconds = dict.fromkeys(PROFILED, 0.0)

    def timed(target, function):
        def call(*arguments):
            start = time.perf_counter()
            result = function(*arguments)
            seconds[target] += time.perf_counter() - start
            return result

        return call

    for target, module in PROFILED.items():
        name = target.rpartition("::")[2]
        setattr(module, name, timed(target, getattr(module, name)))
    subject = Engine()
    prompts = torch.arange(batch * 2).reshape(batch, 2) % subject.config.vocabulary
    subject.generate(prompts, steps)
    seconds.update(dict.fromkeys(PROFILED, 0.0))
    start = time.perf_counter()
    for _ in range(4):
        subject.generate(prompts, steps)
    whole = time.perf_counter() - start
    return {target: spent / whole for target, spent in seconds.items()}


def main() -> None:
    """Print the figure, as text or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1, help="more only helps larger models")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="shares of functions, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.profile:
        print(json.dumps({"shares": profile(options.batch, options.steps)}))
        return
    figures = measure(options.batch, options.steps, options.repeats)
    quartile = statistics.quantiles(figures, n=4)[0]
    if options.json:
        print(json.dumps({"metric": "decode_step_ms", "value": quartile, "samples": figures}))
    else:
        print(f"one decoding step of {options.batch} sequences: {quartile:.3f} ms")


if __name__ == "__main__":
    main()
