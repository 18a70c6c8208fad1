#!/bin/sh
# Makes the package of a build tree importable in .venv, and .venv/bin/penstock run it: setup/link-
# python.sh BUILD
set -eu
cd "$(dirname "$0")/.."
package=$(cd "$1/python" && pwd)
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$package" >"$site/penstock-build-tree.pth"
cat >.venv/bin/penstock.new <<SCRIPT
#!$PWD/.venv/bin/python
import sys

from penstock.cli import main

sys.exit(main())
SCRIPT
chmod +x .venv/bin/penstock.new
mv .venv/bin/penstock.new .venv/bin/penstock
