#!/bin/bash
# Build the collection, install it as a user would, and run ansible-test sanity on what was installed.
# ansible-test wants a real directory of the collection's name; the tarball is one that must work anyway.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(python -c 'import sys; print("{}.{}".format(*sys.version_info))')
target=$PWD/.cache/collections
rm -rf "$target"
ansible-galaxy collection build --force --output-path .cache >/dev/null
ansible-galaxy collection install --no-deps --force --collections-path "$target" .cache/argus-verl-*.tar.gz >/dev/null
installed=$target/ansible_collections/argus/verl

left=$(cd "$installed" && find . -maxdepth 1 \( -name inventories -o -name tests -o -name molecule -o -name '.*' ! -name . \) -printf '%f ')
[ -z "$left" ] || { echo "tools/sanity.sh: the tarball holds what it must not: $left" >&2; exit 1; }
# It works from where it was installed: its documentation loads, with everything that it imports.
ANSIBLE_CONFIG=/dev/null ANSIBLE_COLLECTIONS_PATH=$target ansible-doc --type module argus.verl.ray_job >/dev/null
ANSIBLE_CONFIG=/dev/null ANSIBLE_COLLECTIONS_PATH=$target ansible-playbook --syntax-check -i inventories/prod/hosts.yml argus.verl.cluster_up >/dev/null
ANSIBLE_CONFIG=/dev/null ANSIBLE_COLLECTIONS_PATH=$target ansible-playbook -i inventories/prod/hosts.yml argus.verl.validate >/dev/null

# ansible-test fetches get-pip.py from a host that may be out of reach; ensurepip does the same.
cache=$HOME/.ansible/test/cache
mkdir -p "$cache"
for version in 24_2 25_2; do
  [ -e "$cache/get_pip_$version.py" ] || cp tools/get_pip.py "$cache/get_pip_$version.py"
done
cd "$installed"
ansible-test sanity --local --python "$python" --color no
