#!/usr/bin/env bash
# Builds the WebAssembly module, the npm package, and the applications that there are. Needs Rust and Node; installs everything else:
# the target with rustup where that works, otherwise the distribution's packages, and wasm-bindgen's tool, whose version is Cargo.lock's.
#   web/build.sh            what is published
#   web/build.sh --debug    in a fraction of the time, five times as large and slow
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
out=${CARGO_TARGET_DIR:-target}
parts=$PWD/web/target/parts
# The standard library is built small; what panics traps without a text, which nobody would read.
std=(-Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size)
small="-Zunstable-options -Cpanic=immediate-abort -Zlocation-detail=none"
# Functions are inlined where that makes them smaller or almost so: half the bytes for little time.
little="$small -Cllvm-args=-inline-threshold=20 -Cllvm-args=-inlinehint-threshold=40"
debug=
if [ "${1:-}" = --debug ]; then
  debug=yes
fi

export RUSTC_BOOTSTRAP=1 # stable compilers build the standard library for those who say so
cargo=cargo
if rustup target add "$target" >/dev/null 2>&1 && rustup component add rust-src >/dev/null 2>&1; then
  [ -z "$debug" ] || std=()
elif [ ! -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
  # Debian and its kin; https://packages.debian.org/rustc-web
  if [ ! -x /usr/bin/cargo ] || ! ls /usr/lib/rustlib/src/rust /usr/src/rustc-* >/dev/null 2>&1; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq rustc-web cargo-web rust-web-src lld-22
  fi
  cargo=/usr/bin/cargo
  export RUSTC=/usr/bin/rustc
fi

version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
bindgen=wasm-bindgen
if [ "$(wasm-bindgen --version 2>/dev/null)" != "wasm-bindgen $version" ]; then
  bindgen=$out/tools/bin/wasm-bindgen
  if [ "$("$bindgen" --version 2>/dev/null)" != "wasm-bindgen $version" ]; then
    # Without --locked: its own lock names a release that was withdrawn.
    env -u RUSTC -u RUSTC_BOOTSTRAP cargo install --quiet wasm-bindgen-cli --version "$version" --root "$out/tools"
  fi
fi

# part NAME PROFILE FLAGS FEATURES: builds one module and the script that loads it.
part() {
  RUSTFLAGS="$3" "$cargo" build --quiet --target "$target" --profile "$2" -p fv-wasm --no-default-features --features "$4" "${std[@]}"
  "$bindgen" --target web --remove-name-section --remove-producers-section --out-dir "$parts/$1" "$out/$target/${2/#dev/debug}/fv_wasm.wasm"
}
if [ -n "$debug" ]; then
  # Both are the whole.
  part whole dev "" whole
  rm -rf "$parts/first"
  cp -r "$parts/whole" "$parts/first"
else
  part first wasm-first "$small" ""
  part whole wasm "$little" whole
fi

cd web
if [ ! -d node_modules ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --no-audit --no-fund --loglevel=error
fi
npm run --silent build --workspace packages/estimator
if [ -d apps/calculator ]; then
  npm run --silent build --workspace apps/calculator
fi
