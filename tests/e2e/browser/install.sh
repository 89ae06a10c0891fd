#!/bin/sh
# What tests in a real browser need beyond Python: chromium, a font, and axe-core from npm.
# Usage: install.sh FOLDER. Quick when all of it is there; says what to do when it cannot be had.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
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

what=chromium
if [ -n "${CHROMIUM:-}" ]; then
  [ -x "$CHROMIUM" ] || fail "CHROMIUM is $CHROMIUM, which is no program."
elif ! have chromium && ! have chromium-browser && ! have google-chrome; then
  debian chromium fonts-dejavu-core fonts-liberation fonts-noto-color-emoji
fi

if cmp -s "$here/package-lock.json" "$folder/installed.json"; then
  exit 0
fi
what=npm
have npm || debian nodejs npm
mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$folder/"
(cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error > /dev/null) ||
  fail "npm could not fetch axe-core; see above."
cp "$here/package-lock.json" "$folder/installed.json"
