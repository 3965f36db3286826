#!/bin/sh
# The plugin loads into other people's processes: it needs libc and libibverbs, exports nothing but
# what librnicdv finds it by, and has no code that runs when a process exits.  exports_test.sh PLUGIN
set -eu
plugin=$1

needed=$(readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
case $needed in
  "libc.so.6 libibverbs.so.1 " | "ld-linux-"*" libc.so.6 libibverbs.so.1 ") ;;  # the loader itself, for TLS (Debian 13)
  *) echo "it needs: $needed"; exit 1 ;;
esac

exported=$(nm -D --defined-only "$plugin" | grep -v ' A ' | grep -v ' T rnic_provider_direct@@RNIC_PRIVATE_1$' || true)
if [ -n "$exported" ]; then
  echo "it exports: $exported"
  exit 1
fi

# Destructors of static objects would be registered with these. At a fork something runs only where
# pages were swapped on request (swap_forks.cpp), which a child must have as its own.
if nm -D --undefined-only "$plugin" | grep -qE ' U (__cxa_atexit|atexit|at_quick_exit|__cxa_thread_atexit)'; then
  echo "it registers something to run at exit"
  exit 1
fi
