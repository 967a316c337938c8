#!/usr/bin/env bash
# Compiles every kernel for every architecture that a release carries, into target/kernels, and refuses what would be slow without
# saying so: a stack, registers that spill, more shared memory than a consumer card has, matrix instructions that are missing.
# Needs no GPU. The compiler comes from PyPI; its parts are pinned, since the newest of each do not fit together.
set -euo pipefail
cd "$(dirname "$0")/.."

architectures=(80 86 89 90a 120)
wheels=(
  nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
  nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37
)
# What dynamic shared memory adds to, and what a block can have in all on compute capability 8.6, 8.9 and 12.0.
most_static_shared=4096

sources=crates/fv-device/kernels
out=target/kernels
venv=target/kernels-venv
if [ ! -x "$venv/complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  if ! "$venv/bin/pip" install --quiet --disable-pip-version-check "${wheels[@]}"; then
    echo "kernels: NOT CHECKED, the compiler could not be had from the package registry" >&2
    exit "${KERNELS_REQUIRED:-0}"
  fi
  install -m 755 /dev/null "$venv/complete"
fi
toolkit=$(echo "$venv"/lib/python3*/site-packages/nvidia/cu13)
export PATH="$toolkit/bin:$PATH"

rm -rf "$out"
mkdir -p "$out/source"
cp "$sources"/* "$out/source"

failed=0
refuse() {
  echo "kernels: $1" >&2
  failed=1
}

# The resources of each kernel of a file, as the assembler reports them: name, stack, spills, registers, shared memory.
resources() {
  awk '/Function properties for/ { name = $NF }
    /bytes stack frame/ { for (i = 1; i <= NF; i++) if ($i == "bytes") { if ($(i + 1) == "stack") stack = $(i - 1); else spill += $(i - 1) } }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5); shared = 0
      if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH - 11)
      print name, stack, spill, registers, shared; spill = 0
    }' "$1"
}

for source in "$sources"/*.cu; do
  file=$(basename "$source" .cu)
  for architecture in "${architectures[@]}"; do
    cubin="$out/$file.sm_$architecture.cubin"
    report="$out/$file.sm_$architecture.txt"
    nvcc -std=c++17 -cubin "-gencode=arch=compute_$architecture,code=sm_$architecture" -Xptxas -v -I "$sources" "$source" -o "$cubin" 2>"$report" ||
      { cat "$report" >&2; refuse "$source does not compile for sm_$architecture"; continue; }
    if grep -q "warning" "$report"; then cat "$report" >&2; refuse "$source has warnings for sm_$architecture"; fi
    kernels=0
    while read -r name stack spill registers shared; do
      kernels=$((kernels + 1))
      [ "$stack" -eq 0 ] || refuse "$name has a stack of $stack bytes on sm_$architecture"
      [ "$spill" -eq 0 ] || refuse "$name spills $spill bytes on sm_$architecture"
      [ "$shared" -le "$most_static_shared" ] || refuse "$name has $shared bytes of static shared memory on sm_$architecture"
      printf '%s %s %s\n' "sm_$architecture" "$name" "$registers" >>"$out/registers.txt"
    done < <(resources "$report")
    [ "$kernels" -eq "$(grep -c '^extern "C" __global__' "$source")" ] || refuse "$source: $kernels kernels were reported for sm_$architecture"
  done
done

# Matrix units: HMMA on bfloat16, in both kernels of attention, on every architecture.
for architecture in "${architectures[@]}"; do
  cubin="$out/attention.sm_$architecture.cubin"
  [ -f "$cubin" ] || continue
  for kernel in attention tile_attention; do
    found=$(cuobjdump --dump-sass --function "$kernel" "$cubin" | grep -c 'HMMA.16816.F32.BF16' || true)
    [ "$found" -ge 128 ] || refuse "$kernel has $found bfloat16 matrix instructions on sm_$architecture, 128 or more are expected"
  done
done

[ "$failed" -eq 0 ] || exit 1
echo "kernels: $(cut -d' ' -f2 "$out/registers.txt" | sort -u | wc -l) kernels for ${architectures[*]}, no stack, no spills; most registers $(sort -k3,3n "$out/registers.txt" | tail -1)"
