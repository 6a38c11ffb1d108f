#!/usr/bin/env bash
# cassandra.sh runs Apache Cassandra for tests, on loopback addresses. It gets the jars by their Maven coordinates.
# Needs bash, Java 17 and Maven.
#
#   cassandra.sh install DIR              put the jars into DIR/lib, unless they are there
#   cassandra.sh run DIR NAME OPTIONS     become the node NAME, in the foreground
#   cassandra.sh start DIR NAME OPTIONS   run the node NAME in the background and wait for it
#   cassandra.sh wait DIR NAME [SECONDS]  wait until the node answers clients, 4 minutes by default
#   cassandra.sh again DIR NAME           start the node NAME again as it was started last, in the background, and wait for it
#   cassandra.sh stop DIR NAME            end the node NAME, and wait for its end
#   cassandra.sh with DIR COUNT COMMAND   install, start a cluster of COUNT nodes, run the command, stop the nodes.
#                                         The command finds the nodes in CASSANDRA_NODES: IP:PORT,IP:PORT...
#
# OPTIONS: --listen IP  [--seeds IP,IP]  [--cql PORT]  [--heap 192M]  [--sync batch|periodic]  [--yaml 'key: value']...
#          [--jvm -Dkey=value]...
#
# A node keeps everything in DIR/NAME. Several nodes of a cluster share their seeds and differ in their addresses.
# Exit status: 0 done, 1 failed, 2 wrong usage, 3 a tool is missing, or the jars cannot be had.
set -euo pipefail

version=5.0.9
java=${JAVA:-java}

die() { echo "cassandra.sh: $*" >&2; exit 1; }
usage() { sed -n '2,18p' "$0" >&2; exit 2; }
missing() { echo "cassandra.sh: $*" >&2; exit 3; }
need() { command -v "$1" >/dev/null || missing "no $1 here; install it"; }

install() {
  need "$java"
  mkdir -p "$1"; local dir; dir=$(cd "$1" && pwd)
  [ "$(cat "$dir/lib/.version" 2>/dev/null)" != "$version" ] || return 0
  need mvn
  work=$(mktemp -d "$dir/install.XXXXXX") # not local: the trap reads it when the script ends
  trap 'rm -rf "$work"' EXIT
  cat >"$work/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId><artifactId>cassandra</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>$version</version>
  </dependency></dependencies>
</project>
POM
  mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" \
    >"$work/log" 2>&1 || { tail -15 "$work/log" >&2; missing "Maven could not get cassandra-all $version"; }
  rm -f "$work"/lib/*-osx-*.jar "$work"/lib/*-windows-*.jar
  echo "$version" >"$work/lib/.version"
  rm -rf "$dir/lib" 2>/dev/null || true
  # Of two installations at the same time one wins, and both have the same jars.
  mv -T "$work/lib" "$dir/lib" 2>/dev/null || [ "$(cat "$dir/lib/.version")" = "$version" ]
  rm -rf "$work" # here, as another trap may replace the one above
}

# Without these Java 17 refuses what Cassandra does.
modules=(
  -Djdk.attach.allowAttachSelf=true -Dio.netty.tryReflectionSetAccessible=true
  --add-exports=java.base/jdk.internal.misc=ALL-UNNAMED --add-exports=java.base/java.lang.ref=ALL-UNNAMED
  --add-exports=java.management.rmi/com.sun.jmx.remote.internal.rmi=ALL-UNNAMED
  --add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED --add-exports=java.rmi/sun.rmi.server=ALL-UNNAMED
  --add-exports=java.sql/java.sql=ALL-UNNAMED --add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED
  --add-exports=jdk.attach/sun.tools.attach=ALL-UNNAMED
  --add-opens=java.base/java.lang.module=ALL-UNNAMED --add-opens=java.base/jdk.internal.loader=ALL-UNNAMED
  --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/jdk.internal.reflect=ALL-UNNAMED
  --add-opens=java.base/jdk.internal.math=ALL-UNNAMED --add-opens=java.base/jdk.internal.module=ALL-UNNAMED
  --add-opens=java.base/jdk.internal.util.jar=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
  --add-opens=java.base/java.io=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED
  --add-opens=java.base/java.lang.reflect=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED
  --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED
)

# configure reads OPTIONS, writes the configuration, and leaves node, heap, jvm.
configure() {
  [ $# -ge 2 ] || usage
  dir=$(cd "$1" && pwd) || die "no directory $1"
  node=$dir/$2 heap=192M jvm=()
  shift 2
  mkdir -p "$node"
  printf '%s\n' "$@" >"$node/options" # for again
  local ip='' seeds='' cql=9042 sync=batch yaml=()
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
      --listen) ip=$2 ;; --seeds) seeds=$2 ;; --cql) cql=$2 ;; --heap) heap=$2 ;; --sync) sync=$2 ;;
      --yaml) yaml+=("$2") ;; --jvm) jvm+=("$2") ;;
      *) usage ;;
    esac
    shift 2
  done
  [ -n "$ip" ] || usage
  [ -f "$dir/lib/.version" ] || die "no jars in $dir/lib; run: $0 install $dir"
  mkdir -p "$node"/{conf,data,log,tmp}
  printf 'address=%s\nport=%s\n' "$ip" "$cql" >"$node/env"
  : >"$node/log/system.log"
  settings "$ip" "${seeds:-$ip}" "$cql" "$sync" >"$node/conf/cassandra.yaml"
  local line
  for line in ${yaml[@]+"${yaml[@]}"}; do
    sed -i "/^${line%%:*}:/d" "$node/conf/cassandra.yaml"
    echo "$line" >>"$node/conf/cassandra.yaml"
  done
  printf 'dc=datacenter1\nrack=rack1\n' >"$node/conf/rackdc.properties"
  cat >"$node/conf/logback.xml" <<XML
<configuration>
  <appender name="F" class="ch.qos.logback.core.FileAppender">
    <file>$node/log/system.log</file>
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="F"/></root>
</configuration>
XML
}

settings() { # ADDRESS SEEDS PORT SYNC
  cat <<YAML
cluster_name: columba-test
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
seed_provider: [{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: "$2"}]}]
listen_address: $1
rpc_address: $1
native_transport_port: $3
storage_port: 7000
# The coordinator answers a read at ONE by itself. With another snitch it may ask a node that is cut off.
endpoint_snitch: GossipingPropertyFileSnitch
dynamic_snitch: false
num_tokens: 1
auto_bootstrap: false
block_for_peers_timeout_in_secs: -1
# A periodic commit log forgets acknowledged changes when all nodes die at once.
commitlog_sync: $4
$([ "$4" = batch ] || echo 'commitlog_sync_period: 1000ms')
commitlog_segment_size: 8MiB
commitlog_total_space: 64MiB
commit_failure_policy: die
disk_failure_policy: die
memtable_heap_space: 32MiB
memtable_offheap_space: 32MiB
memtable_flush_writers: 1
concurrent_compactors: 1
auto_snapshot: false
key_cache_size: 2MiB
counter_cache_size: 0MiB
file_cache_size: 16MiB
networking_cache_size: 16MiB
storage_compatibility_mode: NONE
concurrent_reads: 8
concurrent_writes: 16
# A request that waits for a lost node holds its thread: with few threads all others wait behind it.
native_transport_max_threads: 256
paxos_variant: v2
YAML
}

# become replaces this shell by the node that configure has prepared: a signal to the shell's process reaches Java.
become() {
  need "$java"
  cd "$node"
  export MALLOC_ARENA_MAX=2
  ulimit -l 0 2>/dev/null || true
  local drop=()
  # As root Cassandra locks its memory, 400 MB more than it needs.
  if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then drop=(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock); fi
  exec ${drop[@]+"${drop[@]}"} "$java" "-Xms$heap" "-Xmx$heap" -Xss256k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -XX:ReservedCodeCacheSize=48M -XX:MaxDirectMemorySize=192M -XX:+ExitOnOutOfMemoryError -XX:+PerfDisableSharedMem \
    -javaagent:"$(ls "$dir"/lib/jamm-*.jar)" "${modules[@]}" -Djava.net.preferIPv4Stack=true \
    -Djava.io.tmpdir="$node/tmp" -Djna.tmpdir="$node/tmp" -Dlogback.configurationFile="file://$node/conf/logback.xml" \
    -Dcassandra.config="file://$node/conf/cassandra.yaml" \
    -Dcassandra-rackdc.properties="file://$node/conf/rackdc.properties" \
    -Dcassandra.storagedir="$node/data" -Dcassandra.logdir="$node/log" -Dcassandra-foreground=yes \
    -Dcassandra.libjemalloc=- -Dcassandra.ring_delay_ms=1000 -Dcassandra.skip_wait_for_gossip_to_settle=0 \
    -Dcassandra.consistent.rangemovement=false -Dcassandra.available_processors=2 ${jvm[@]+"${jvm[@]}"} \
    -cp "$dir/lib/*" org.apache.cassandra.service.CassandraDaemon
}

# pid_of answers the process of a node, if it is that node.
pid_of() { # NODE
  local pid; pid=$(cat "$1/pid" 2>/dev/null) || return 1
  tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "-Dcassandra.storagedir=$1/data" || return 1
  echo "$pid"
}

wait_for() { # NODE SECONDS
  [ -f "$1/env" ] || die "$1 was never started"
  local address='' port='' until=$((SECONDS + $2))
  . "$1/env"
  # The log must say it, too: another process may answer on the port.
  until grep -q 'Starting listening for CQL clients' "$1/log/system.log" &&
    timeout 2 bash -c "exec 3<>/dev/tcp/$address/$port" 2>/dev/null; do
    if [ $SECONDS -ge $until ] || grep -q 'Exception encountered during startup' "$1/log/system.log"; then
      tail -25 "$1/log/system.log" "$1/log/stdout.log" >&2 2>/dev/null || true
      die "$1 does not answer clients on $address:$port"
    fi
    sleep 0.2
  done
}

stop() { # NODE
  local pid i
  pid=$(pid_of "$1") || return 0
  kill "$pid" 2>/dev/null || true
  for ((i = 0; i < 200; i++)); do pid_of "$1" >/dev/null || break; sleep 0.1; done
  if pid_of "$1" >/dev/null; then kill -9 "$pid" || true; fi
  rm -f "$1/pid"
}

# with_nodes runs a command beside a cluster. Its nodes are at 127.9.2.1 and so on.
with_nodes() { # DIR COUNT COMMAND...
  [ $# -ge 3 ] || usage
  install "$1"
  local count=$2 i seeds='' CASSANDRA_NODES=''
  nodes_of=$(cd "$1" && pwd)
  shift 2
  for ((i = 1; i <= count; i++)); do
    seeds+=${seeds:+,}127.9.2.$i
    CASSANDRA_NODES+=${CASSANDRA_NODES:+,}127.9.2.$i:9042
  done
  trap 'for n in "$nodes_of"/n[0-9]*; do stop "$n" & done; wait' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  set -m # each node in a process group of its own: ^C is for the command, and the nodes end after it
  for ((i = 1; i <= count; i++)); do
    configure "$nodes_of" "n$i" --listen "127.9.2.$i" --seeds "$seeds"
    ! pid_of "$node" >/dev/null || die "n$i runs already"
    (become) >"$node/log/stdout.log" 2>&1 </dev/null &
    echo $! >"$node/pid"
  done
  set +m
  disown -a # without it bash reports each node that was killed, when the command ends
  for ((i = 1; i <= count; i++)); do wait_for "$nodes_of/n$i" 240; done
  export CASSANDRA_NODES
  "$@" & # so that a signal reaches the traps
  local command=$!
  trap 'kill -INT $command 2>/dev/null || true' INT
  trap 'kill -TERM $command 2>/dev/null || true' TERM
  local code=0
  while kill -0 "$command" 2>/dev/null; do code=0; wait "$command" || code=$?; done
  return "$code"
}

[ $# -ge 2 ] || usage
command=$1; shift
case $command in
  install) install "$1" ;;
  run) configure "$@"; echo $$ >"$node/pid"; become ;;
  start)
    configure "$@"
    ! pid_of "$node" >/dev/null || die "$2 runs already"
    (become) >"$node/log/stdout.log" 2>&1 </dev/null &
    echo $! >"$node/pid"
    wait_for "$node" 240 ;;
  wait) [ $# -ge 2 ] || usage; wait_for "$(cd "$1" && pwd)/$2" "${3:-240}" ;;
  with) with_nodes "$@" ;;
  again)
    [ $# -eq 2 ] && [ -f "$1/$2/options" ] || usage
    mapfile -t options <"$1/$2/options"
    exec "$0" start "$1" "$2" "${options[@]}" ;;
  stop) [ $# -eq 2 ] || usage; stop "$(cd "$1" && pwd)/$2" ;;
  *) usage ;;
esac
