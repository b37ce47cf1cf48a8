#!/bin/sh
# Prove in a pipeline that the data of a source can be moved: copy it into a scratch database, compare both,
# and keep what people and programs read of it.
#
#   TWINSTORE_CONFIG   settings of the source and of the scratch target; secrets come from the environment
#   OUT                directory for the results (default: out)
#   SUMMARY            file that the pipeline shows as Markdown, if it has one
#
# Options that are given to it go to the comparison, such as --entity runs.
#
# The exit code is that of the comparison: 0 only when the switch could be turned, 1 when something differs,
# 3 when the proof has gaps. When the copy does not come to its end, it is that of the copy.
set -u

here=$(dirname "$0")
out=${OUT:-out}
mkdir -p "$out"

run() {
    twinstore backfill --job-file "$here/job.toml" "$@"
}

# What does not fit is told before anything is written.
run plan > "$out/plan.txt" || exit $?

# 3: some documents were kept back. The comparison says which, so it runs all the same.
run copy --execute --out "$out/copy" > "$out/copy.txt"
code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 3 ]; then
    cat "$out/copy.txt"
    exit "$code"
fi

run verify --require-cutover-ready --out "$out/report" "$@" > "$out/verify.txt"
code=$?
cat "$out/verify.txt"

# For the test tab; it is there also when the comparison failed, and then says why.
[ -f "$out/report/parity-report.xml" ] && cp "$out/report/parity-report.xml" "$out/junit.xml"
# For people: a page to keep beside the build, and the same as Markdown for the summary of the run.
[ -f "$out/report/parity-report.html" ] && cp "$out/report/parity-report.html" "$out/parity.html"
[ -f "$out/report/parity-report.md" ] && cat "$out/report/parity-report.md" >> "${SUMMARY:-$out/summary.md}"
exit "$code"
