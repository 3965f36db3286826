#!/bin/sh
# librnicdv for those who link with it: it exports what its header declares, each under its version, and nothing else;
# it needs libc and libibverbs; and the header is C.  library_test.sh LIBRARY HEADER
set -eu
library=$1
header=$2

readelf -d "$library" | grep -q 'SONAME.*\[librnicdv\.so\.1\]' || { echo "its SONAME is another"; exit 1; }
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
[ "$needed" = "libc.so.6 libibverbs.so.1 " ] || { echo "it needs: $needed"; exit 1; }

declared=$(grep -oE '\brnicdv_[a-z_]+\(' "$header" | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | grep -v ' A ' | sed 's/.* //' | sort)
[ "$exported" = "$(echo "$declared" | sed 's/$/@@RNICDV_1.0/')" ] || {
  echo "declared:"; echo "$declared"; echo "exported:"; echo "$exported"; exit 1; }

printf '#include "%s"\nint main(void) { return 0; }\n' "$header" |
  ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c -
