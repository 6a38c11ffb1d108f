#!/usr/bin/env bash
# install.sh DIR puts the brokers that benchmarks compare with into DIR, each from its package registry, unless they are
# there: nats-server by go install, Kafka's jars by Maven, RabbitMQ with its Erlang out of Debian's packages, unpacked
# and not installed. A broker that cannot be had is left out, and the last lines say which.
# Needs bash and Go; for Kafka also Java 17 and Maven; for RabbitMQ apt and dpkg.
# Exit status: 0 done, perhaps with some left out; 2 wrong usage.
set -euo pipefail

nats=v2.15.2
kafka=4.3.1 log4j=2.25.4
# RabbitMQ of this release of Debian: 4.0.5. Its C library comes along, so an older machine can run it.
suite=trixie

[ $# = 1 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
missing=()
work=$(mktemp -d "$dir/install.XXXXXX")
trap 'rm -rf "$work"' EXIT

# there says whether NAME of VERSION is installed.
there() { [ "$(cat "$dir/$1/.version" 2>/dev/null)" = "$2" ]; }

# put moves what was made in the work directory to its place.
put() { # NAME VERSION
  echo "$2" >"$work/$1/.version"
  rm -rf "${dir:?}/$1"
  mv "$work/$1" "$dir/$1"
}

install_nats() {
  [ "$("$dir/nats-server" --version 2>/dev/null)" != "nats-server: $nats" ] || return 0
  GOBIN=$dir CGO_ENABLED=0 "${GO:-go}" install -trimpath "github.com/nats-io/nats-server/v2@$nats"
}

install_kafka() {
  there kafka "$kafka" && return 0
  type java mvn >/dev/null 2>&1 || { echo 'no java or no mvn here' >&2; return 1; }
  mkdir -p "$work/kafka"
  cat >"$work/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka</version></dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>$log4j</version>
    </dependency>
  </dependencies>
</project>
POM
  mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/kafka/lib" \
    >"$work/log" 2>&1 || { tail -15 "$work/log" >&2; return 1; }
  put kafka "$kafka"
}

# debian is apt with lists of its own. It asks the mirror that the machine asks for Debian, for another release.
debian() {
  apt-get -q -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" \
    -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root \
    -o APT::Install-Recommends=false "$@"
}

install_rabbitmq() {
  there rabbitmq "$suite $dir" && return 0
  type apt-get dpkg >/dev/null 2>&1 || { echo 'no apt here' >&2; return 1; }
  mkdir -p "$work"/apt/{lists/partial,cache/archives/partial} "$work/debs" "$work/rabbitmq"
  : >"$work/apt/status" # nothing is installed: all that RabbitMQ needs is taken
  local mirror key=/usr/share/keyrings/debian-archive-keyring.gpg
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' |
    awk '$2 == "Debian" && $3 == "Debian" && !first {print $1; first = 1}')
  [ -n "$mirror" ] && [ -f "$key" ] || { echo 'no packages of Debian here; apt-get update may help' >&2; return 1; }
  echo "deb [signed-by=$key] $mirror $suite main" >"$work/apt/sources.list"
  debian update >"$work/log" 2>&1 || { tail -15 "$work/log" >&2; return 1; }
  # No interpreter and no service: the broker, its runtime, and the libraries that these load.
  local packages
  local wanted='erlang-.*|rabbitmq-server|patchelf'
  wanted+='|libc6|libgcc-s1|libstdc.*|libssl3.*|libtinfo6|zlib1g|libzstd1|libsystemd0|libcap2'
  packages=$(debian -s install rabbitmq-server patchelf | awk '/^Inst / {print $2}' | grep -xE "$wanted")
  [ -n "$packages" ] || { echo "no rabbitmq-server in $suite" >&2; return 1; }
  # shellcheck disable=SC2086 # several words
  (cd "$work/debs" && debian download $packages) >"$work/log" 2>&1 || { tail -15 "$work/log" >&2; return 1; }
  local file root=$dir/rabbitmq libs
  for file in "$work"/debs/*.deb; do dpkg -x "$file" "$work/rabbitmq"; done
  rm -rf "$work"/rabbitmq/{etc,var,usr/share} # manuals and services
  # Programs load the libraries that came along, and the scripts of Erlang know where they are.
  libs=$(dirname "$(find "$work/rabbitmq/usr/lib" -name 'ld-linux-*.so.*' -type f | head -1)")
  local loader; loader=$(basename "$(find "$libs" -name 'ld-linux-*.so.*' | head -1)")
  local final=$root${libs#"$work/rabbitmq"}
  find "$work/rabbitmq/usr/lib/erlang" -type f -perm -u+x ! -name '*.so' | while read -r file; do
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
    "$libs/$loader" --library-path "$libs" "$work/rabbitmq/usr/bin/patchelf" \
      --set-interpreter "$final/$loader" --force-rpath --set-rpath "$final" "$file"
  done
  sed -i "s#ROOTDIR=/usr/lib/erlang#ROOTDIR=$root/usr/lib/erlang#" \
    "$work"/rabbitmq/usr/lib/erlang/bin/erl "$work"/rabbitmq/usr/lib/erlang/erts-*/bin/erl
  put rabbitmq "$suite $dir"
}

# Each runs in a shell of its own, in which the first command that fails ends it.
for name in nats kafka rabbitmq; do
  code=0
  set +e
  (set -e; "install_$name")
  code=$?
  set -e
  [ $code = 0 ] || missing+=("$name")
done
for name in ${missing[@]+"${missing[@]}"}; do
  echo "NOTE: $name CANNOT BE HAD HERE: THE BENCHMARK DOES NOT COMPARE WITH IT" >&2
done
