#!/bin/bash
# Build the collection, install it like a user, and run ansible-test sanity on the installed files.
# ansible-test requires a real directory of the collection's name, and the tarball has to work anyway.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(python -c 'import sys; print("{}.{}".format(*sys.version_info))')
# Outside this checkout: ansible-test skips files that git ignores, and succeeds.
target=$(mktemp -d)
trap 'rm -rf "$target"' EXIT
mkdir -p .cache
ansible-galaxy collection build --force --output-path .cache >/dev/null
ansible-galaxy collection install --no-deps --force --collections-path "$target" .cache/argus-verl-*.tar.gz >/dev/null 2>&1
installed=$target/ansible_collections/argus/verl

left=$(cd "$installed" && find . -maxdepth 1 \( -name tests -o -name molecule -o -name '.*' ! -name . \) -printf '%f ')
[ -z "$left" ] || { echo "tools/sanity.sh: the tarball contains files that it must not contain: $left" >&2; exit 1; }
# The installed collection works without our ansible.cfg, but for what validate demands of it: documentation and playbooks
# load with all their imports.
(
  inventory=$PWD/inventories/prod/hosts.yml
  cd .cache
  unset ANSIBLE_CONFIG
  export ANSIBLE_COLLECTIONS_PATH=$target ANSIBLE_INJECT_FACT_VARS=false
  ansible-doc --type module argus.verl.ray_job >/dev/null
  ansible-playbook --syntax-check --inventory "$inventory" argus.verl.cluster_up >/dev/null
  ansible-playbook --inventory "$inventory" argus.verl.validate >/dev/null
)

# ansible-test downloads get-pip.py from a host that may be unreachable; ensurepip replaces it.
cache=$HOME/.ansible/test/cache
mkdir -p "$cache"
for version in 24_2 25_2; do
  [ -e "$cache/get_pip_$version.py" ] || cp tools/get_pip.py "$cache/get_pip_$version.py"
done
cd "$installed"
# Machines may have no "python", which is the only name that it accepts in the first line of a program.
mkdir -p tests/sanity
core=$(python -c 'import ansible.release; print(".".join(ansible.release.__version__.split(".")[:2]))')
echo "inventories/inside/hosts.py shebang" >"tests/sanity/ignore-$core.txt"
ansible-test sanity --local --python "$python" --color no
