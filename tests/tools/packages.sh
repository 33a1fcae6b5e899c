#!/bin/sh
# The packages of `make deb` in a bare Debian: installed, used, upgraded from an older version and
# purged, in a chroot that debootstrap makes.  Root, and a Debian archive that apt knows.
# packages.sh [DEBS [ROOT]]: packages that are built already, a chroot that is made already
set -eu
skip()
{
    echo "SKIPPED: $1" >&2
    exit 77
}
cd "$MOEFLUX_SOURCE"
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
for tool in debootstrap dpkg-buildpackage dpkg-deb dh dh_python3 lintian; do
    command -v "$tool" >/dev/null || skip "$tool is not installed (debootstrap, dpkg-dev, debhelper, dh-python, lintian)"
done
. /etc/os-release
[ "$ID" = debian ] || skip "this is no Debian"
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" | head -n 1)
[ -n "$site" ] || skip "apt knows no archive of $VERSION_CODENAME"

place=$(mktemp -d)
root=${2:-$place/root}
# The chroot has /dev of this machine: nothing is deleted while it is mounted.
leave()
{
    for mounted in proc dev; do
        umount "$root/$mounted" 2>/dev/null || umount --lazy "$root/$mounted" 2>/dev/null || true
    done
    tests/tools/remove_tree.sh "$place" || echo "note: $place is left" >&2
}
trap leave EXIT
trap 'exit 1' INT TERM

debs=${1:-}
if [ -z "$debs" ]; then
    debs=$place/debs
    MOEFLUX_WEB=disabled DEB_BUILD_OPTIONS=noautodbgsym tools/deb.sh "$debs"
fi
debs=$(cd "$debs" && pwd)

# The same packages with an older version, and with what a later one no longer has.
mkdir -p "$place/older"
version=$(dpkg-deb --field "$(ls "$debs"/moeflux_*.deb)" Version)
for deb in "$debs"/*.deb; do
    case $deb in *dbgsym*) continue ;; esac
    tree=$place/tree
    rm -rf "$tree"
    dpkg-deb --raw-extract "$deb" "$tree"
    sed -i "s/$version/0.1.0-1/g; s/>= ${version%-*}\([^-.0-9]\)/>= 0.1.0\1/g" "$tree/DEBIAN/control"
    if [ "$(dpkg-deb --field "$deb" Package)" = moeflux ]; then
        echo old >"$tree/usr/share/doc/moeflux/old-file"
    fi
    dpkg-deb --root-owner-group --build "$tree" "$place/older/$(basename "$deb" | sed "s/$version/0.1.0-1/")" >/dev/null
done

if [ ! -d "$root/usr" ]; then
    debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "$site" >"$place/debootstrap.log" 2>&1 ||
        { tail -n 5 "$place/debootstrap.log" >&2; skip "debootstrap failed"; }
fi
# The archive as this machine reaches it.
rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" "$root/etc/apt/apt.conf.d"
cp -r /etc/apt/. "$root/etc/apt/"
for file in /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cat "$file" >"$root$file"; done
mkdir -p "$root/usr/share/keyrings" "$root/debs"
cp -r /usr/share/keyrings/. "$root/usr/share/keyrings/"
cp -r "$place/older" "$root/debs/"
mkdir -p "$root/debs/newer"
for deb in "$debs"/*.deb; do
    case $deb in *dbgsym*) continue ;; esac
    cp "$deb" "$root/debs/newer/"
done
mount -t proc proc "$root/proc" 2>/dev/null || echo "note: no /proc in the chroot"
mount --bind /dev "$root/dev" 2>/dev/null || true

inside()
{
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "$@"
}
install() # directory
{
    inside sh -c "apt-get -o Acquire::Retries=3 install -y --no-install-recommends /debs/$1/*.deb" \
        >"$place/apt.log" 2>&1 || { tail -n 30 "$place/apt.log"; exit 1; }
    grep -iE '^(warning|error|dpkg: (warning|error))' "$place/apt.log" && exit 1 || true
}
expect() # pattern command...
{
    pattern=$1
    shift
    inside "$@" >"$place/said" 2>&1 && grep -q -- "$pattern" "$place/said" && return
    echo "FAILED: $* did not say $pattern:"
    cat "$place/said"
    exit 1
}
works()
{
    expect 'Paris' moeflux run --temp 0 --no-think "What is the capital of France?"
    expect 'Paris' python3 -c 'import moeflux
with moeflux.Model("/usr/share/moeflux/models/pebble") as model:
    print(model.chat("What is the capital of France?", sampling=moeflux.Sampling(),
                     variables={"enable_thinking": False}).content)'
    expect 'ExecStart=/usr/bin/moeflux serve' cat /lib/systemd/system/moeflux.service
    [ -z "$(inside dpkg --audit)" ] || { echo "dpkg --audit:"; inside dpkg --audit; exit 1; }
}

inside apt-get -o Acquire::Retries=3 update >"$place/apt.log" 2>&1 || { tail -n 5 "$place/apt.log"; skip "the archive does not answer"; }
echo "installing 0.1.0-1"
install older
works
expect '0.1.0-1' dpkg-query --show moeflux
inside sh -c 'echo MOEFLUX_OPTIONS=--insecure >/etc/default/moeflux'
inside mkdir -p /var/lib/private/moeflux /var/cache/private/moeflux

echo "upgrading to $version"
install newer
works
expect "$version" dpkg-query --show moeflux
expect '^MOEFLUX_OPTIONS=--insecure$' cat /etc/default/moeflux
[ ! -e "$root/usr/share/doc/moeflux/old-file" ] || { echo "a file of the older version is left"; exit 1; }

# A compiler is not there; what it needs is.
for file in usr/include/moeflux.h usr/share/man/man1/moeflux-run.1.gz usr/share/zsh/vendor-completions/_moeflux \
    usr/share/fish/vendor_completions.d/moeflux.fish usr/share/bash-completion/completions/moeflux; do
    [ -e "$root/$file" ] || { echo "$file is missing"; exit 1; }
done

echo "purging"
packages=$(for deb in "$debs"/*.deb; do dpkg-deb --field "$deb" Package; done | grep -v dbgsym)
# shellcheck disable=SC2086 # a word per package
inside apt-get purge -y $packages >"$place/apt.log" 2>&1 || { tail -n 30 "$place/apt.log"; exit 1; }
left=$(inside find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /debs -o -path /var/log \
    -o -path /var/lib/apt -o -path /var/cache/apt -o -path /tmp \) -prune -o -name '*moeflux*' -print)
[ -z "$left" ] || { echo "left after the purge:"; echo "$left"; exit 1; }
echo "installed, upgraded and purged: $(echo "$packages" | tr '\n' ' ')"
