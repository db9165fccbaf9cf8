# Sourced by the scripts that work in stages: runs and times them, counts what passed and failed.
#
#   stage NAME BUDGET COMMAND...          one stage; counts as one check
#   counted_stage NAME BUDGET COMMAND...  a script that itself ends with report, or a ctest call: counts as many
#                                         checks as it says
#   report                                the table, then "N passed, N failed"; fails when anything failed
#
# BUDGET is in seconds; a stage that takes longer is marked in the table. Stages after a failed one still run.

# What ccache keeps of one build folder serves the others.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

passed=0
failed=0
table=()

# Runs a command with `set -e` in force inside, in a subshell, and leaves its exit status in `status`.
run_strictly() {
  set +e
  (set -e; "$@")
  status=$?
  set -e
}

end_stage() {  # NAME BUDGET SECONDS RESULT
  local remark=""
  [ "$3" -le "$2" ] || remark=", OVER ITS BUDGET"
  table+=("$(printf '%-34s %5d s of %5d s   %s%s' "$1" "$3" "$2" "$4" "$remark")")
  echo "<== $1: $4, $3 s$remark"
}

stage() {
  local name=$1 budget=$2 start=$SECONDS
  shift 2
  printf '\n==> %s\n' "$name"
  run_strictly "$@"
  if [ "$status" = 0 ]; then
    passed=$((passed + 1))
    end_stage "$name" "$budget" $((SECONDS - start)) "passed"
  else
    failed=$((failed + 1))
    end_stage "$name" "$budget" $((SECONDS - start)) "FAILED"
  fi
}

# Reads a log; prints "PASSED FAILED" from its last closing line: ctest's "100% tests passed, 0 tests failed out of
# 12", report's "12 passed, 0 failed", or pytest's "1 failed, 11 passed, 1 error in 0.52s".
closing_counts() {
  awk '/^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+$/ { failed = $4; passed = $NF - $4 }
       /^[0-9]+ passed, [0-9]+ failed$/ { passed = $1; failed = $3 }
       /^=* ?[0-9]+ (passed|failed|errors?).* in [0-9.]+s/ {
         passed = failed = 0
         for (i = 2; i <= NF; ++i) {
           if ($i ~ /^passed/) passed = $(i - 1)
           if ($i ~ /^(failed|error)/) failed += $(i - 1)
         }
       }
       END { if (passed != "") print passed, failed }' "$1"
}

counted_stage() {
  local name=$1 budget=$2 start=$SECONDS log counts passed_here failed_here
  shift 2
  printf '\n==> %s\n' "$name"
  log=$(mktemp)
  run_logged() { "$@" 2>&1 | tee "$log"; return "${PIPESTATUS[0]}"; }
  run_strictly run_logged "$@"
  counts=$(closing_counts "$log")
  rm -f "$log"
  passed_here=${counts% *} failed_here=${counts#* }
  # A call that fails without saying what failed, or that ran nothing, is one failure.
  if [ -z "$counts" ] || [ $((passed_here + failed_here)) = 0 ] || { [ "$status" != 0 ] && [ "$failed_here" = 0 ]; }; then
    failed=$((failed + 1))
    end_stage "$name" "$budget" $((SECONDS - start)) "FAILED (status $status)"
    return
  fi
  passed=$((passed + passed_here))
  failed=$((failed + failed_here))
  end_stage "$name" "$budget" $((SECONDS - start)) "$passed_here passed, $failed_here failed"
}

report() {
  printf '\nStages:\n'
  printf '  %s\n' "${table[@]}"
  printf '  %-34s %5d s\n\n' "total" "$SECONDS"
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
