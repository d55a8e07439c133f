# The smallest Debian root, for the scripts that source this file after `set -euo pipefail`: its path is in `root`.
#
# It is made by debootstrap below LOWTIDE_ROOT_DIR (default /var/tmp, 1 GB) and removed at the end, however that
# comes. With LOWTIDE_ROOT=DIR that root is used, and stays. It has a compiler and python3, to try what is installed.

[ "$(id -u)" = 0 ] || { echo "a root needs root"; exit 1; }
made=
trap '[ -z "$made" ] || rm -rf --one-file-system "$made"' EXIT
root=${LOWTIDE_ROOT:-}
if [ -z "$root" ]; then
    command -v debootstrap >/dev/null || apt-get install -qy debootstrap >/dev/null
    made=$(mktemp -d "${LOWTIDE_ROOT_DIR:-/var/tmp}/lowtide-package.XXXXXX")
    root=$made/root
    timeout 1200 debootstrap --variant=minbase --include=gcc,libc6-dev,pkg-config,python3 \
        stable "$root" >"$made/log" || { tail -n 5 "$made/log"; exit 1; }
fi
