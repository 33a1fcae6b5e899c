#!/bin/sh
. "$MOEFLUX_SOURCE/tests/tools/scratch.sh"

# src/quant/a.c holds the lines; check_layers gives STATUS and prints TEXT.
judge() # status text lines...
{
    wanted=$1 text=$2
    shift 2
    printf '%s\n' "$@" >src/quant/a.c
    expect "$wanted" "$text" tools/check_layers.sh
}

judge 0 '' '#include "moeflux.h"' '#include "base/file.h"' '#include "quant/b.h"'
judge 1 'src/quant/a.c:2: quant includes checkpoint' '' '#include "checkpoint/gguf.h"'
judge 1 'src/quant/a.c:1: quant includes engine' '  #  include "engine/layer.h"'
judge 1 'does not start with a directory' '#include "b.h"'
judge 1 'src/quant/a.c:2: src/ must not call' 'void f(void)' '{ if (getenv("A")) g(); }'
judge 1 'must not call' 'exit(1);'
judge 1 'must not write to' 'fputs("x", stderr);'
judge 0 '' '/* printf(x) */' '/* of exit(1)' ' * stderr */' 'g("getenv(");' 'snprintf(a, 1, "");'
judge 0 '' 'table->exit(1);' 'my_exit(1);' '// abort()'
rm src/quant/a.c
echo '#include "model/config.h"' >src/kernels/a.c
expect 1 'kernels must not know model' tools/check_layers.sh
rm src/kernels/a.c
echo 'int main(void) { printf("x"); exit(1); }' >apps/a.c
expect 0 '' tools/check_layers.sh
exit $status
