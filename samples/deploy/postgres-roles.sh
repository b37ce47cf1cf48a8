#!/bin/sh
# Run once by the image of PostgreSQL, on an empty volume: the role that owns the schema, and the one that serves.
set -eu
psql --username postgres --set ON_ERROR_STOP=1 \
  --set owner="$(cat /run/secrets/owner_password)" --set app="$(cat /run/secrets/app_password)" <<'SQL'
CREATE ROLE twinstore_owner LOGIN PASSWORD :'owner';
CREATE ROLE twinstore_app LOGIN PASSWORD :'app';
CREATE DATABASE scheduler OWNER twinstore_owner;
SQL
