#!/bin/sh
# The plugin loads into other people's processes: it needs libc and libibverbs, exports nothing, and
# has no code that runs when a process exits.  exports_test.sh PLUGIN
set -eu
plugin=$1

needed=$(readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
case $needed in
  "libc.so.6 libibverbs.so.1 ") ;;
  *) echo "it needs: $needed"; exit 1 ;;
esac

exported=$(nm -D --defined-only "$plugin" | grep -v ' A ' || true)
if [ -n "$exported" ]; then
  echo "it exports: $exported"
  exit 1
fi

# Destructors of static objects would be registered with these.
if nm -D --undefined-only "$plugin" | grep -qE ' U (__cxa_atexit|atexit|__register_atfork)'; then
  echo "it registers something to run at exit or fork"
  exit 1
fi
