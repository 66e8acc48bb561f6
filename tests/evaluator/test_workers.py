"""Workers asked for by many threads at once, and what a forked one may do with the GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.backends import choose_backend
from evaluator.candidate import BackendName
from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.program import USER_SLOTS
from evaluator.sandbox.zygote import ZygoteSandbox
from evaluator.session import PRELOAD, Role, WorkerOptions
from evaluator.workers import Workers
from policies.model import EvaluatorPolicy
from tests.evaluator.sandbox.inside import needs_forks

pytestmark = pytest.mark.sandbox


@pytest.fixture
def workers() -> Iterator[Workers]:
    found = Workers(BubblewrapSandbox(), choose_backend(BackendName.CPP), EvaluatorPolicy.default())
    found.warm()
    yield found
    found.close()


def test_workers_of_many_threads_live_side_by_side_as_different_users(workers: Workers) -> None:
    with ThreadPoolExecutor(6) as pool:
        starts = [workers.candidate] * 4 + [workers.reference, workers.compiler]
        clients = list(pool.map(lambda start: start(), starts))
        hellos = list(pool.map(lambda client: client.session.ready(60), clients))
    assert all(hello["torch"] for hello in hellos)
    assert len({client.session.options.user_slot for client in clients}) == len(clients)


@needs_forks
def test_workers_are_forked(workers: Workers) -> None:
    with workers.candidate().session as session:
        session.ready(60)
    assert "forked from a zygote" in workers.sandbox.description


def test_a_worker_that_ended_gives_its_user_back(workers: Workers) -> None:
    slots = []
    for _ in range(USER_SLOTS + 2):
        with workers.candidate().session as session:
            slots.append(session.options.user_slot)
    assert set(slots) == set(range(USER_SLOTS))


@pytest.mark.gpu
@pytest.mark.skipif(not any(Path("/dev").glob("nvidia[0-9]*")), reason="no NVIDIA GPU")
def test_a_forked_worker_opens_the_gpu_that_its_zygote_never_did() -> None:
    script = (
        "import json, os, torch\n"
        "found = [torch.cuda.is_initialized(), torch._C._cuda_isInBadFork()]\n"
        "found.append(torch.ones(1000, device='cuda').sum().item())\n"
        "from triton.runtime.driver import driver\n"
        "found.append(driver.active.get_current_target().backend)\n"
        "found.append(os.path.exists('/tmp/triton'))  # the zygote built triton's helper\n"
        "os.write(4, json.dumps(found).encode())\n"
    )
    spec = WorkerOptions(Role.CANDIDATE, threads=1, gpu=True).spec()
    sandbox = ZygoteSandbox(BubblewrapSandbox(), preload=PRELOAD)
    try:
        process = sandbox.start(replace(spec, argv=[*spec.argv[:-1], script]))
        said = process.replies.read()
        log = process.log_tail()
        process.kill()
    finally:
        sandbox.close()
    assert "forked from a zygote" in sandbox.description
    assert said, log
    assert json.loads(said) == [False, False, 1000.0, "cuda", False]
