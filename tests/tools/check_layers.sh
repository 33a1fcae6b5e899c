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

# apps/a.c holds the lines.
judge_app() # status text lines...
{
    wanted=$1 text=$2
    shift 2
    printf '%s\n' "$@" >apps/a.c
    expect "$wanted" "$text" tools/check_layers.sh
}

judge_app 0 '' 'int main(void) { printf("x"); exit(1); }'
judge_app 0 '' '#include "moeflux.h"' '#include "moeflux_tools.h"' '#include "moeflux_compat.h"' \
    '#include "common/lists.h"' '#include "a.h"'
judge_app 1 'apps/a.c:2: apps/ includes "base/file.h"' '' '#include "base/file.h"'
judge_app 1 'apps/a.c:1: apps/ includes "api/handles.h"' '#include "api/handles.h"'
rm apps/a.c
mkdir -p apps/bench src/engine src/tools
echo '#include "kernels/kernels.h"' >apps/bench/cases.c
expect 0 '' tools/check_layers.sh
echo '#include "kernels/kernels.h"' >apps/bench/plot.c
expect 1 'apps/bench/plot.c:1: apps/ includes' tools/check_layers.sh
rm apps/bench/plot.c apps/bench/cases.c
echo '#include "moeflux_tools.h"' >src/tools/a.c
expect 0 '' tools/check_layers.sh
echo '#include "tools/a.h"' >src/engine/a.c
expect 1 'engine includes tools, which comes after it' tools/check_layers.sh
echo '#include "moeflux_tools.h"' >src/engine/a.c
expect 1 'src/engine/a.c:1: "moeflux_tools.h"' tools/check_layers.sh
rm src/engine/a.c src/tools/a.c
exit $status
