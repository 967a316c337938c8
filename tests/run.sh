#!/usr/bin/env bash
# The whole test suite. Needs a Rust toolchain, Python 3 and Node; installs everything else from package registries.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== format and lints"
cargo fmt --all --check
cargo clippy --quiet --workspace --all-targets -- -D warnings

echo "== systems that are not this one"
here=$(rustc -vV | sed -n 's/^host: //p')
for target in x86_64-pc-windows-gnu x86_64-pc-windows-msvc aarch64-apple-darwin x86_64-unknown-linux-gnu; do
  if [ "$target" = "$here" ]; then continue; fi
  if [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ]; then
    cargo clippy --quiet --package fv-run --package fv-device --target "$target" -- -D warnings
    [ -z "${FV_LEAN:-}" ] || rm -rf "${CARGO_TARGET_DIR:-target}/$target"
    echo "$target: checked"
  else
    echo "$target: not checked, its target is not installed (rustup target add $target)"
  fi
done

echo "== CUDA kernels"
tests/kernels.sh

echo "== generated files are current"
cargo build --quiet -p fv-catalog
fv=target/debug/fv-catalog
"$fv" schema --check
"$fv" docs --check
"$fv" --check

echo "== tests"
cargo test --workspace
# Sweeps as Parquet are behind a feature.
cargo clippy --quiet -p fv-catalog --features parquet --all-targets -- -D warnings
cargo test -p fv-catalog --features parquet --test parquet

echo "== editors: real schema checkers on the authored files"
tests/editor/check.sh

echo "== the estimator for browsers and Node"
if ! command -v chromium >/dev/null; then
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq chromium >/dev/null
fi
cargo clippy --quiet -p fv-wasm --no-default-features -- -D warnings
web/build.sh
npm run --silent check --prefix web/packages/estimator
npm test --silent --prefix web/packages/estimator

echo "== the calculator"
npm run --silent check --prefix web/apps/calculator
npm test --silent --prefix web/apps/calculator
cargo clippy --quiet -p fv-catalog --features page --all-targets -- -D warnings
cargo test -p fv-catalog --features page --bin fv-catalog
cargo build --quiet -p fv-catalog --features page
FV_CATALOG_BIN=${CARGO_TARGET_DIR:-$PWD/target}/debug/fv-catalog npm run --silent test:browser --prefix web/apps/calculator
