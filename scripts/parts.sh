# Runs the parts of a test script and counts them: sourced after lib.sh.
#
# A part is a command. When it leaves results/NAME.xml (JUnit, as pytest and ctest write it) the
# tests in it count, else the part counts as one.

results=$PWD/build/results
rm -rf "$results"
mkdir -p "$results"
passed=0 failed=0 skipped=0 table=()
SKIPPED=77  # exit status of a part that this machine cannot run; it says why

# part NAME COMMAND...
part() {
  local name=$1 began=$SECONDS status p f s
  shift
  say "$name"
  # Not `if "$@"`: a condition would turn errexit off inside the part.
  set +e
  (set -e; "$@") </dev/null 2>&1 | tee "$results/$name.log"
  status=${PIPESTATUS[0]}
  set -e
  read -r p f s < <(.venv/bin/python scripts/count_tests.py "$results/$name.xml" "$status")
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  table+=("$(printf '%-16s %6d passed %4d failed %4d skipped %5d s' "$name" "$p" "$f" "$s" $((SECONDS - began)))")
}

# The table of parts and the closing line; fails if a test did.
summary() {
  say "summary"
  printf '%s\n' "${table[@]}"
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}

# cpp_tests PRESET: builds and runs the C++ tests; shows what did not pass.
cpp_tests() {
  cmake --preset "$1"
  cmake --build "build/$1" -j "$JOBS"
  ctest --preset "$1" -j "$JOBS" --output-junit "$results/cpp-$1.xml" |
    sed -E '/^ *Start +[0-9]+:/d; / Passed /d'
}
