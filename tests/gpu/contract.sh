#!/usr/bin/env bash
# What plans say against what the device does: tests/gpu/contract.sh FV_RUN PART OUT. Builds nothing. Each plan is made here, by the
# same program, executed for three steps on random weights, and printed as a line of OUT/contract-PART.csv; what the program printed
# is in OUT/contract-PART.txt. `tests/data/runner/contract.csv` holds what was measured, and tests/tests/contract.rs judges it.
#
#   small    Wan 2.1 1.3B and FastWan 2.1: resident, page-locked, on disk, in FP8, in pieces, at several sizes; about 6 minutes
#   large    Wan 2.1 14B; about 7 minutes
set -uo pipefail
fv_run=$(realpath "$1") part=$2 out=$(realpath "$3")
log=$out/contract-$part.txt rows=$out/contract-$part.csv
plans=$(mktemp -d)
trap 'rm -rf "$plans"' EXIT
failed=0
echo "group,plan,precision,device_blocks,pinned_blocks,disk_blocks,slots,head_group,planned_bytes,before_bytes,reserved_bytes,end_bytes,flat,arena_bytes,host_bytes,planned_step_ns,step_ms,waiting_ms,copied_bytes,sha256" >"$rows"
# GROUP NAME ARGUMENTS: plans of one group give the same latent, to the bit.
plan() {
  local group=$1 name=$2 file=$plans/$2.json
  shift 2
  if ! "$fv_run" plan "$@" --hardware h200 --steps 3 --out "$file" >"$plans/words" 2>&1; then
    failed=1
    echo "== $name has no plan"
    tail -4 "$plans/words"
    return
  fi
  echo "== $name: fv-run plan $* --hardware h200 --steps 3"
  if ! timeout 240 "$fv_run" run --plan "$file" --backend cuda --stage denoising --weights synthetic:1 >"$plans/said" 2>&1; then
    failed=1
    echo "== $name failed"
  fi
  cat "$plans/said"
  python3 "$(dirname "$0")/contract_row.py" "$group" "$name" "$file" "$plans/said" >>"$rows" || failed=1
}
{
  date -u +%Y-%m-%dT%H:%MZ
  nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader
  case $part in
    small)
      wan="--model wan21-t2v-1.3b"
      for gib in 12 3.6 3.2 2.8 2.4 2.0 1.6 1.3; do plan wan13 "wan13-$gib" $wan --vram-gib $gib --ram-gib 32; done
      for gib in 2.4 1.6; do plan wan13 "wan13-disk-$gib" $wan --vram-gib $gib --ram-gib 2.2; done
      for gib in 12 2.4 1.6; do plan wan13-fp8 "wan13-fp8-$gib" $wan --precision fp8 --vram-gib $gib --ram-gib 32; done
      for gib in 12 2 1.3; do plan wan13-33 "wan13-33-$gib" $wan --frames 33 --vram-gib $gib --ram-gib 32; done
      for gib in 12 1.4; do plan wan13-square "wan13-square-$gib" $wan --width 512 --height 512 --frames 17 --vram-gib $gib --ram-gib 32; done
      for gib in 12 3 2 1.5; do plan fastwan "fastwan-$gib" --model fastwan21 --vram-gib $gib --ram-gib 32; done
      ;;
    large)
      wan="--model wan21-t2v-14b --width 832 --height 480 --frames 33"
      plan wan14 wan14-40 $wan --vram-gib 40 --ram-gib 100
      plan wan14 wan14-6 $wan --vram-gib 6 --ram-gib 100
      plan wan14-fp8 wan14-fp8-24 $wan --precision fp8 --vram-gib 24 --ram-gib 100
      plan wan14-fp8 wan14-fp8-6 $wan --precision fp8 --vram-gib 6 --ram-gib 100
      ;;
    *)
      echo "no part is called $part" >&2
      exit 2
      ;;
  esac
  # The group runs in a shell of its own: its status is what it leaves, and `pipefail` hands it on.
  [ "$failed" = 0 ]
} 2>&1 | tee "$log"
