#!/bin/bash
# A container engine on this machine: nothing to do where one answers; Debian's and Ubuntu's docker.io as root,
# started with systemd where it runs and by hand where it does not; elsewhere what to install.
set -euo pipefail

answers() { docker info --format '{{.ServerVersion}}' 2>/dev/null | grep -q .; }
fail() { echo "tools/engine.sh: $*" >&2; exit 1; }

answers && exit 0

. /etc/os-release 2>/dev/null || true
case " ${ID:-} ${ID_LIKE:-} " in *" debian "* | *" ubuntu "*) debian=yes ;; *) debian= ;; esac

if ! command -v dockerd >/dev/null; then
  [ -n "$debian" ] || fail "no container engine answers. Install Docker Engine 20.10 or newer, start it, and run this again"
  [ "$(id -u)" = 0 ] || fail "no container engine answers. As root: apt-get install docker.io mmdebstrap, then usermod -aG docker $USER and log in again"
  echo "installing docker.io"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  # mmdebstrap makes the image's base where no registry can be reached.
  apt-get -qq install --yes --no-install-recommends docker.io iptables mmdebstrap >/dev/null
fi
[ "$(id -u)" = 0 ] || fail "Docker is installed, but does not answer this user. Start it (sudo systemctl start docker), and be in the group docker (sudo usermod -aG docker $USER, then log in again)"

if [ -d /run/systemd/system ]; then
  systemctl start docker
else
  answers && exit 0
  # A kill leaves pid files behind, and dockerd refuses to start while the number in one is in use, by whatever.
  for file in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
    [ -f "$file" ] && ! grep -qsE 'dockerd|containerd' "/proc/$(cat "$file")/cmdline" && rm -f "$file"
  done
  # In a session of its own, so that it outlives this terminal.
  setsid nohup dockerd >/var/log/dockerd.log 2>&1 </dev/null &
fi
for _ in $(seq 60); do
  answers && exit 0
  sleep 0.5
done
fail "the engine was started and does not answer within 30 s; see ${file:+/var/log/dockerd.log or }journalctl -u docker"
