#!/bin/sh
# Draws passwords and writes a file for each secret: sh samples/deploy/make-secrets.sh [DIRECTORY]
set -eu
directory=${1:-samples/deploy/secrets}
# Compose shows the files to users of the containers as they are, so they are readable; their directory is not.
mkdir -m 700 "$directory"
drawn() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
write() { printf '%s\n' "$2" >"$directory/$1" && chmod 644 "$directory/$1"; }

owner=$(drawn)
app=$(drawn)
write postgres_password "$(drawn)"
write owner_password "$owner"
write app_password "$app"
write Persistence__Postgres__OwnerConnectionString "postgresql://twinstore_owner:$owner@postgres:5432/scheduler"
write Persistence__Postgres__ConnectionString "postgresql://twinstore_app:$app@postgres:5432/scheduler"
