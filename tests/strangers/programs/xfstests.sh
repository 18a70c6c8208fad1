#!/bin/bash
# Usage: xfstests.sh WAY COPIES PENSTOCK TEST...
# Runs tests of xfstests in mount namespaces of their own: on an ext4 in a file, or, if WAY is
# `mount`, on Penstock's mounts of two folders, which mount(8) makes by the helper written here.
# Prints what `check` prints. Leaves nothing behind.
set -eu
way=$1 copies=$2 penstock=$3
shift 3
if [ -z "${IN_NAMESPACE:-}" ]; then
    scratch=$(mktemp -d)
    status=0
    IN_NAMESPACE=$scratch setsid -w unshare -m --propagation private "$0" "$way" "$copies" \
        "$penstock" "$@" || status=$?
    sleep 0.2  # what the namespace held is let go
    rm -rf "$scratch"
    exit $status
fi
cd "$IN_NAMESPACE"
mkdir test scratch results sbin-upper sbin-work
export TEST_DIR=$PWD/test SCRATCH_MNT=$PWD/scratch RESULT_BASE=$PWD/results
end() {
    umount "$TEST_DIR" "$SCRATCH_MNT" 2>/dev/null || true
    [ "$way" = mount ] || losetup -d "$TEST_DEV" "$SCRATCH_DEV"
}
trap end EXIT
if [ "$way" = mount ]; then
    mkdir below-test below-scratch
    cat >helper <<HELPER
#!/bin/bash
# mount(8) asks the helper for a remount too, which is the kernel's.
[[ "\$*" != *remount* ]] || exec /usr/bin/mount -i -o "\$4" "\$2"
exec "$penstock" mount "\$1" "\$2" --cache-size 64M --device cpu:1 --suid --dev >/dev/null
HELPER
    chmod +x helper
    layers=lowerdir=/usr/sbin,upperdir=$PWD/sbin-upper,workdir=$PWD/sbin-work
    mount -t overlay overlay -o "$layers" /usr/sbin
    cp helper /usr/sbin/mount.fuse.penstock
    # umount(8) takes the name of a folder for a mount point, and these are what is mounted.
    cat >/usr/sbin/umount <<WRAPPER
#!/bin/bash
for word; do
    case "\$word" in
    */below-test) word=$TEST_DIR ;;
    */below-scratch) word=$SCRATCH_MNT ;;
    esac
    words+=("\$word")
done
exec /usr/bin/umount "\${words[@]}"
WRAPPER
    chmod +x /usr/sbin/umount
    export PATH=/usr/sbin:$PATH
    # `check` looks for a mount of the type `fuse`, without what stands behind the dot.
    quirk="-e 's.fuse.ceph-fuse.ceph-fuse.'"
    sed "s/$quirk/& -e s,fuse.penstock,fuse,/" "$copies/xfstests/common/rc" >rc
    mount --bind rc "$copies/xfstests/common/rc"
    export FSTYP=fuse FUSE_SUBTYP=.penstock
    export TEST_DEV=$PWD/below-test SCRATCH_DEV=$PWD/below-scratch
else
    truncate -s 3G test.image scratch.image
    export FSTYP=ext4
    TEST_DEV=$(losetup -f --show test.image)
    SCRATCH_DEV=$(losetup -f --show scratch.image)
    export TEST_DEV SCRATCH_DEV
    mkfs.ext4 -q "$TEST_DEV"
fi
mount -t "$FSTYP${FUSE_SUBTYP:-}" "$TEST_DEV" "$TEST_DIR"
cd "$copies/xfstests"
HOST_OPTIONS=/dev/null ./check "$@"
