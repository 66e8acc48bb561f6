"""Names of C, C++ and CUDA that leave the computation, by the rule that they break."""

from __future__ import annotations

from collections.abc import Mapping

from evaluator.source_policy.words import words

_FILES = words(
    """
    fopen freopen fdopen tmpfile creat open openat mkstemp mkdtemp ifstream ofstream fstream
    basic_ifstream basic_ofstream basic_fstream filebuf unlink rename mmap munmap mremap
    mprotect shm_open shmget memfd_create ioctl fcntl dup dup2 pipe pipe2
    """
)
_PROCESSES = words(
    """
    system popen fork vfork clone clone3 execl execle execlp execv execve execvp execvpe fexecve
    posix_spawn posix_spawnp syscall ptrace kill raise prctl setrlimit process_vm_readv
    process_vm_writev exit _exit _Exit quick_exit atexit at_quick_exit on_exit
    """
)
_OTHER_SYSTEM = words(
    """
    socket socketpair sendmsg recvmsg getenv secure_getenv setenv
    unsetenv putenv clearenv environ __environ program_invocation_name dl_iterate_phdr brk sbrk
    """
)
_CLOCKS = words(
    """
    clock_gettime clock_nanosleep gettimeofday timespec_get nanosleep usleep __rdtsc _rdtsc
    __rdtscp system_clock steady_clock high_resolution_clock omp_get_wtime cudaEventCreate
    cudaEventElapsedTime sleep_for timer_create
    """
)
_STREAMS = words(
    """
    cudaLaunchHostFunc cudaStreamPerThread cudaStreamLegacy cudaDeviceSynchronize
    cudaThreadSynchronize cudaEventSynchronize cudaStreamSynchronize
    """
)
_DEVICE = words(
    """
    cudaDeviceSetLimit cudaDeviceSetCacheConfig cudaDeviceReset cudaSetDevice cudaSetDeviceFlags
    cudaAccessPolicyWindow cudaLaunchAttributeAccessPolicyWindow cudaHostRegister
    cudaMallocManaged cudaMemAdvise cudaLimitPersistingL2CacheSize
    """
)
_LOADERS = words(
    """
    dlopen dlsym dlvsym dlmopen dladdr cudaGetDriverEntryPoint cudaGetSymbolAddress
    cudaGetFuncBySymbol cudaGetKernel
    """
)
_EXACT: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("asm", "__asm", "__asm__"), ("inline-asm", None)),
    **dict.fromkeys(_FILES, ("system", "a kernel uses no files and maps no memory")),
    **dict.fromkeys(_PROCESSES, ("system", "a kernel starts and ends no process")),
    **dict.fromkeys(_OTHER_SYSTEM, ("system", None)),
    **dict.fromkeys(("thread", "jthread", "async"), ("thread", "use OpenMP")),
    **dict.fromkeys(_CLOCKS, ("clock", None)),
    **dict.fromkeys(_STREAMS, ("stream", None)),
    **dict.fromkeys(_DEVICE, ("device-setting", None)),
    **dict.fromkeys(_LOADERS, ("foreign-code", None)),
    **dict.fromkeys(
        words(
            """
            signal sigaction sigaltstack setitimer alarm longjmp _longjmp siglongjmp
            setjmp _setjmp sigsetjmp getcontext setcontext makecontext swapcontext
            __builtin_return_address __builtin_frame_address __builtin_longjmp
            __builtin_setjmp __builtin_eh_return __builtin_apply
            """
        ),
        ("control-flow", None),
    ),
    **dict.fromkeys(
        words(
            """
            srand srandom setlocale cudaMemcpyToSymbol cudaMemcpyToSymbolAsync
            cudaMemcpyFromSymbol cudaMemcpyFromSymbolAsync
            """
        ),
        ("cache", "it is a place that lives between calls"),
    ),
    **dict.fromkeys(
        words(
            """
            fesetround fesetenv feupdateenv _mm_setcsr _MM_SET_FLUSH_ZERO_MODE
            _MM_SET_DENORMALS_ZERO_MODE _MM_SET_ROUNDING_MODE
            """
        ),
        ("precision", "it changes how the processor rounds from then on"),
    ),
    "_Pragma": ("pragma", "write it as #pragma, on a line of its own"),
    **dict.fromkeys(
        ("include_next", "__has_include", "__has_include_next", "__has_embed"),
        ("preprocessor", None),
    ),
}
_PREFIXES: tuple[tuple[str, tuple[str, str | None]], ...] = (
    ("pthread_", ("thread", "use OpenMP")),
    ("thrd_", ("thread", "use OpenMP")),
    ("sched_", ("thread", "the evaluator chooses the cores")),
    ("sem_", ("thread", None)),
    ("cudaStream", ("stream", None)),
    ("cudaGraph", ("stream", None)),
    ("cudaEvent", ("stream", None)),
    ("cudaProfiler", ("clock", None)),
    ("cudaCtx", ("device-setting", None)),
    ("cudaIpc", ("system", None)),
    ("cuCtx", ("device-setting", None)),
    ("cuStream", ("stream", None)),
    ("cuEvent", ("stream", None)),
    ("cuGraph", ("stream", None)),
    ("cuModule", ("foreign-code", None)),
    ("cuLibrary", ("foreign-code", None)),
    ("cuLink", ("foreign-code", None)),
    ("cuGetProcAddress", ("foreign-code", None)),
    ("cuMem", ("device-setting", None)),
    ("nvrtc", ("foreign-code", None)),
    ("nvJitLink", ("foreign-code", None)),
    *((p, ("vendor-library", None)) for p in ("cublas", "cudnn", "cusparse", "cusolver", "cufft")),
    *((p, ("vendor-library", None)) for p in ("curand", "cutensor", "mcblas", "mcdnn", "hipblas")),
)
_ALLOWED = frozenset(
    words(
        """
        cudaStream_t cudaStreamNonBlocking cudaEvent_t cuda_runtime sem_t curand_kernel
        """
    )
)
_VENDOR_HEADERS = words(
    """
    cublas cudnn cusparse cusolver cufft cutensor cutlass cute/ thrust/ cub/ ATen/ torch/ c10/
    mcblas mcdnn hipblas mkl cblas dnnl
    """
)


def verdict_of_native_name(name: str) -> tuple[str, str | None] | None:
    """Return the rule and reason against ``name``; None where a kernel may use it."""
    if name in _ALLOWED:
        return None
    if name in _EXACT:
        return _EXACT[name]
    return next((verdict for prefix, verdict in _PREFIXES if name.startswith(prefix)), None)


def rule_of_header(header: str) -> str:
    """The rule that a header which is not on the list breaks."""
    return "vendor-library" if header.startswith(tuple(_VENDOR_HEADERS)) else "header"
