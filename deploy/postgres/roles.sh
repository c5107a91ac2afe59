#!/bin/bash
# Runs once, when the database of the compose file is created: the roles of backend/embedded/roles.sql with passwords.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --quiet --file "${ROLES_SQL:-/parley/roles.sql}"
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --quiet \
    --set owner="$PARLEY_OWNER_PASSWORD" --set app="$PARLEY_APP_PASSWORD" <<'SQL'
ALTER ROLE parley_owner PASSWORD :'owner';
ALTER ROLE parley_app PASSWORD :'app';
SQL
