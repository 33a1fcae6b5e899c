/* `moeflux inspect`: what a checkpoint is, and what would live where. */
#include "command.h"
#include "inspection.h"
#include "json_lines.h"
#include "terminal.h"

#include "base/machine.h"

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

static void print_layers(const struct inspection *i)
{
    static const char *const names[MIXER_KINDS] = {
        [MIXER_ATTENTION] = "full attention",
        [MIXER_LATENT] = "latent attention",
        [MIXER_DELTA] = "gated delta net",
    };
    uint32_t dense = i->config.layer_count - inspection_expert_layers(i);
    const char *before = ": ";

    printf("layers      %u", i->config.layer_count);
    for (int kind = 0; kind < MIXER_KINDS; kind++) {
        uint32_t count = config_count_mixers(&i->config, (enum mixer_kind)kind);
        if (count == 0) continue;
        printf("%s%u %s", before, count, names[kind]);
        before = ", ";
    }
    if (dense) printf("; %u without experts", dense);
    printf("\n");
}

static void print_shape(const struct inspection *i)
{
    const struct model_config *c = &i->config;

    print_layers(i);
    printf("width       %u, vocabulary %u, context %u\n", c->width, c->vocab_size,
           c->context_length);
    printf("attention   %u query and %u key/value heads of %u\n", c->heads, c->kv_heads,
           c->head_width);
    printf("experts     %u in a layer, %u per token, width %u", c->experts, c->experts_per_token,
           c->expert_width);
    if (c->shared_width) printf(", and a shared one of %u", c->shared_width);
    printf("\n");
}

static void print_formats(const struct inspection *i)
{
    char size[32];

    printf("formats\n");
    for (int f = 0; f <= FORMAT_COUNT; f++) {
        if (i->formats[f].bytes == 0) continue;
        printf("  %-14s %6llu tensors  %10s\n",
               f < FORMAT_COUNT ? format_info((enum format)f)->name : "unknown",
               (unsigned long long)i->formats[f].tensors,
               size_text(i->formats[f].bytes, size, sizeof size));
    }
}

static void print_placement(const struct placement *p, uint64_t context)
{
    char size[4][32];

    printf("with %s of memory\n", size_text(p->memory_bytes, size[0], sizeof size[0]));
    printf("  %-14s %10s  in memory\n", "always used",
           size_text(p->resident_bytes, size[1], sizeof size[1]));
    printf("  %-14s %10s  in memory, for %llu positions\n", "state",
           size_text(p->state_bytes, size[2], sizeof size[2]), (unsigned long long)context);
    if (!p->fits) {
        printf("  this is not enough: not even the experts of one token have room\n");
    } else {
        printf("  %-14s %10s  %s: %llu of %llu%s\n", "experts",
               size_text(p->slot_bytes, size[3], sizeof size[3]),
               p->mode == EXPERTS_MAPPED ? "mapped" : "in memory",
               (unsigned long long)p->expert_slots, (unsigned long long)p->expert_count,
               p->mode == EXPERTS_STREAMED ? ", the others streamed from disk" : "");
    }
}

static void print_table(const struct inspection *i, const struct placement *placement,
                        uint64_t context)
{
    char size[32], all[32], experts[32], active[32];

    printf("model       %s\n", i->name);
    printf("family      %s%s\n", i->family ? i->family : "unknown",
           i->supported ? "" : " (cannot be run)");
    printf("files       %zu %s, %s\n", i->directory.file_count, i->layout,
           size_text(i->bytes, size, sizeof size));
    if (i->packed.tensor_count) {
        printf("packed      layout %s, from %s (%s); experts %s, the rest %s\n", PACKED_LAYOUT,
               i->packed.origin.name, i->packed.origin.kind, i->packed.origin.experts,
               i->packed.origin.rest);
    }
    printf("weights     %s, %s in experts", count_text(i->parameters, all, sizeof all),
           count_text(i->expert_parameters, experts, sizeof experts));
    if (i->supported) {
        printf(", %s per token",
               count_text(inspection_active_parameters(i), active, sizeof active));
    }
    printf("\n");
    if (i->supported) print_shape(i);
    print_formats(i);
    if (i->supported) {
        print_placement(placement, context);
    } else {
        printf("it cannot be run: %s\n", i->problem);
    }
}

/* --------------------------------------------------------------------- JSON */

static json_t *formats_json_new(const struct inspection *i)
{
    json_t *out = json_object();

    for (int f = 0; f <= FORMAT_COUNT; f++) {
        if (i->formats[f].bytes == 0) continue;
        json_object_set_new(out, f < FORMAT_COUNT ? format_info((enum format)f)->name : "unknown",
                            json_pack("{s:I,s:I}", "tensors", (json_int_t)i->formats[f].tensors,
                                      "bytes", (json_int_t)i->formats[f].bytes));
    }
    return out;
}

static json_t *layers_json_new(const struct inspection *i)
{
    const struct model_config *c = &i->config;

    return json_pack("{s:i,s:i,s:i,s:i,s:i}", "count", (int)c->layer_count, "attention",
                     (int)config_count_mixers(c, MIXER_ATTENTION), "latent",
                     (int)config_count_mixers(c, MIXER_LATENT), "delta",
                     (int)config_count_mixers(c, MIXER_DELTA), "with_experts",
                     (int)inspection_expert_layers(i));
}

static json_t *shape_json_new(const struct inspection *i)
{
    const struct model_config *c = &i->config;

    return json_pack("{s:i,s:i,s:i,s:o,s:{s:i,s:i,s:i},s:{s:i,s:i,s:i,s:i}}", "vocab_size",
                     (int)c->vocab_size, "context_length", (int)c->context_length, "width",
                     (int)c->width, "layers", layers_json_new(i), "attention", "heads",
                     (int)c->heads, "kv_heads", (int)c->kv_heads, "head_width", (int)c->head_width,
                     "experts", "per_layer", (int)c->experts, "per_token",
                     (int)c->experts_per_token, "width", (int)c->expert_width, "shared_width",
                     (int)c->shared_width);
}

static json_t *placement_json_new(const struct placement *p, uint64_t context)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:b}", "memory_bytes",
                     (json_int_t)p->memory_bytes, "context", (json_int_t)context, "resident_bytes",
                     (json_int_t)p->resident_bytes, "state_bytes", (json_int_t)p->state_bytes,
                     "experts", (json_int_t)p->expert_count, "experts_in_memory",
                     (json_int_t)p->expert_slots, "expert_slot_bytes", (json_int_t)p->slot_bytes,
                     "expert_mode", expert_mode_name(p->mode), "fits", p->fits);
}

static void print_json(const struct inspection *i, const struct placement *placement,
                       uint64_t context)
{
    json_t *out = json_pack(
        "{s:s,s:s,s:s*,s:b,s:s,s:I,s:I,s:I,s:{s:I,s:I},s:o}", "name", i->name, "path", i->path,
        "family", i->family, "supported", i->supported, "layout", i->layout, "files",
        (json_int_t)i->directory.file_count, "tensors", (json_int_t)i->directory.count, "bytes",
        (json_int_t)i->bytes, "parameters", "total", (json_int_t)i->parameters, "experts",
        (json_int_t)i->expert_parameters, "formats", formats_json_new(i));

    if (i->packed.tensor_count) {
        const struct packed_origin *o = &i->packed.origin;
        json_object_set_new(out, "packed",
                            json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "layout", PACKED_LAYOUT, "from",
                                      o->name, "kind", o->kind, "fingerprint", o->fingerprint,
                                      "experts", o->experts, "rest", o->rest));
    }
    if (i->supported) {
        json_object_set_new(json_object_get(out, "parameters"), "active",
                            json_integer((json_int_t)inspection_active_parameters(i)));
        json_object_set_new(out, "shape", shape_json_new(i));
        json_object_set_new(out, "placement", placement_json_new(placement, context));
    } else {
        json_object_set_new(out, "problem", json_string(i->problem));
    }
    json_print_line(out);
    json_decref(out);
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct inspect_settings *settings = settings_;
    const char *model = arguments->count ? arguments->values[0] : settings->common.model;
    struct inspection inspection;
    struct placement placement = { 0 };
    struct machine machine;
    uint64_t context = settings->common.context.value;
    mf_error why = { .text = "" };

    if (arguments->count && settings->common.model) {
        return usage_error(&command_inspect, "the model is named twice");
    }
    if (inspection_open(&inspection, model, &why) != MF_OK) return report(&why);
    machine_probe(&machine);
    if (!settings->common.context.given) context = min_size(inspection.config.context_length, 4096);
    if (inspection.supported) {
        inspection_place(&placement, &inspection,
                         settings->common.memory_bytes.given ? settings->common.memory_bytes.value
                                                             : machine.available_bytes,
                         settings->common.memory_bytes.given, context);
    }
    if (settings->json) {
        print_json(&inspection, &placement, context);
    } else {
        print_table(&inspection, &placement, context);
    }
    inspection_close(&inspection);
    return EXIT_DONE;
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
