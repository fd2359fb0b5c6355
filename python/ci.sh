#!/usr/bin/env bash
# Builds the wheel and runs the tests in a fresh virtual environment. PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
cargo fmt --check
cargo clippy --release --quiet -- --deny warnings
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'maturin>=1.9,<2' pytest
"$work/venv/bin/maturin" build --release --quiet --out "$work/wheels"
"$work/venv/bin/pip" install --quiet "$work"/wheels/*.whl
"$work/venv/bin/pytest" --quiet "$@"
