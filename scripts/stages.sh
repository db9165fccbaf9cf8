# Sourced by the scripts that work in stages: runs and times them, counts what passed and failed.
#
#   stage NAME BUDGET COMMAND...     one stage; counts as one check
#   test_stage NAME BUDGET CTEST...  a ctest call; counts as many checks as ctest ran tests
#   report                           the table, then "N passed, N failed"; fails when anything failed
#
# BUDGET is in seconds; a stage that takes longer is marked in the table. Stages after a failed one still run.

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

note_stage() {  # NAME BUDGET SECONDS RESULT
  local remark=""
  [ "$3" -le "$2" ] || remark="  over its budget"
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
    note_stage "$name" "$budget" $((SECONDS - start)) "passed"
  else
    failed=$((failed + 1))
    note_stage "$name" "$budget" $((SECONDS - start)) "FAILED"
  fi
}

test_stage() {
  local name=$1 budget=$2 start=$SECONDS log summary
  shift 2
  printf '\n==> %s\n' "$name"
  log=$(mktemp)
  run_ctest() { ctest --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log"; exit "${PIPESTATUS[0]}"; }
  run_strictly run_ctest "$@"
  # "100% tests passed, 0 tests failed out of 12"
  summary=$(sed -n -E 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$log" | tail -n 1)
  rm -f "$log"
  local failures=${summary% *} tests=${summary#* }
  if [ -z "$summary" ] || { [ "$status" != 0 ] && [ "$failures" = 0 ]; }; then
    failed=$((failed + 1))
    note_stage "$name" "$budget" $((SECONDS - start)) "FAILED: ctest ended with status $status"
    return
  fi
  passed=$((passed + tests - failures))
  failed=$((failed + failures))
  note_stage "$name" "$budget" $((SECONDS - start)) "$((tests - failures)) tests passed, $failures failed"
}

report() {
  printf '\n%s\n' "Stages:"
  printf '  %s\n' "${table[@]}"
  printf '  %-34s %5d s\n\n' "total" "$SECONDS"
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
