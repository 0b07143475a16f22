#!/bin/bash
# Provide Podman without root for the tests, as root on Debian and Ubuntu: the user "argus-podman" with the image $1 of
# Docker. Does nothing that is done already. On other systems, prints what to install.
set -euo pipefail

image=${1:?image}
user=argus-podman
fail() { echo "tools/podman.sh: $*" >&2; exit 1; }
# In a directory that the user can read.
as_user() { (cd / && su "$user" -c "$1"); }

[ "$(id -u)" = 0 ] || fail "run it as root: it makes a user for Podman"
if ! command -v podman >/dev/null || ! command -v newuidmap >/dev/null; then
  command -v apt-get >/dev/null || fail "install podman with its packages for containers without root, and run this again"
  echo "installing podman"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install --yes --no-install-recommends podman uidmap netavark aardvark-dns slirp4netns catatonit >/dev/null
fi

if ! id "$user" >/dev/null 2>&1; then
  useradd --create-home --shell /bin/bash "$user"
  # vfs, the fallback of old versions, copies the whole image for each container.
  printf '[storage]\ndriver = "overlay"\n' | install -D --owner "$user" /dev/stdin "/home/$user/.config/containers/storage.conf"
  # crun refuses version 1 of cgroups when version 2 has controllers as well.
  if [ ! -f /sys/fs/cgroup/cgroup.controllers ] && command -v runc >/dev/null; then
    printf '[engine]\nruntime = "runc"\n' | install -D --owner "$user" /dev/stdin "/home/$user/.config/containers/containers.conf"
  fi
  chown -R "$user:" "/home/$user"
fi

# The mode that udev gives it; without udev, it may be another.
[ -e /dev/net/tun ] || fail "load the module of networks without root, and run this again: modprobe tun"
if ! as_user 'test -r /dev/net/tun -a -w /dev/net/tun'; then
  echo "chmod 0666 /dev/net/tun"
  chmod 0666 /dev/net/tun
fi

wanted=$(docker image inspect --format '{{.Id}}' "$image")
have=$(as_user "podman image inspect --format 'sha256:{{.Id}}' $image" 2>/dev/null) || have=
if [ "$have" != "$wanted" ]; then
  echo "loading $image into Podman"
  docker save "$image" | as_user "podman load --quiet" >/dev/null
  as_user "podman image prune --force" >/dev/null
fi
