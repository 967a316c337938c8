#!/usr/bin/env bash
# What only a device can show of the runner, by binaries that were built before: tests/gpu/runner.sh FOLDER PART [OUT]. Builds
# nothing. FOLDER holds `kernels` and `gpu`, the test binaries of fv-device and fv-run, `fv-run`, and plans in `plans`.
#
#   kernels     each kernel against double precision, then the same bits whatever is split
#   models      tiny transformers against the processor in double precision, then the same bits wherever weights live
#   speeds      times of kernels at the sizes of Wan 2.1 1.3B
#   steps       steps of the plans, with their times
#   sanitizer   kernels at small sizes under compute-sanitizer
set -uo pipefail
folder=$(cd "$1" && pwd)
part=$2
out=${3:-.}
failed=0
run() {
  echo "== $*"
  timeout "${LIMIT:-480}" "$@" || { failed=1; echo "== failed: $*"; }
}
case $part in
  kernels)
    run "$folder/kernels" --ignored --nocapture --test-threads=1 kernels_agree
    run "$folder/kernels" --ignored --nocapture --test-threads=1 parts_are operands_that
    ;;
  models) run "$folder/gpu" --ignored --nocapture --test-threads=1 ;;
  speeds) run "$folder/kernels" --ignored --nocapture --test-threads=1 speeds ;;
  steps)
    for plan in "$folder"/plans/*.json; do
      run "$folder/fv-run" run --plan "$plan" --backend cuda --stage denoising --weights synthetic:1 --profile | tee "$out/$(basename "$plan" .json).txt"
    done
    ;;
  sanitizer) run compute-sanitizer --tool memcheck --error-exitcode 1 "$folder/kernels" --ignored --nocapture --test-threads=1 kernels_agree ;;
  *)
    echo "no part is called $part" >&2
    exit 2
    ;;
esac
exit "$failed"
