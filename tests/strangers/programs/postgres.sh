#!/bin/bash
# Usage: postgres.sh FOLDER SETTING...
# Goal: what pgbench committed is there after a stop at once and a recovery, every page's checksum
# is right, and so are all indexes. Runs as a user who is not root, as PostgreSQL wants.
set -eu
folder=$1
shift
data=$folder/data
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
sockets=$(mktemp -d)
trap '"$bin"/pg_ctl -D "$data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$sockets"' EXIT
export PGHOST=$sockets PGDATABASE=postgres
"$bin"/initdb -D "$data" --data-checksums --no-sync >/dev/null
{
    echo "unix_socket_directories = '$sockets'"
    echo "listen_addresses = ''"
    echo "shared_buffers = 4MB"
    echo "max_wal_size = 64MB"
    for setting in "$@"; do echo "$setting"; done
} >>"$data/postgresql.conf"
start() { "$bin"/pg_ctl -D "$data" -w -t 60 -l "$folder/log" start >/dev/null; }
ask() { "$bin"/psql -At -c "$1"; }
start
"$bin"/pgbench -q -i -s 2 >/dev/null 2>&1
"$bin"/pgbench -c 4 -t 250 >/dev/null 2>&1
echo "insert into pgbench_history (tid) values (1);" >"$folder/insert"
"$bin"/pgbench -c 4 -t 50 -f "$folder/insert" -n >/dev/null 2>&1
before=$(ask "select count(*), sum(delta) from pgbench_history")
"$bin"/pg_ctl -D "$data" -m immediate stop >/dev/null
start
after=$(ask "select count(*), sum(delta) from pgbench_history")
[ "$before" = "$after" ] || { echo "committed: $before, after a crash: $after"; exit 1; }
sums=$(ask "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from
    pgbench_branches) and (select sum(tbalance) from pgbench_tellers) =
    (select sum(bbalance) from pgbench_branches)")
[ "$sums" = t ] || { echo "the balances differ"; exit 1; }
ask "create extension amcheck" >/dev/null
"$bin"/pg_amcheck --heapallindexed --no-dependent-toast postgres
ask "vacuum full; " >/dev/null
"$bin"/pg_dump --data-only -t pgbench_accounts | md5sum >/dev/null
"$bin"/pg_ctl -D "$data" -m fast stop >/dev/null
"$bin"/pg_checksums --check -D "$data" >/dev/null
echo done
