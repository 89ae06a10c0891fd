#!/bin/sh
# What tests need beyond Python: chromium and a font, nginx, Node, and packages from npm: axe-core for
# pages, and what sdk/js is built and tested with.
# Usage: install.sh FOLDER. Quick when all of it is there; says what to do when it cannot be had.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sdk=$(cd "$here/../../../sdk/js" && pwd)
folder=$1

fail() {
  echo "tests/e2e/browser: $*" >&2
  exit 1
}

have() {
  command -v "$1" > /dev/null
}

debian() {
  have apt-get ||
    fail "there is no $what and no apt-get to install it with; install it by hand, then try again."
  if [ "$(id -u)" = 0 ]; then as_root=""; else as_root=sudo; fi
  [ -z "$as_root" ] || have sudo ||
    fail "there is no $what, and only root may install it: apt-get install $*"
  echo "tests/e2e/browser: installing $*" >&2
  $as_root apt-get update -q > /dev/null
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -q -y --no-install-recommends "$@" > /dev/null
}

# packages FOLDER: what package-lock.json there says, unless it is installed.
packages() {
  cmp -s "$1/package-lock.json" "$1/node_modules/.installed.json" && return
  (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error > /dev/null) ||
    fail "npm could not fetch what $1/package.json asks for; see above."
  cp "$1/package-lock.json" "$1/node_modules/.installed.json"
}

what=chromium
if [ -n "${CHROMIUM:-}" ]; then
  [ -x "$CHROMIUM" ] || fail "CHROMIUM is $CHROMIUM, which is no program."
elif ! have chromium && ! have chromium-browser && ! have google-chrome; then
  debian chromium fonts-dejavu-core fonts-liberation fonts-noto-color-emoji
fi

# In Debian it is in /usr/sbin, which is not in everybody's PATH.
what=nginx
[ -x /usr/sbin/nginx ] || have nginx || debian nginx-light

what=Node
{ have node && have npm; } || debian nodejs npm
node --eval 'process.exit(Number(process.versions.node.split(".")[0]) < 18 ? 1 : 0)' ||
  fail "sdk/js needs Node 18 or newer; this is $(node --version). Install a newer one, then try again."

mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$folder/"
packages "$folder"
packages "$sdk"
