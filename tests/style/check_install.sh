#!/usr/bin/env bash
# tests/style/check_install.sh BUILD SOURCE — cmake --install makes a tree that can be moved: the
# program starts from another place, finds its own files there, and loads nothing from the
# source or the build tree. Of two OpenMP or BLAS libraries the system's come first.
set -euo pipefail
build=$1 source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
complain() { echo "$*" >&2; failed=1; }

cmake --install "$build" --prefix "$place/first" >/dev/null
mv "$place/first" "$place/second"
program=$place/second/bin/trireme
[[ -x $program ]] || { echo "no bin/trireme in the installed tree" >&2; exit 1; }

unset LD_LIBRARY_PATH
"$program" --version || complain "trireme --version failed in the moved tree"

libraries=$(ldd "$program")
grep -q 'not found' <<<"$libraries" && complain "not found: $(grep 'not found' <<<"$libraries")"
strays=$(grep -F -e "$source/" -e "$build/" <<<"$libraries" || true)
[[ -z $strays ]] || complain "loaded from the source or build tree: $strays"
path=$(readelf -d "$program" | grep -E 'R(UN)?PATH' || true)
case $path in *"$source/"*|*"$build/"*) complain "run path of this machine: $path" ;; esac

# ldd lists in the order in which symbols are looked up.
first() { grep -oE "$1[^ ]*" <<<"$libraries" | head -n 1; }
[[ $(first libgomp) == libgomp.so.* ]] || complain "OpenMP comes from $(first libgomp)"
blas=$(first 'lib(openblas|blas)')
[[ $blas != *-r0-* ]] || complain "BLAS comes from $blas, a prebuilt Kokkos' own"

for file in README.md inputs/quickstart.yaml; do
  [[ -f $place/second/share/trireme/$file ]] || complain "share/trireme/$file is missing"
done
if [[ -d $build/share/trireme/gpt2 ]]; then
  cmp "$build"/share/trireme/gpt2/vocab.bpe "$place"/second/share/trireme/gpt2/vocab.bpe ||
    complain "GPT-2's vocabulary is missing"
fi
exit $failed
