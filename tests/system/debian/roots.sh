# Bare roots of Debian releases, for the scripts beside: sourced by them, after `cd` to the source tree.
# Needs root, mmdebstrap, and Debian's mirror; some 4 GiB below --work.

words() { sed -n "2,/^[^#]/s/^# \{0,1\}//p" "$0"; }

# options RELEASES... -- "$@": sets releases, work and ccache.
options() {
  releases="" work="" ccache=""
  local default=""
  while [ "$1" != -- ]; do default="$default $1"; shift; done
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --work) work=${2:?} ; shift ;;
      --ccache) ccache=${2:?} ; shift ;;
      -h | --help) words; exit 0 ;;
      -*) words >&2; exit 2 ;;
      *) releases="$releases $1" ;;
    esac
    shift
  done
  : "${releases:=$default}"
  [ "$(id -u)" = 0 ] || { echo "$0: needs root, to make a root" >&2; exit 1; }
  command -v mmdebstrap >/dev/null || { echo "$0: needs mmdebstrap (apt-get install mmdebstrap)" >&2; exit 1; }
  work=$(mktemp -d "${work:-/var/tmp}/rnic-debian-XXXXXX") || exit 1
  # What is mounted in a root is mounted for its processes only, and gone with them.
  trap 'rm -rf --one-file-system "$work"' EXIT
  trap 'exit 130' INT TERM
  [ -z "$ccache" ] || { mkdir -p "$ccache" && ccache=$(realpath "$ccache"); } || exit 1
}

# bare RELEASE NAME: $work/NAME becomes a root with nothing but what every Debian has.
bare() {
  local proxy="" tar=$work/$1.tar
  if [ ! -f "$tar" ]; then
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    mmdebstrap --quiet --variant=minbase ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\";"} "$1" "$tar" \
      ${RNIC_MIRROR:+"$RNIC_MIRROR"} || return 1
  fi
  mkdir "$work/$2" && tar -C "$work/$2" -xf "$tar"
}

# inside NAME COMMAND...: runs it in $work/NAME, with processes and a /tmp of its own; they end with it.
inside() {
  local root=$work/$1
  shift
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  # shellcheck disable=SC2016
  RNIC_CCACHE=$ccache unshare --mount --pid --fork --kill-child --propagation private sh -ec '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mkdir -p "$root/dev/shm" "$root/dev/pts" "$root/dev/net"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
    [ ! -c /dev/net/tun ] || [ -c "$root/dev/net/tun" ] || mknod -m 666 "$root/dev/net/tun" c 10 200
    path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    if [ -n "$RNIC_CCACHE" ] && [ -x "$root/usr/bin/ccache" ]; then
      mkdir -p "$root/var/cache/ccache"
      mount --bind "$RNIC_CCACHE" "$root/var/cache/ccache"
      path=/usr/lib/ccache:$path
    fi
    # Not by exec: what a command leaves behind becomes the child of this shell, which takes note of its end.
    env -i PATH=$path HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive CCACHE_DIR=/var/cache/ccache \
      CCACHE_NOHASHDIR=1 chroot "$root" "$@" &
    wait $!' sh "$root" "$@"
}

# source_into NAME: the tree as it is here, without what is ignored, at /root/rnic.
source_into() {
  mkdir -p "$work/$1/root/rnic"
  git ls-files -z -co --exclude-standard --deduplicate | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
  done | tar --null -T - -cf - | tar -C "$work/$1/root/rnic" -xf -
}

# step WORDS COMMAND...: a line of the result; counts passed and failed.
passed=0
failed=0
step() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok    $name ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    echo "FAIL  $name ($((SECONDS - start)) s)"
    tail -n 40 "$work/log" | sed 's/^/      /'
    return 1
  fi
}

finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}
