"""What C++ and CUDA a candidate may not write."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.candidate import BackendName
from evaluator.source_policy import Violation
from tests.evaluator.source_policy.checking import check_parts, refusals, rules


def check_cuda(text: str) -> list[Violation]:
    return check_parts(cpp=text, backend=BackendName.CUDA)


@pytest.mark.parametrize(
    "text",
    [
        '/* system("ls"); asm */ int f() { return 1; }',
        "// #include <unistd.h>",
        'void f() { const char* text = "fork()"; }',
        "void f() { int thread_count = 4; int systematic = 1; }",
        "void f(int thread, int signal) { int kill = thread + signal; kill++; }",
        "int clone(int x) { return x; } int g() { return clone(1); }",
        "struct S { int open; }; int f(S s) { return s.open; }",
        "namespace mine { int system(int x) { return x; } } int f() { return mine::system(1); }",
        "enum Kind { raise, other }; int f() { return raise; }",
        "void f() { for (int alarm = 0; alarm < 3; ++alarm) { g(alarm); } }",
        "constexpr int n = 1;",
        "#pragma omp parallel for schedule(static)",
        "#pragma GCC unroll 8",
        '#pragma GCC optimize("associative-math", "no-trapping-math")',
        '#pragma GCC target("prefer-vector-width=512")',
        "void f() { const int64_t big = 1'000'000; }",
        "#define SQUARE(x) \\\n    ((x) * (x))",
        "#define INLINE static inline __attribute__((always_inline))",
        "static const float TABLE[3] = {1.0f, 2.0f, 3.0f};",
        "constexpr int N = 8; const float INF = std::numeric_limits<float>::infinity();",
        "void f() { static const int order[2] = {1, 2}; static constexpr int n = 4; }",
        "static inline float f(float x) { return x; }",
        "float f(float); float f(float x) { return x; }",
        "template <typename T> T f(T x); template <typename T> T f(T x) { return x; }",
        "void f(int n) { std::vector<float> v(n); v[0] = 1; }",
        "typedef float v8 __attribute__((vector_size(32)));",
        "[[nodiscard]] inline int f([[maybe_unused]] int x) { return 1; }",
        "alignas(64) static const int t[2] = {1, 2};",
        "void f() { auto g = [&](int i) mutable { return i; }; g(1); }",
        "struct S { static constexpr int n = 4; int m; };",
        'const char* const names[] = {"a", "b"};',
        "#ifdef __AVX512F__\nvoid f() {}\n#else\nvoid f() { }\n#endif",
        "using F = float (*)(float); void f(F g) { g(1); }",
    ],
)
def test_comments_strings_look_alikes_and_honest_code_are_no_violations(text: str) -> None:
    assert check_parts(cpp=text) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("#include <unistd.h>", "header"),
        ("#  include <sys/socket.h>", "header"),
        ('#include "/etc/passwd"', "header"),
        ("#include HEADER", "header"),
        ("#include <cublas_v2.h>", "vendor-library"),
        ("#include <torch/extension.h>", "vendor-library"),
        ("#include_next <cmath>", "preprocessor"),
        ("#if __has_include(<x>)\n#endif", "preprocessor"),
        ('extern "C" int system(const char*);', "foreign-code"),
        ('extern "C" { int puts(const char*); }', "foreign-code"),
        ('extern "C" int other(int) __asm__("system");', "inline-asm"),
        ("extern char** environ;", "foreign-code"),
        ('void f() { asm("nop"); }', "inline-asm"),
        ('void f() { __asm__ volatile("nop"); }', "inline-asm"),
        ("void f() { int pid = fork(); }", "system"),
        ('void f() { ::system("ls"); }', "system"),
        ('void f() { std::system("ls"); }', "system"),
        ("void g() { int system = 1; } void f() { system(0); }", "system"),
        ("void f() { auto run = system; }", "system"),
        ("void f() { int s = socket(2, 1, 0); }", "system"),
        ('void f() { fopen("x", "r"); }', "system"),
        ('void f() { std::ifstream in("x"); }', "system"),
        ("void f() { syscall(1); }", "system"),
        ("void f() { mmap(0, 1, 7, 0, 0, 0); }", "system"),
        ("void f() { mprotect(0, 1, 7); }", "system"),
        ('void f() { getenv("HOME"); }', "system"),
        ("void f() { atexit(g); }", "system"),
        ("void* f() { return dlopen(0, 1); }", "foreign-code"),
        ("void f() { std::thread t(g); }", "thread"),
        ("void f() { std::jthread t(g); }", "thread"),
        ("void f() { auto r = std::async(g); }", "thread"),
        ("void f() { pthread_create(0, 0, g, 0); }", "thread"),
        ("void f() { signal(9, g); }", "control-flow"),
        ("void f() { longjmp(b, 1); }", "control-flow"),
        ("void f() { std::chrono::steady_clock::now(); }", "clock"),
        ("#define CALL(a, b) a##b", "preprocessor"),
        ("#define RUN sys\\\ntem", "preprocessor"),
        ('void f() { as\\\nm("nop"); }', "preprocessor"),
        ("void f() { fo\\ \nrk(); }", "preprocessor"),
        ("%:include <unistd.h>", "preprocessor"),
        ("#define RUN system", "system"),
        ("#define KEEP static", "preprocessor"),
        ("#define KEEP int kept = 0;\nKEEP", "cache"),
        ("__attribute__((constructor)) void f() {}", "attribute"),
        ("[[gnu::constructor]] void f() {}", "attribute"),
        ('void f() __attribute__((alias("system")));', "attribute"),
        ('__attribute__((ifunc("r"))) void f() {}', "attribute"),
        ('__attribute__((optimize("Ofast"))) void f() {}', "pragma"),
        ('#pragma GCC optimize("Ofast")', "pragma"),
        ('#pragma GCC optimize("unroll-loops", "finite-math-only")', "pragma"),
        ('#pragma GCC target("arch=x86-64-v4")', "pragma"),
        ("#pragma GCC optimize(FLAGS)", "pragma"),
        ("#pragma GCC push_options", "pragma"),
        ("#pragma redefine_extname f system", "pragma"),
        ('_Pragma("GCC optimize(3)") void f() {}', "pragma"),
        ("int kept = 0;", "cache"),
        ("static float kept[16];", "cache"),
        ("namespace { float* kept; }", "cache"),
        ("inline int kept = 0;", "cache"),
        ("thread_local int kept = 0;", "cache"),
        ("const float* kept = nullptr;", "cache"),
        ("std::vector<float> kept;", "cache"),
        ("template <int N> int kept = N;", "cache"),
        ("struct S { static int kept; };", "cache"),
        ("struct S { mutable int kept; };", "cache"),
        ("void f() { static int calls = 0; ++calls; }", "cache"),
        ("void f() { static std::vector<float> v; }", "cache"),
        ("void f() { thread_local int calls; }", "cache"),
        ("void f(const float* x) { static const float first = x[0]; }", "cache"),
        ("void f(const float* x) { static const auto made = make(x); }", "cache"),
        (
            "void f(const float* x) { auto g = [=] { static const float a = x[0]; return a; }; }",
            "cache",
        ),
        ("struct S { S() {} }; const S made;", "global-constructor"),
        ("int f() { return 1; } const int made = f();", "global-constructor"),
        ("const int made = [] { return 1; }();", "global-constructor"),
        ("void (*hook)(int) = nullptr;", "cache"),
    ],
)
def test_cpp_that_leaves_the_computation_or_keeps_state_is_refused(text: str, rule: str) -> None:
    assert rule in rules(refusals(check_parts(cpp=text)))


KERNEL = """
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cstdint>

#define CEIL(a, b) (((a) + (b) - 1) / (b))
constexpr int kThreads = 256;
__constant__ float coefficients[4] = {1, 2, 3, 4};

template <typename T>
__device__ __forceinline__ float wide(const T* __restrict__ x, int64_t i) { return float(x[i]); }

__global__ void __launch_bounds__(kThreads) scale(const half* __restrict__ x, half* out, int n) {
  extern __shared__ float tile[];
  __shared__ float total;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float value = i < n ? wide(x, i) : 0.0f;
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    total += __shfl_xor_sync(0xffffffff, value, lane);
  }
  tile[threadIdx.x] = value;
  __syncthreads();
  if (i < n) out[i] = __float2half(value * coefficients[0]);
}

extern "C" void run(const half* x, half* out, int64_t n, cudaStream_t stream) {
  cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);
  scale<<<CEIL(n, kThreads), kThreads, kThreads * sizeof(float), stream>>>(x, out, n);
}
"""


def test_an_honest_cuda_kernel_passes() -> None:
    assert check_cuda(KERNEL) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("void f() { cudaStream_t s; cudaStreamCreate(&s); }", "stream"),
        ("void f() { cudaStreamCreateWithFlags(&s, 1); }", "stream"),
        ("void f() { cudaLaunchHostFunc(s, g, 0); }", "stream"),
        ("void f() { cudaGraphLaunch(g, s); }", "stream"),
        ("void f() { cudaDeviceSynchronize(); }", "stream"),
        ("void f() { k<<<1, 1, 0, cudaStreamPerThread>>>(); }", "stream"),
        ("void f() { cudaEventRecord(e); }", "stream"),
        ("void f() { cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1); }", "device-setting"),
        ("void f() { cudaCtxResetPersistingL2Cache(); }", "device-setting"),
        ("void f() { cudaMemcpyToSymbol(c, x, 4); }", "cache"),
        ("void f() { cuModuleLoad(&m, p); }", "foreign-code"),
        ("void f() { cublasSgemm(h); }", "vendor-library"),
        ("#include <cudnn.h>", "vendor-library"),
        ("#include <cub/device/device_reduce.cuh>", "vendor-library"),
        ("__device__ float kept[16];", "cache"),
        ("__managed__ int kept;", "cache"),
        ("__global__ void k() { static __device__ int kept; }", "cache"),
    ],
)
def test_cuda_that_works_elsewhere_or_keeps_state_is_refused(text: str, rule: str) -> None:
    assert rule in rules(refusals(check_cuda(text)))


def test_ptx_is_a_warning_that_a_policy_can_change() -> None:
    text = '__global__ void k(float* x) { asm volatile("mov.u32 %0, 1;" : "=r"(*x)); }'
    assert [(v.rule, v.refuses) for v in check_cuda(text)] == [("ptx", False)]


def test_the_line_of_cpp_is_counted_in_the_candidates_file() -> None:
    found = check_parts(cpp="constexpr int a = 1;\n\nint c() { return fork(); }")
    assert [v.line for v in found] == [8]


@pytest.mark.parametrize("text", ["void f( { fork(); }", "int fork; %$ system(1);", "}}} mmap"])
def test_where_the_parser_is_lost_every_name_counts(text: str) -> None:
    found = check_parts(cpp=text)
    assert {"unparsed", "system"} <= rules(found)


CHEAT = """
static int calls = 0;
extern "C" void f(float* x) {
  ++calls;
  std::thread t(g);
  system("ls");
  fopen("a", "b");
}
"""


@settings(max_examples=25)
@given(st.text("abcxyz", min_size=1, max_size=6), st.sampled_from(["  ", "\n", "/* fork() */"]))
def test_names_and_formatting_change_nothing_that_is_found(suffix: str, space: str) -> None:
    changed = CHEAT.replace("calls", f"calls_{suffix}").replace(";", f" ;{space}")
    plain = sorted(v.rule for v in check_parts(cpp=CHEAT))
    assert sorted(v.rule for v in check_parts(cpp=changed)) == plain
