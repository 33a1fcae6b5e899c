/* `moeflux inspect`: what a checkpoint is, and what would live where. */
#include "command.h"
#include "inspection.h"
#include "json_lines.h"
#include "terminal.h"

struct inspect_settings {
    struct common_settings common;
    bool json;
};

static const struct option options[] = {
    { 0, "json", OPTION_FLAG, offsetof(struct inspect_settings, json), NULL,
      .help = "one JSON object instead of a table" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* -------------------------------------------------------------------- table */

static const char *count_text(uint64_t count, char *out, size_t capacity)
{
    if (count >= 1000000000) {
        snprintf(out, capacity, "%.1f billion", (double)count / 1e9);
    } else {
        snprintf(out, capacity, "%.1f million", (double)count / 1e6);
    }
    return out;
}

static const char *format_name(int format)
{
    return format < FORMAT_COUNT ? format_info((enum format)format)->name : "unknown";
}

static void print_layers(const struct inspection *i)
{
    static const char *const names[MIXER_KINDS] = {
        [MIXER_ATTENTION] = "full attention",
        [MIXER_LATENT] = "latent attention",
        [MIXER_DELTA] = "gated delta net",
    };
    const struct model_config *c = &i->model.config;
    uint32_t dense = c->layer_count - inspection_expert_layers(i);
    const char *before = ": ";

    printf("layers      %u", c->layer_count);
    for (int kind = 0; kind < MIXER_KINDS; kind++) {
        uint32_t count = config_count_mixers(c, (enum mixer_kind)kind);
        if (count == 0) continue;
        printf("%s%u %s", before, count, names[kind]);
        before = ", ";
    }
    if (dense) printf("; %u without experts, width %u", dense, c->dense_width);
    printf("\n");
}

static void print_mixers(const struct model_config *c)
{
    if (config_count_mixers(c, MIXER_LATENT)) {
        printf("attention   %u heads of %u + %u, values of %u, from a latent of %u\n", c->heads,
               c->nope_width, c->rope.rotary_width, c->value_width, c->latent_width);
    } else if (config_count_mixers(c, MIXER_ATTENTION)) {
        printf("attention   %u query and %u key/value heads of %u\n", c->heads, c->kv_heads,
               c->head_width);
    }
    if (config_count_mixers(c, MIXER_DELTA)) {
        printf("delta net   %u key heads of %u, %u value heads of %u\n", c->delta_key_heads,
               c->delta_key_width, c->delta_value_heads, c->delta_value_width);
    }
}

static void print_shape(const struct inspection *i)
{
    const struct model_config *c = &i->model.config;

    print_layers(i);
    printf("width       %u, vocabulary %u, context %u\n", c->width, c->vocab_size,
           c->context_length);
    print_mixers(c);
    printf("experts     %u in a layer, %u per token, width %u", c->experts, c->experts_per_token,
           c->expert_width);
    if (c->shared_width) printf(", and a shared one of %u", c->shared_width);
    printf("\n");
}

/* A line for every class and format. */
static void print_classes(const struct inspection *i)
{
    char size[32];

    printf("tensors\n");
    for (int c = 0; c < CLASS_COUNT; c++) {
        const char *name = i->supported ? class_names[c] : "all";
        for (int f = 0; f < FORMATS; f++) {
            const struct tensor_share *share = &i->classes[c][f];
            if (share->tensors == 0) continue;
            printf("  %-18s  %-14s %6llu  %10s\n", name, format_name(f),
                   (unsigned long long)share->tensors, size_text(share->bytes, size, sizeof size));
            name = "";
        }
    }
}

static void print_unknown(const struct inspection *i)
{
    enum { SHOWN = 10 };
    const struct tensor *tensor;
    char shape[128];
    size_t count = 0;

    for (; (tensor = inspection_unknown(i, count)); count++) {
        if (count == 0) printf("not known, and not used\n");
        if (count < SHOWN) {
            printf("  %s  %s %s\n", tensor->name, format_name((int)tensor->format),
                   tensor_shape_text(tensor, shape, sizeof shape));
        }
    }
    if (count > SHOWN) printf("  and %zu more; --json lists them all\n", count - SHOWN);
}

static void print_placement(const struct placement *p)
{
    char size[32], state[32];

    printf("with %s of memory\n", size_text(p->memory_bytes, size, sizeof size));
    printf("  %-14s %10s  in memory\n", "always used",
           size_text(p->resident_bytes, size, sizeof size));
    if (p->problem[0]) {
        printf("  this is not enough: %s\n", p->problem);
        return;
    }
    printf("  %-14s %10s  in memory, %s of it the state of %llu positions\n", "a session",
           size_text(p->session_bytes, size, sizeof size),
           size_text(p->state_bytes, state, sizeof state), (unsigned long long)p->context);
    printf("  %-14s %10s  %s: %llu of %llu%s\n", "experts",
           size_text(p->slot_bytes, size, sizeof size),
           strcmp(p->mode, "mapped") == 0 ? "mapped" : "in memory",
           (unsigned long long)p->expert_slots, (unsigned long long)p->expert_count,
           strcmp(p->mode, "streamed") == 0 ? ", the others streamed from disk" : "");
}

static void print_token(const struct inspection *i)
{
    struct token_bytes bytes = inspection_token_bytes(i);
    char all[32], always[32], experts[32], state[32];

    printf("a token     reads %s: %s always, %s of experts; adds %s of state\n",
           size_text(bytes.always + bytes.experts, all, sizeof all),
           size_text(bytes.always, always, sizeof always),
           size_text(bytes.experts, experts, sizeof experts),
           size_text(bytes.state, state, sizeof state));
}

static void print_table(const struct inspection *i, const struct placement *placement)
{
    struct parameter_counts counts = inspection_parameters(i);
    const struct packed_origin *origin = &i->model.packed.origin;
    char size[32], all[32], experts[32], active[32];

    printf("model       %s\n", i->name);
    printf("family      %s%s\n", i->family, i->supported ? "" : " (cannot be run)");
    printf("files       %zu %s, %s\n", i->directory->file_count, i->layout,
           size_text(inspection_sum(i, -1, -1).bytes, size, sizeof size));
    if (i->supported && i->model.packed.tensor_count) {
        printf("packed      layout %s, from %s (%s); experts %s, the rest %s\n", PACKED_LAYOUT,
               origin->name, origin->kind, origin->experts, origin->rest);
    }
    if (i->supported) {
        printf("weights     %s, %s in experts, %s per token\n",
               count_text(counts.total, all, sizeof all),
               count_text(counts.experts, experts, sizeof experts),
               count_text(counts.active, active, sizeof active));
        print_token(i);
        print_shape(i);
    }
    print_classes(i);
    print_unknown(i);
    if (i->supported) {
        print_placement(placement);
    } else {
        printf("it cannot be run: %s\n", i->problem);
    }
}

/* --------------------------------------------------------------------- JSON */

static json_t *share_json_new(struct tensor_share share)
{
    return json_pack("{s:I,s:I,s:I}", "tensors", (json_int_t)share.tensors, "parameters",
                     (json_int_t)share.parameters, "bytes", (json_int_t)share.bytes);
}

/* By format; of one class, or of all (-1). */
static json_t *formats_json_new(const struct inspection *i, int tensor_class)
{
    json_t *out = json_object();

    for (int f = 0; f < FORMATS; f++) {
        struct tensor_share share = inspection_sum(i, tensor_class, f);
        if (share.tensors) json_object_set_new(out, format_name(f), share_json_new(share));
    }
    return out;
}

static json_t *classes_json_new(const struct inspection *i)
{
    json_t *out = json_object();

    for (int c = 0; c < CLASS_COUNT; c++) {
        struct tensor_share share = inspection_sum(i, c, -1);
        if (share.tensors == 0) continue;
        json_t *entry = share_json_new(share);
        json_object_set_new(entry, "formats", formats_json_new(i, c));
        json_object_set_new(out, class_names[c], entry);
    }
    return out;
}

static json_t *unknown_json_new(const struct inspection *i)
{
    json_t *out = json_array();
    const struct tensor *tensor;

    for (size_t n = 0; (tensor = inspection_unknown(i, n)); n++) {
        json_array_append_new(out, json_string(tensor->name));
    }
    return out;
}

static json_t *layers_json_new(const struct inspection *i)
{
    const struct model_config *c = &i->model.config;

    return json_pack("{s:i,s:i,s:i,s:i,s:i}", "count", (int)c->layer_count, "attention",
                     (int)config_count_mixers(c, MIXER_ATTENTION), "latent",
                     (int)config_count_mixers(c, MIXER_LATENT), "delta",
                     (int)config_count_mixers(c, MIXER_DELTA), "with_experts",
                     (int)inspection_expert_layers(i));
}

static json_t *shape_json_new(const struct inspection *i)
{
    const struct model_config *c = &i->model.config;

    return json_pack("{s:i,s:i,s:i,s:o,s:{s:i,s:i,s:i},s:{s:i,s:i,s:i,s:i}}", "vocab_size",
                     (int)c->vocab_size, "context_length", (int)c->context_length, "width",
                     (int)c->width, "layers", layers_json_new(i), "attention", "heads",
                     (int)c->heads, "kv_heads", (int)c->kv_heads, "head_width", (int)c->head_width,
                     "experts", "per_layer", (int)c->experts, "per_token",
                     (int)c->experts_per_token, "width", (int)c->expert_width, "shared_width",
                     (int)c->shared_width);
}

static json_t *token_json_new(const struct inspection *i)
{
    struct token_bytes bytes = inspection_token_bytes(i);
    uint64_t total = bytes.always + bytes.experts;

    return json_pack("{s:I,s:I,s:I,s:I}", "total", (json_int_t)total, "always",
                     (json_int_t)bytes.always, "experts", (json_int_t)bytes.experts, "state",
                     (json_int_t)bytes.state);
}

static json_t *placement_json_new(const struct placement *p)
{
    json_t *out = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "memory_bytes", (json_int_t)p->memory_bytes,
        "context", (json_int_t)p->context, "resident_bytes", (json_int_t)p->resident_bytes,
        "state_bytes", (json_int_t)p->state_bytes, "session_bytes", (json_int_t)p->session_bytes,
        "experts", (json_int_t)p->expert_count, "experts_in_memory", (json_int_t)p->expert_slots,
        "expert_slot_bytes", (json_int_t)p->slot_bytes, "fits", p->problem[0] == '\0');

    json_object_set_new(out, p->problem[0] ? "problem" : "expert_mode",
                        json_string(p->problem[0] ? p->problem : p->mode));
    return out;
}

static void add_packed(json_t *out, const struct packed_manifest *packed)
{
    const struct packed_origin *o = &packed->origin;

    if (packed->tensor_count == 0) return;
    json_object_set_new(out, "packed",
                        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "layout", PACKED_LAYOUT, "from",
                                  o->name, "kind", o->kind, "fingerprint", o->fingerprint,
                                  "experts", o->experts, "rest", o->rest));
}

static void print_json(const struct inspection *i, const struct placement *placement)
{
    struct parameter_counts counts = inspection_parameters(i);
    json_t *out = json_pack("{s:s,s:s,s:s,s:b,s:s,s:I,s:I,s:I,s:{s:I},s:o,s:o}", "name", i->name,
                            "path", i->path, "family", i->family, "supported", i->supported,
                            "layout", i->layout, "files", (json_int_t)i->directory->file_count,
                            "tensors", (json_int_t)i->directory->count, "bytes",
                            (json_int_t)inspection_sum(i, -1, -1).bytes, "parameters", "total",
                            (json_int_t)counts.total, "formats", formats_json_new(i, -1), "classes",
                            classes_json_new(i));

    if (i->supported) {
        json_t *parameters = json_object_get(out, "parameters");
        json_object_set_new(parameters, "experts", json_integer((json_int_t)counts.experts));
        json_object_set_new(parameters, "active", json_integer((json_int_t)counts.active));
        add_packed(out, &i->model.packed);
        json_object_set_new(out, "shape", shape_json_new(i));
        json_object_set_new(out, "bytes_per_token", token_json_new(i));
        json_object_set_new(out, "unknown_tensors", unknown_json_new(i));
        json_object_set_new(out, "placement", placement_json_new(placement));
    } else {
        json_object_set_new(out, "problem", json_string(i->problem));
    }
    json_print_line(out);
    json_decref(out);
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct inspect_settings *settings = settings_;
    const struct common_settings *common = &settings->common;
    const char *model = arguments->count ? arguments->values[0] : common->model;
    struct inspection inspection;
    struct placement placement = { 0 };
    mf_error why = { .text = "" };
    mf_status status = MF_OK;

    if (arguments->count && common->model) {
        return usage_error(&command_inspect, "the model is named twice");
    }
    if (inspection_open(&inspection, model, &why) != MF_OK) return report(&why);
    if (inspection.supported) {
        status = inspection_place(&placement, &inspection,
                                  common->memory_bytes.given ? common->memory_bytes.value : 0,
                                  common->context.given ? common->context.value : 0, &why);
    }
    if (status == MF_OK && settings->json) print_json(&inspection, &placement);
    if (status == MF_OK && !settings->json) print_table(&inspection, &placement);
    inspection_close(&inspection);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "what a model is, and what would live where",
    .arguments = "[MODEL]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes = "Reads the headers of the checkpoint and no weights.",
    .examples = "  moeflux inspect\n"
                "  moeflux inspect Qwen/Qwen3-30B-A3B --memory 8G\n"
                "  moeflux inspect model.gguf --json\n",
    .settings_bytes = sizeof(struct inspect_settings),
    .run = run,
};
