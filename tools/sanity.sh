#!/bin/bash
# Build the collection, install it as a user would, and run ansible-test sanity on what was installed.
# ansible-test wants a real directory of the collection's name; the tarball is one that must work anyway.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(python -c 'import sys; print("{}.{}".format(*sys.version_info))')
# Outside of this checkout: of what git ignores, ansible-test tests nothing, and is content.
target=$(mktemp -d)
trap 'rm -rf "$target"' EXIT
mkdir -p .cache
ansible-galaxy collection build --force --output-path .cache >/dev/null
ansible-galaxy collection install --no-deps --force --collections-path "$target" .cache/argus-verl-*.tar.gz >/dev/null 2>&1
installed=$target/ansible_collections/argus/verl

left=$(cd "$installed" && find . -maxdepth 1 \( -name inventories -o -name tests -o -name molecule -o -name '.*' ! -name . \) -printf '%f ')
[ -z "$left" ] || { echo "tools/sanity.sh: the tarball holds what it must not: $left" >&2; exit 1; }
# It works from where it was installed, without our ansible.cfg: documentation and playbooks load with all they import.
(
  inventory=$PWD/inventories/prod/hosts.yml
  cd .cache
  unset ANSIBLE_CONFIG
  export ANSIBLE_COLLECTIONS_PATH=$target
  ansible-doc --type module argus.verl.ray_job >/dev/null
  ansible-playbook --syntax-check --inventory "$inventory" argus.verl.cluster_up >/dev/null
  ansible-playbook --inventory "$inventory" argus.verl.validate >/dev/null
)

# ansible-test fetches get-pip.py from a host that may be out of reach; ensurepip does the same.
cache=$HOME/.ansible/test/cache
mkdir -p "$cache"
for version in 24_2 25_2; do
  [ -e "$cache/get_pip_$version.py" ] || cp tools/get_pip.py "$cache/get_pip_$version.py"
done
cd "$installed"
ansible-test sanity --local --python "$python" --color no
