# shellcheck shell=bash
# tests/support/expect.sh — sourced by tests that are scripts: what files are to say.

problems=0
expect() {  # WHAT FILE PATTERN
  grep -qE -- "$3" "$2" && return
  printf 'missing: %s (%s) in:\n' "$1" "$3"
  tail -n 60 "$2"
  problems=$((problems + 1))
}
