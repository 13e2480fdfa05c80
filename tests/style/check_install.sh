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

share=$place/second/share/trireme
for file in README.md LICENSE inputs/quickstart.yaml; do
  [[ -f $share/$file ]] || complain "share/trireme/$file is missing"
done
# What the pages for users name is there beside them, but for what works on the source alone.
named=$(grep -ohE '(tools|slurm|inputs)/[A-Za-z0-9_./-]*[A-Za-z0-9_]' "$share"/README.md \
          "$share"/docs/*.md | sort -u | grep -vxE 'tools/(bootstrap|phases.sh)')
for file in $named; do
  [[ -e $share/$file ]] || complain "share/trireme/$file is missing; the pages name it"
done
while IFS=: read -r page link; do
  [[ -e ${page%/*}/$link ]] || complain "${page#"$share"/} links to $link, which is missing"
done < <(grep -roE --include='*.md' '\]\([^)#: ]+[)#]' "$share" | sed 's/](//; s/.$//')
grep -qx 'SPDX-License-Identifier: Apache-2.0' "$share/LICENSE" || complain "LICENSE: which one?"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt")
grep -qx "version: $version" "$share/CITATION.cff" ||
  complain "CITATION.cff is not of version $version"
# They run there as they are, from any directory, and leave nothing behind.
printf '{"traceEvents": [{"name": "forward 0", "ph": "X", "pid": 0, "tid": 0, "ts": 0,
  "dur": 9, "args": {}}]}' >"$place/trace.json"
echo '{"step": 1, "loss": 2, "tokens": 3}' >"$place/train.jsonl"
cd "$place"
"$share/tools/plot_curve" train.jsonl -o curve.svg || complain "plot_curve failed there"
"$share/tools/plot_trace" trace.json -o trace.svg || complain "plot_trace failed there"
"$share/tools/report" --help >/dev/null || complain "report failed there"
"$share/tools/scaling" --help >/dev/null || complain "scaling failed there"
[[ -z $(find "$share" -name __pycache__) ]] || complain "a tool leaves files in the tree"
# The first example of docs/slurm.md, as it stands there.
echo '{model: {layers: 2, hidden: 24, heads: 4, sequence: 16, vocab: 300}, batch: {global: 64},
  data: {train: corpus.h5}}' >my.yaml
example=$(sed -n '/^```sh$/,/^sbatch/{/^```sh$/d;/^sbatch/q;p}' "$share/docs/slurm.md")
[[ $example == 'trireme jobscript my.yaml '* ]] || complain "docs/slurm.md begins otherwise"
PATH=${program%/*}:$PATH bash -c "$example" && bash -n my.sbatch ||
  complain "the first example of docs/slurm.md does not work from anywhere"
if [[ -d $build/share/trireme/gpt2 ]]; then
  cmp "$build"/share/trireme/gpt2/vocab.bpe "$place"/second/share/trireme/gpt2/vocab.bpe ||
    complain "GPT-2's vocabulary is missing"
fi
exit $failed
