#!/bin/sh
# Shows with strace(1) that counting, publishing, draining and taking totals make no system call.
#
# `cargo bench --bench ratios -- --hot-paths` goes through every hot path a thousand times between
# two calls of getsid(2), which nothing else makes. Between these two there must be nothing.
# publish() and drain_into read the clock, which is no system call where the kernel has a vDSO for
# the machine's clock source.
set -eu
cd "$(dirname "$0")/.."

command -v strace >/dev/null || { echo "no strace here (apt-get install strace)" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

strace --follow-forks --output "$folder/trace" \
    cargo bench --quiet --bench ratios -- --hot-paths

marks=$(grep -c 'getsid(0)' "$folder/trace" || true)
if [ "$marks" -ne 2 ]; then
    echo "expected 2 marks in the trace, found $marks" >&2
    exit 1
fi
pid=$(grep 'getsid(0)' "$folder/trace" | head -n 1 | cut -d ' ' -f 1)
grep "^$pid " "$folder/trace" | sed '1,/getsid(0)/d; /getsid(0)/,$d' >"$folder/between"
if [ -s "$folder/between" ]; then
    echo "system calls on hot paths:" >&2
    sort "$folder/between" | uniq -c | sort -rn | head -n 20 >&2
    exit 1
fi
echo "no system call in 1,000 rounds of every hot path"
