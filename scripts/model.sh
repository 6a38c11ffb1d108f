#!/usr/bin/env bash
# Checks the models of docs/model: every run of runs.txt, one after another, against what it is expected to show.
# MODEL=quick leaves out the long ones. RUN=text runs only those whose name contains it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../docs/model"

MEMORY=4000  # MiB that one run may take
DEPTH=3000000
CPU=300      # seconds of processor time that one run may take

skip() { # not a failure: the machine cannot check, and nobody should overlook it
  {
    echo '######################################################################'
    echo "  THE MODEL WAS NOT CHECKED: $1"
    echo '  Install spin (6.5 or later) and a C compiler, then: make model'
    echo '    Debian, Ubuntu: apt-get install spin gcc    macOS: brew install spin'
    echo '######################################################################'
  } >&2
  exit 0
}

if ! command -v spin >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo 'spin is not there; installing it with apt-get' >&2
  { apt-get -qq update && apt-get -qq install -y --no-install-recommends spin; } >&2 || true
fi
command -v spin >/dev/null || skip 'spin is not installed'
CC=$(command -v cc || command -v gcc || true)
[ -n "$CC" ] || skip 'there is no C compiler'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check builds and runs one verifier in $work; it leaves its output in $work/out. The first words of its answer: pass, fail or broken.
check() {
  local optimise=$1 options=("${@:2}")
  cp ./*.pml "$work"
  (
    cd "$work"
    rm -f pan.c pan out ./*.trail
    spin -a "${options[@]}" seal.pml >spin.out 2>&1 && [ -s pan.c ] &&
      "$CC" "$optimise" -w -DSAFETY -DNOREDUCE -DCOLLAPSE -DMEMLIM=$MEMORY -o pan pan.c >>spin.out 2>&1
  ) || { cp "$work/spin.out" "$work/out"; echo broken; return; }
  (cd "$work" && ulimit -t $CPU && ./pan -E -m$DEPTH >out 2>&1) || true
  if grep -q 'assertion violated' "$work/out"; then
    echo fail
  elif grep -q 'errors: 0' "$work/out" && ! grep -Eq 'max search depth too small|memory limit|Search not completed|interrupted' "$work/out"; then
    echo pass
  else
    echo broken
  fi
}

TIMEFORMAT=%1U # processor time: a busy machine takes longer, not more
printf '%-43s %9s %7s %6s %7s  %-6s %s\n' run states depth MiB cpu found ''
runs=0 wrong=0
while IFS='|' read -r set expected name options; do
  set=${set// /} expected=${expected// /}
  name=$(sed 's/^ *//; s/ *$//' <<<"$name")
  case $set in '' | '#'*) continue ;; esac
  [ "${MODEL:-all}" = all ] || [ "$set" = quick ] || continue
  [[ $name == *"${RUN:-}"* ]] || continue
  read -ra opts <<<"$options"
  optimise=-O1
  [ "$set" = all ] || optimise=-O0 # compiling takes longer than the run
  { time found=$(check $optimise "${opts[@]}"); } 2>"$work/time"
  runs=$((runs + 1)) verdict=
  if [ "$found" != "$expected" ]; then
    verdict="<-- expected $expected" wrong=$((wrong + 1))
  fi
  printf '%-43s %9s %7s %6.0f %6ss  %-6s %s\n' "$name" \
    "$(awk '/states, stored/ {print $1; exit}' "$work/out")" "$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$work/out" | head -1)" \
    "$(awk '/total actual memory/ {print $1; exit}' "$work/out")" "$(cat "$work/time")" "$found" "$verdict"
  [ "$found" != broken ] || sed 's/^/    /' "$work/out" | head -20
done <runs.txt

if [ "$runs" = 0 ]; then
  echo 'no run matches' >&2
  exit 1
fi
echo "$runs runs, $wrong not as expected"
[ "$wrong" = 0 ]
