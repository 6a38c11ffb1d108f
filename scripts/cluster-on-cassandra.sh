#!/usr/bin/env bash
# Applies the schema to the nodes of CASSANDRA_NODES, and becomes COMMAND with their URL as its metadata.
#
#   cluster-on-cassandra.sh COLUMBA COMMAND...
set -euo pipefail
columba=$1; shift
url=cassandra://$CASSANDRA_NODES/columba
"$columba" schema apply "$url"
exec "$@" -metadata "$url"
