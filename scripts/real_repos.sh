#!/usr/bin/env bash
# Unpacks the Python files of published SGLang, LMDeploy and Liger wheels into .real/: real input
# for tests and benchmarks, never part of this repository. Does nothing when they are there.
# `real_repos.sh traces` does so for the versions nearest to those that recorded the traces of
# `ksmith bench trace`, into .real/traces/ (vLLM's wheel has 0.5 GB). `real_repos.sh extraction`
# adds what `ksmith bench extraction` needs beside: an older SGLang, that vLLM, and commits of
# LightLLM and DLBlas, which are not on PyPI in these versions.
set -euo pipefail
cd "$(dirname "$0")/.."

unpack() { # folder version
    local name=${1##*/}
    local stamp=.real/$1/.version
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$2" ] && return
    local wheels; wheels=$(mktemp -d)
    echo "Fetching $1 $2" >&2
    if ! .venv/bin/python -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: --dest "$wheels" "$name==$2"; then
        echo "$1 $2 could not be fetched; the tests that need it will skip" >&2
        rm -rf "$wheels"
        return
    fi
    rm -rf ".real/$1"
    mkdir -p ".real/$1"
    .venv/bin/python - "$wheels" ".real/$1" <<'PY'
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(sys.argv[2], [n for n in archive.namelist() if n.endswith((".py", "METADATA"))])
PY
    rm -rf "$wheels"
    echo "$2" >"$stamp"
}

checkout() { # folder repository commit
    local stamp=.real/$1/.version
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$3" ] && return
    local clone; clone=$(mktemp -d)
    echo "Fetching $2 at ${3:0:8}" >&2
    git init --quiet "$clone"
    if git -C "$clone" fetch --quiet --depth 1 "https://github.com/$2" "$3"; then
        rm -rf ".real/$1"
        mkdir -p ".real/$1"
        git -C "$clone" archive FETCH_HEAD | tar -x -C ".real/$1"
        echo "$3" >"$stamp"
    else
        echo "$2 could not be fetched; the benchmark leaves its targets out" >&2
    fi
    rm -rf "$clone"
}

if [ "${1-}" = extraction ]; then
    unpack extraction/sglang 0.5.9
    unpack traces/vllm 0.14.0
    checkout extraction/lightllm ModelTC/lightllm fc72ffab9a3455cfb571f22d45ab777cc29de0de
    checkout extraction/dlblas DeepLink-org/DLBlas aae234451e772339f4fd075e00894205b87024fc
    checkout extraction/engram DeepLink-org/DLBlas fd25b7cbadc2a4539e311a725077004f242ab2cd
fi
if [ "${1-}" = traces ]; then
    unpack traces/sglang 0.5.10
    unpack traces/vllm 0.14.0
    unpack traces/transformers 4.53.2
    exit
fi
unpack lmdeploy 0.18.0
unpack sglang 0.5.23
unpack liger-kernel 0.8.5
