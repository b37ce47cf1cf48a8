#!/bin/sh
# Compare two stores, keep the reports of the last times, and end as the comparison does.
#
#   verify-and-keep.sh [options of `twinstore backfill verify`]
#
#   TWINSTORE_CONFIG   settings of both sides; secrets come from the environment
#   REPORTS            directory for the reports, one below it for each time (default: reports)
#   KEEP               how many are kept (default: 14)
#
# `$REPORTS/latest` is a link to the last one that was written. Run one at a time: cron with flock, a systemd
# timer and a CronJob with `concurrencyPolicy: Forbid` see to it.
set -u

reports=${REPORTS:-reports}
keep=${KEEP:-14}
case $keep in
    *[!0-9]*) wrong=yes ;;
    *[1-9]*) wrong= ;;
    *) wrong=yes ;;
esac
if [ -n "$wrong" ]; then
    echo "KEEP should be a number of at least 1, not '$keep'." >&2
    exit 2
fi

name=$(date -u +%Y%m%dT%H%M%SZ)
mkdir -p "$reports" || exit 2
# A shell that waits for a command hands no signal on, and as the first process of a container it dies of none.
twinstore backfill verify --progress none --out "$reports/$name" "$@" &
child=$!
trap 'kill -TERM "$child" 2> /dev/null' INT TERM
wait "$child"
code=$?
# A signal ends the first wait, not the command.
while kill -0 "$child" 2> /dev/null; do
    wait "$child"
    code=$?
done

# Without a report (wrong options, or nothing could be written) the last good one stays the latest.
if [ -d "$reports/$name" ]; then
    ln -sfn "$name" "$reports/latest"
fi

# By name, which is by age; whatever else lies there is left alone.
set -- "$reports"/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]T[0-9][0-9][0-9][0-9][0-9][0-9]Z
while [ "$#" -gt "$keep" ]; do
    rm -rf -- "$1"
    shift
done
exit "$code"
