/* plan.c: what a model would hold in memory, computed from its headers before it is opened.
 *
 *     cc plan.c $(pkg-config --cflags --libs moeflux) -o plan
 *     ./plan models/pebble 64 */
#include <moeflux_tools.h>
#include <stdio.h>
#include <stdlib.h>

static void show(const char *what, uint64_t bytes)
{
    printf("%-12s %10.1f MiB\n", what, (double)bytes / (1 << 20));
}

int main(int count, char **words)
{
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    mf_plan plan = MF_PLAN_INIT;
    mf_error why;
    if (count != 3) return fprintf(stderr, "usage: plan MODEL MEBIBYTES\n"), 2;
    options.memory_bytes = strtoull(words[2], NULL, 10) << 20;
    if (mf_model_plan(&plan, words[1], &options, &why) != MF_OK)
        return fprintf(stderr, "plan: %s\n", why.text), 1;
    show("weights", plan.weight_bytes);
    show("engine", plan.engine_bytes);
    show("one sequence", plan.sequence_bytes);
    show("policy", plan.table_bytes);
    show("experts", plan.expert_bytes);
    printf("%llu of %llu experts in memory (%s)\n", (unsigned long long)plan.experts_in_memory,
           (unsigned long long)plan.expert_count, plan.expert_mode);
    if (!plan.fits) printf("it does not fit: %s\n", plan.problem);
    return plan.fits ? 0 : 1;
}
