#!/bin/sh
# Prove in a pipeline that the data of a source can be moved: copy it into a scratch database, compare both,
# and keep what people and programs read of it.
#
#   TWINSTORE_CONFIG   settings of the source and of the scratch target; secrets come from the environment
#   OUT                directory for the results (default: out)
#   SUMMARY            file that the pipeline shows as Markdown, if it has one; what is there already stays
#
# Run one at a time: a second one would write into the same scratch database.
#
# Options that are given to it go to the comparison, such as --entity runs.
#
# The exit code is that of the comparison: 0 only when it is safe to cut over, 1 when something differs,
# 3 when the proof has gaps. When the copy does not come to its end, it is that of the copy. A signal ends what runs, and
# leaves the files for the test tab and the summary.
set -u

here=$(dirname -- "$0")
out=${OUT:-out}
case $out in -*) out=./$out ;; esac
summary=${SUMMARY:-$out/summary.md}
# A shell would end with 1 where it cannot write, and 1 says that something differs.
mkdir -p "$out" && : > "$out/error.txt" || exit 2
# Nothing of an earlier run may pass for this one.
rm -f "$out/junit.xml" "$out/parity.html" "$out/plan.txt" "$out/copy.txt" "$out/verify.txt" "$out/summary.md" \
    "$out"/report/parity-report.* "$out/report/differences.ndjson" || exit 2

# A shell hears a signal when it waits, and not while a command in the foreground runs. So each runs in the background.
child='' stopped=''
stop() {
    stopped=143
    [ -z "$child" ] || kill -TERM "$child"
}
trap stop HUP INT TERM

# What it says of its progress and of errors is shown at once, and kept.
run() {
    rm -f "$out/error.pipe" && mkfifo "$out/error.pipe" || return 2
    (trap '' HUP INT TERM && exec tee "$out/error.txt" < "$out/error.pipe" >&2) &
    shown=$!
    twinstore backfill --job-file "$here/job.toml" "$@" 2> "$out/error.pipe" &
    child=$!
    [ -z "$stopped" ] || kill -TERM "$child"
    wait "$child"
    code=$?
    # A signal ends `wait` early; the command ends in order then.
    while kill -0 "$child" 2> /dev/null; do
        wait "$child"
        code=$?
    done
    child=''
    wait "$shown"
    rm -f "$out/error.pipe"
    return "$code"
}

# An empty test tab looks like a run that nobody asked for, so what failed before the comparison is an error there.
give_up() {
    said=$(LC_ALL=C tr -cd '[:print:]\n' < "$out/error.txt")
    reason=$(printf '%s\n' "$said" | sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g')
    {
        printf '# No verdict: backfill %s ended with code %s\n\n' "$1" "$2"
        printf '%s\n' "$said" | sed -e 's/^/    /'
    } >> "$summary"
    cat > "$out/junit.xml" <<EOT
<?xml version="1.0" encoding="utf-8"?>
<testsuites name="twinstore" tests="1" failures="0" errors="1">
  <testsuite name="twinstore" tests="1" failures="0" errors="1" skipped="0">
    <testcase classname="twinstore" name="$1">
      <error message="backfill $1 ended with code $2" type="exit">$reason</error>
    </testcase>
  </testsuite>
</testsuites>
EOT
    exit "$2"
}

# The plan reports what does not fit, before anything is written.
run plan > "$out/plan.txt" || give_up plan $?

# 3: some documents were quarantined. The comparison names them, so it runs anyway.
run copy --execute --out "$out/copy" > "$out/copy.txt"
code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 3 ]; then
    cat "$out/copy.txt"
    give_up copy "$code"
fi

run verify --require-cutover-ready --out "$out/report" "$@" > "$out/verify.txt"
code=$?
cat "$out/verify.txt"

# For the test tab; it is there also when the comparison failed, and then says why.
[ -f "$out/report/parity-report.xml" ] || give_up verify "$code"
cp "$out/report/parity-report.xml" "$out/junit.xml"
# For people: a page to keep with the build, and the same as Markdown for the summary of the run.
[ -f "$out/report/parity-report.html" ] && cp "$out/report/parity-report.html" "$out/parity.html"
[ -f "$out/report/parity-report.md" ] && cat "$out/report/parity-report.md" >> "$summary"
exit "$code"
