# tools/phases.sh — what ./quickstart and ./runtests share: phases with their times, output
# of builds kept in a file where nobody watches it. Sourced by bash; `program` names the
# caller.
bold= plain=
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi

fail() {
  printf '%s: error: %s\n' "$program" "$*" >&2
  exit 1
}

# phase NAME COMMAND...: a heading, the command, the seconds it took.
phase() {
  local name=$1 start=$SECONDS; shift
  printf '\n%s== %s%s\n' "$bold" "$name" "$plain"
  "$@" || return
  printf '%s== %s: %d s%s\n' "$bold" "$name" $((SECONDS - start)) "$plain"
}

# quietly LOG COMMAND...: on a terminal as it is, elsewhere into LOG, whose end is shown if
# the command fails.
quietly() {
  local log=$1 status=0; shift
  if [[ -t 1 && $1 == cmake && $2 == --build ]]; then
    NINJA_STATUS='[%f/%t] ' "$@" || status=$?
    return $status
  fi
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 || status=$?
  if ((status != 0)); then
    # A build's errors stand before the lines of jobs that were still running.
    grep -nE -A 6 'error:|Error |FAILED:' "$log" | head -n 40 >&2 || true
    printf '%s: that failed (status %d); all of it is in %s\n' "$program" "$status" "$log" >&2
  fi
  return $status
}

# building COMMAND...: the command, once nobody else builds in $build: what two build at a time
# comes out broken. (The lock is nothing that the command's processes keep.)
building() {
  mkdir -p "$build"
  (
    flock -n 9 || echo "another build is at work in $build: waiting for its end"
    flock 9 && "$@" 9>&-
  ) 9>"$build/.lock"
}
