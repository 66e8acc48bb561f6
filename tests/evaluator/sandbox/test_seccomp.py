"""The system call filter, run by a small interpreter of classic BPF."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox.seccomp import filter_program

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7
LOAD, JUMP_EQUAL, JUMP_BITS, RETURN = 0x20, 0x15, 0x45, 0x06


def verdict(program: bytes, *, number: int, architecture: int, argument: int = 0) -> int:
    """Run the filter on one system call as the kernel would."""
    call = struct.pack("=IIQ6Q", number, architecture, 0, argument, 0, 0, 0, 0, 0)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, yes, no, value = instructions[at]
        at += 1
        if code == RETURN:
            return value
        if code == LOAD:
            accumulator = struct.unpack_from("=I", call, value)[0]
        elif code == JUMP_EQUAL:
            at += yes if accumulator == value else no
        else:
            assert code == JUMP_BITS
            at += yes if accumulator & value else no


@pytest.mark.parametrize(
    ("machine", "architecture", "denied"),
    [("x86_64", X86, (101, 272, 165, 321, 319)), ("aarch64", ARM, (117, 97, 40, 280, 279))],
)
def test_tracing_mounting_and_new_namespaces_are_denied(
    machine: str, architecture: int, denied: tuple[int, ...]
) -> None:
    program = filter_program(machine)
    for number in denied:
        assert verdict(program, number=number, architecture=architecture) == ERRNO | errno.EPERM


@given(flags=st.integers(min_value=0, max_value=2**32 - 1))
def test_clone_is_denied_exactly_when_it_asks_for_a_namespace(flags: int) -> None:
    wants_namespace = any(
        flags & bit for bit in (1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)
    )
    found = verdict(filter_program("x86_64"), number=56, architecture=X86, argument=flags)
    assert found == (ERRNO | errno.EPERM if wants_namespace else ALLOW)


def test_clone3_looks_absent_so_that_libc_uses_clone() -> None:
    for machine, architecture in (("x86_64", X86), ("aarch64", ARM)):
        found = verdict(filter_program(machine), number=435, architecture=architecture)
        assert found == ERRNO | errno.ENOSYS


def test_calls_of_a_foreign_architecture_kill() -> None:
    assert verdict(filter_program("x86_64"), number=1, architecture=0x40000003) == KILL


def test_the_x32_doubles_of_denied_calls_are_absent() -> None:
    found = verdict(filter_program("x86_64"), number=0x40000000 | 101, architecture=X86)
    assert found == ERRNO | errno.ENOSYS


@given(number=st.sampled_from([0, 1, 2, 3, 9, 10, 11, 16, 39, 57, 59, 60, 202, 231, 257, 293]))
def test_what_programs_live_on_is_allowed(number: int) -> None:
    assert verdict(filter_program("x86_64"), number=number, architecture=X86) == ALLOW


def test_an_unknown_processor_gets_no_sandbox_rather_than_no_filter() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        filter_program("riscv64")
