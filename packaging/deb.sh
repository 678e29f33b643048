#!/usr/bin/env bash
# Packs the command for Debian and its relatives, with completions and man pages:
# packaging/deb.sh COMMAND FOLDER. The command was linked for the glibc that `Depends` names.
set -euo pipefail
command=$1
out=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$("$command" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d)
chmod 755 "$tree"
trap 'rm -rf "$tree"' EXIT

install -D -s "$command" "$tree/usr/bin/gradwire"
"$command" generate man "$tree/usr/share/man/man1"
gzip -9n "$tree"/usr/share/man/man1/*
completions() {
    mkdir -p "$tree/usr/share/$2"
    "$command" generate completions "$1" >"$tree/usr/share/$2/$3"
}
completions bash bash-completion/completions gradwire
completions zsh zsh/vendor-completions _gradwire
completions fish fish/vendor_completions.d gradwire.fish
for licence in LICENSE-MIT LICENSE-APACHE; do
    install -D -m 644 "$here/$licence" "$tree/usr/share/doc/gradwire/$licence"
done

mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: gradwire
Version: $version
Architecture: $architecture
Maintainer: The authors of gradwire
Section: net
Priority: optional
Depends: libc6 (>= 2.28), libgcc-s1
Installed-Size: $(du -sk "$tree/usr" | cut -f 1)
Description: packet-level transport for distributed deep-learning training
 The command checks hosts and paths, measures collectives, simulates fabrics
 and configures switches.
CONTROL
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$tree" "$out"
