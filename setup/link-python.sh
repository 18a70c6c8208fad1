#!/bin/sh
# Makes the package of a build tree importable in .venv, and .venv/bin/penstock run it:
# setup/link-python.sh BUILD [COMPONENT...]
#
# Compiled files are copied, so that .venv outlives the build tree. The .py files are links to the
# sources, so that an edit takes effect at once. COMPONENT names what else is copied: `benchmarks`.
# The folder is not in site-packages: there pip would write, and remove, through the links.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [ -e "$site/penstock" ]; then # what `pip install .` left would be found before this
    .venv/bin/python -m pip uninstall -q -y --disable-pip-version-check penstock
fi
folder=.venv/package
rm -rf "$folder.new"
for component in package "$@"; do
    cmake --install "$build" --prefix "$folder.new" --component "$component" >/dev/null
done
for source in frontends/python/penstock/*; do
    name=${source##*/}
    [ "$name" = __pycache__ ] || ln -s "$PWD/$source" "$folder.new/penstock/$name"
done
rm -rf "$folder"
mv "$folder.new" "$folder"
rm -f "$site/penstock-build-tree.pth"
echo "$PWD/$folder" >"$site/penstock.pth"
cat >.venv/bin/penstock.new <<SCRIPT
#!$PWD/.venv/bin/python
import sys

from penstock.cli import main

sys.exit(main())
SCRIPT
chmod +x .venv/bin/penstock.new
mv .venv/bin/penstock.new .venv/bin/penstock
