/* config_checks.h: limits and consistency of a configuration, from any source. */
#ifndef MODEL_CONFIG_CHECKS_H
#define MODEL_CONFIG_CHECKS_H

#include "model/config.h"

/* No published model comes near these; a file that does is damaged or hostile. */
enum config_limit {
    WIDTH_MAX = 1 << 20,
    LAYERS_MAX = 4096,
    HEADS_MAX = 65536,
    HEAD_WIDTH_MAX = 8192,
    EXPERTS_MAX = 65536,
    VOCAB_MAX = 1 << 24,
    CONTEXT_MAX = 1 << 20,
    TAPS_MAX = 64,
};

/* YaRN's numbers as a file gives them; 0 where it is silent. */
struct yarn_fields {
    double mscale, mscale_all_dim;
    double attention_factor; /* instead of what follows from the other two */
    double more;             /* GGUF: on top of it */
};

/* What a file calls the fields that a message may be about. */
struct field_names {
    const char *epsilon, *width, *heads, *kv_heads;
    const char *rotary, *partial, *theta, *original_context, *beta_fast, *beta_slow;
    const char *experts, *experts_per_token, *groups, *top_groups, *shared, *routed_scale;
    const char *delta_key_heads, *delta_value_heads;
};

/* Fills what follows from the fields (widths, multipliers) and refuses what does
 * not fit together, naming the field, what was found and what was expected.  The lists of mixers and feed-forward kinds are not looked at. */
mf_status config_finish(struct model_config *config, const struct yarn_fields *yarn,
                        const struct field_names *names, const char *where, mf_error *why);

/* Refuses an architecture that is not in the table.  `field` names it in the file, `known` lists
 * those that are; without experts it is a dense model, which no family could be. */
mf_status config_refuse_family(const char *where, const char *field, const char *name, bool experts,
                               const char *known, mf_error *why);

/* Room for the lists, all layers MIXER_ATTENTION and FFN_EXPERTS. */
mf_status config_new_lists(struct model_config *config, struct arena *arena, mf_error *why);

#endif
