#!/bin/bash
# Provide a container engine on this machine. Does nothing where one answers. As root on Debian and Ubuntu, installs
# docker.io and starts it, with systemd if that runs. On other systems, prints what to install.
set -euo pipefail

answers() { docker info --format '{{.ServerVersion}}' 2>/dev/null | grep -q .; }
fail() { echo "tools/engine.sh: $*" >&2; exit 1; }

answers && exit 0

. /etc/os-release 2>/dev/null || true
case " ${ID:-} ${ID_LIKE:-} " in *" debian "* | *" ubuntu "*) debian=yes ;; *) debian= ;; esac

if ! command -v dockerd >/dev/null; then
  [ -n "$debian" ] || fail "no container engine answers. Install Docker Engine 20.10 or newer, start it, and run this again"
  [ "$(id -u)" = 0 ] || fail "no container engine answers. Run as root: apt-get install docker.io mmdebstrap, then usermod -aG docker $USER and log in again"
  echo "Installing docker.io"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  # mmdebstrap creates the image's base where no registry can be reached.
  apt-get -qq install --yes --no-install-recommends docker.io iptables mmdebstrap >/dev/null
fi
[ "$(id -u)" = 0 ] || fail "Docker is installed, but does not answer this user. Start it (sudo systemctl start docker) and join the group docker (sudo usermod -aG docker $USER, then log in again)"

if [ -d /run/systemd/system ]; then
  systemctl start docker
else
  answers && exit 0
  # A killed dockerd leaves pid files, and the next one refuses to start while any process has that id.
  for file in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
    [ -f "$file" ] && ! grep -qsE 'dockerd|containerd' "/proc/$(cat "$file")/cmdline" && rm -f "$file"
  done
  # In its own session, so that it survives this terminal.
  setsid nohup dockerd >/var/log/dockerd.log 2>&1 </dev/null &
fi
for _ in $(seq 60); do
  answers && exit 0
  sleep 0.5
done
fail "the engine was started, but did not answer within 30 s; check ${file:+/var/log/dockerd.log or }journalctl -u docker"
