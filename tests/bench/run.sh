#!/usr/bin/env bash
# Benchmarks of the release program beside its peers; docs/benchmarks.md holds one run. Nothing here fails on a slow machine.
# Needs Rust, Python 3 and Node 20; installs the peers under target/bench.
set -euo pipefail
cd "$(dirname "$0")/../.."

tools=target/bench
mkdir -p "$tools"
cargo build --quiet --release -p fv-catalog
[[ -x $tools/venv/bin/check-jsonschema ]] || python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet --disable-pip-version-check check-jsonschema==0.39.0
npm install --prefix "$tools" --no-save --no-audit --no-fund --silent ajv@8.20.0 ajv-formats@3.0.1 yaml@2.9.1 js-yaml@5.5.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A copy, so that a build beside us does not change what is measured.
cp target/release/fv-catalog "$work/fv-catalog"
sync "$work/fv-catalog" # dirty pages cannot be dropped from the cache
python3 tests/bench/measure.py "$work/fv-catalog" "$tools" "$work" "$tools/results.json"

# The estimator beside its peers. What cannot be installed is left out, and said so.
bench=$(cargo bench -p fv-estimate --bench estimate --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))$/\1/p')
cp "$bench" "$work/estimate"
if CARGO_TARGET_DIR=$tools/llmfit cargo build --quiet --release --manifest-path tests/bench/estimate/Cargo.toml; then
  llmfit=$tools/llmfit/release/bench-llmfit
else
  llmfit=-
  echo "Left out: llmfit-core 1.1.18 could not be built."
fi
if npm install --prefix "$tools/fitllm" --no-save --no-audit --no-fund --silent fitllm-engine@2.18.0; then
  fitllm=$tools/fitllm
else
  fitllm=-
  echo "Left out: fitllm-engine 2.18.0 could not be installed from npm."
fi
python3 tests/bench/estimate/measure.py "$work/estimate" "$llmfit" "$fitllm" "$tools/estimate.json"
