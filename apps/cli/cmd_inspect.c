/* `moeflux inspect`: describes a checkpoint and its memory plan. */
#include "command.h"
#include "json_lines.h"
#include "model_path.h"
#include "pulling.h"
#include "shown.h"
#include "terminal.h"

#include "common/basics.h"
#include "moeflux_tools.h"

struct inspect_settings {
    struct common_settings common;
    bool json;
};

static const struct option options[] = {
    { 0, "json", OPTION_FLAG, offsetof(struct inspect_settings, json), NULL,
      .help = "one JSON object instead of a table" },
    { 'y', "yes", OPTION_FLAG, offsetof(struct inspect_settings, common.yes), NULL,
      .help = "download the model if it is not here, without asking; see `moeflux pull`" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

struct inspection {
    mf_description *description;
    mf_description_info info;
    mf_model_shape shape; /* all 0 where the model cannot be run */
    mf_plan plan;         /* likewise */
};

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

static void print_layers(const mf_model_shape *shape)
{
    const struct {
        uint32_t count;
        const char *name;
    } kinds[] = {
        { shape->attention_layers, "full attention" },
        { shape->window_layers, "attention in a window" },
        { shape->latent_layers, "latent attention" },
        { shape->delta_layers, "gated delta net" },
    };
    uint32_t dense = shape->layer_count - shape->expert_layers;
    const char *before = ": ";

    printf("layers      %u", shape->layer_count);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (kinds[i].count == 0) continue;
        printf("%s%u %s", before, kinds[i].count, kinds[i].name);
        before = ", ";
    }
    if (dense) printf("; %u without experts, width %u", dense, shape->dense_width);
    printf("\n");
}

static void print_mixers(const mf_model_shape *s)
{
    if (s->latent_layers) {
        printf("attention   %u heads of %u + %u, values of %u, from a latent of %u\n", s->heads,
               s->nope_width, s->rotary_width, s->value_width, s->latent_width);
    } else if (s->attention_layers) {
        printf("attention   %u query and %u key/value heads of %u\n", s->heads, s->kv_heads,
               s->head_width);
    }
    if (s->window_layers) {
        printf("window      %u positions; %u query and %u key/value heads of %u\n", s->window,
               s->heads, s->window_kv_heads, s->window_head_width);
    }
    if (s->delta_layers) {
        printf("delta net   %u key heads of %u, %u value heads of %u\n", s->delta_key_heads,
               s->delta_key_width, s->delta_value_heads, s->delta_value_width);
    }
}

static void print_shape(const mf_model_shape *s)
{
    print_layers(s);
    printf("width       %u, vocabulary %u, context %u\n", s->width, s->vocab_size,
           s->context_length);
    print_mixers(s);
    printf("experts     %u in a layer, %u per token, width %u", s->experts, s->experts_per_token,
           s->expert_width);
    if (s->shared_width) printf(", and a shared one of %u", s->shared_width);
    printf("\n");
}

/* A line for every class and format. */
static void print_classes(const struct inspection *i)
{
    char size[32];

    printf("tensors\n");
    for (int c = 0; c < MF_TENSOR_CLASS_COUNT; c++) {
        const char *name = i->info.supported ? mf_tensor_class_name((mf_tensor_class)c) : "all";
        for (uint32_t f = 0; f < mf_format_count(); f++) {
            mf_tensor_sum sum = mf_description_sum(i->description, c, (int)f);
            if (sum.tensors == 0) continue;
            printf("  %-18s  %-14s %6llu  %10s\n", name, mf_format_name(f),
                   (unsigned long long)sum.tensors, size_text(sum.bytes, size, sizeof size));
            name = "";
        }
    }
}

static void print_unknown(const struct inspection *i)
{
    enum { SHOWN = 10 };
    mf_tensor_info tensor;
    size_t count = 0;

    for (; mf_description_unknown(i->description, count, &tensor); count++) {
        if (count == 0) printf("not known, and not used\n");
        if (count >= SHOWN) continue;
        visible_printf(stdout, "  %s  %s %s\n", tensor.name, tensor.format, tensor.shape);
    }
    if (count > SHOWN) printf("  and %zu more; --json lists them all\n", count - SHOWN);
}

static void print_item(const char *name, uint64_t bytes, const char *what)
{
    char size[32];

    printf("  %-14s %10s  %s\n", name, size_text(bytes, size, sizeof size), what);
}

static void print_plan(const mf_plan *p)
{
    char size[32], text[96];

    printf("with %s of memory\n", size_text(p->memory_bytes, size, sizeof size));
    print_item("weights", p->weight_bytes, "in memory, used by every token");
    if (!p->fits) {
        printf("  this is not possible: %s\n", p->problem);
        return;
    }
    print_item("engine room", p->engine_bytes, "buffers of a step, shared by all sequences");
    snprintf(text, sizeof text, "state of %u positions", p->context_length);
    print_item("a sequence", p->sequence_bytes, text);
    if (p->table_bytes) print_item("cache tables", p->table_bytes, "of the policy for experts");
    snprintf(text, sizeof text, "%s: %llu of %llu%s",
             strcmp(p->expert_mode, "mapped") == 0 ? "mapped" : "in memory",
             (unsigned long long)p->experts_in_memory, (unsigned long long)p->expert_count,
             strcmp(p->expert_mode, "streamed") == 0 ? ", the others streamed from disk" : "");
    print_item("experts", p->expert_bytes, text);
}

static void print_token(const mf_description_info *info)
{
    char all[32], always[32], experts[32], state[32];

    printf("a token     reads %s: %s always, %s of experts; adds %s of state\n",
           size_text(info->token_resident_bytes + info->token_expert_bytes, all, sizeof all),
           size_text(info->token_resident_bytes, always, sizeof always),
           size_text(info->token_expert_bytes, experts, sizeof experts),
           size_text(info->token_state_bytes, state, sizeof state));
}

static void print_table(const struct inspection *i)
{
    const mf_description_info *info = &i->info;
    char size[32], all[32], experts[32], active[32];

    visible_printf(stdout, "model       %s\n", info->name);
    visible_printf(stdout, "family      %s%s\n", info->family,
                   info->supported ? "" : " (cannot be run)");
    printf("files       %llu %s, %s\n", (unsigned long long)info->file_count, info->layout,
           size_text(info->bytes, size, sizeof size));
    if (info->packed_layout) {
        visible_printf(stdout, "packed      layout %s, from %s (%s); experts %s, the rest %s\n",
                       info->packed_layout, info->packed_name, info->packed_kind,
                       info->packed_experts, info->packed_rest);
    }
    if (info->supported) {
        printf("weights     %s, %s in experts, %s per token\n",
               count_text(info->parameters, all, sizeof all),
               count_text(info->expert_parameters, experts, sizeof experts),
               count_text(info->active_parameters, active, sizeof active));
        print_token(info);
        print_shape(&i->shape);
    }
    print_classes(i);
    print_unknown(i);
    if (info->supported) {
        print_plan(&i->plan);
    } else {
        visible_printf(stdout, "it cannot be run: %s\n", info->problem);
    }
}

/* --------------------------------------------------------------------- JSON */

static json_t *sum_json_new(mf_tensor_sum sum)
{
    return json_pack("{s:I,s:I,s:I}", "tensors", (json_int_t)sum.tensors, "parameters",
                     (json_int_t)sum.parameters, "bytes", (json_int_t)sum.bytes);
}

/* By format; of one class, or of all (-1). */
static json_t *formats_json_new(const struct inspection *i, int tensor_class)
{
    json_t *out = json_object();

    for (uint32_t f = 0; f < mf_format_count(); f++) {
        mf_tensor_sum sum = mf_description_sum(i->description, tensor_class, (int)f);
        if (sum.tensors) json_object_set_new(out, mf_format_name(f), sum_json_new(sum));
    }
    return out;
}

static json_t *classes_json_new(const struct inspection *i)
{
    json_t *out = json_object();

    for (int c = 0; c < MF_TENSOR_CLASS_COUNT; c++) {
        mf_tensor_sum sum = mf_description_sum(i->description, c, -1);
        if (sum.tensors == 0) continue;
        json_t *entry = sum_json_new(sum);
        json_object_set_new(entry, "formats", formats_json_new(i, c));
        json_object_set_new(out, mf_tensor_class_name((mf_tensor_class)c), entry);
    }
    return out;
}

static json_t *unknown_json_new(const struct inspection *i)
{
    json_t *out = json_array();
    mf_tensor_info tensor;

    for (size_t n = 0; mf_description_unknown(i->description, n, &tensor); n++) {
        json_array_append_new(out, json_string(tensor.name));
    }
    return out;
}

static json_t *shape_json_new(const mf_model_shape *s)
{
    json_t *layers = json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "count", (int)s->layer_count,
                               "attention", (int)s->attention_layers, "latent",
                               (int)s->latent_layers, "delta", (int)s->delta_layers, "window",
                               (int)s->window_layers, "with_experts", (int)s->expert_layers);

    return json_pack("{s:i,s:i,s:i,s:o,s:{s:i,s:i,s:i},s:{s:i,s:i,s:i,s:i}}", "vocab_size",
                     (int)s->vocab_size, "context_length", (int)s->context_length, "width",
                     (int)s->width, "layers", layers, "attention", "heads", (int)s->heads,
                     "kv_heads", (int)s->kv_heads, "head_width", (int)s->head_width, "experts",
                     "per_layer", (int)s->experts, "per_token", (int)s->experts_per_token, "width",
                     (int)s->expert_width, "shared_width", (int)s->shared_width);
}

static json_t *token_json_new(const mf_description_info *info)
{
    uint64_t total = info->token_resident_bytes + info->token_expert_bytes;

    return json_pack("{s:I,s:I,s:I,s:I}", "total", (json_int_t)total, "always",
                     (json_int_t)info->token_resident_bytes, "experts",
                     (json_int_t)info->token_expert_bytes, "state",
                     (json_int_t)info->token_state_bytes);
}

static json_t *plan_json_new(const mf_plan *p)
{
    json_t *out = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "memory_bytes", (json_int_t)p->memory_bytes,
        "context", (json_int_t)p->context_length, "resident_bytes", (json_int_t)p->weight_bytes,
        "engine_bytes", (json_int_t)p->engine_bytes, "sequence_bytes",
        (json_int_t)p->sequence_bytes, "table_bytes", (json_int_t)p->table_bytes, "experts",
        (json_int_t)p->expert_count, "experts_in_memory", (json_int_t)p->experts_in_memory,
        "expert_slot_bytes", (json_int_t)p->expert_bytes, "fits", (int)p->fits);

    json_object_set_new(out, p->fits ? "expert_mode" : "problem",
                        json_string(p->fits ? p->expert_mode : p->problem));
    return out;
}

static void add_packed(json_t *out, const mf_description_info *info)
{
    if (!info->packed_layout) return;
    json_object_set_new(out, "packed",
                        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "layout", info->packed_layout,
                                  "from", info->packed_name, "kind", info->packed_kind,
                                  "fingerprint", info->packed_fingerprint, "experts",
                                  info->packed_experts, "rest", info->packed_rest));
}

static void print_json(const struct inspection *i)
{
    const mf_description_info *info = &i->info;
    json_t *out = json_pack(
        "{s:s,s:s,s:s,s:b,s:s,s:I,s:I,s:I,s:{s:I},s:o,s:o}", "name", info->name, "path", info->path,
        "family", info->family, "supported", (int)info->supported, "layout", info->layout, "files",
        (json_int_t)info->file_count, "tensors", (json_int_t)info->tensor_count, "bytes",
        (json_int_t)info->bytes, "parameters", "total", (json_int_t)info->parameters, "formats",
        formats_json_new(i, -1), "classes", classes_json_new(i));

    if (info->supported) {
        json_t *parameters = json_object_get(out, "parameters");
        json_object_set_new(parameters, "experts",
                            json_integer((json_int_t)info->expert_parameters));
        json_object_set_new(parameters, "active",
                            json_integer((json_int_t)info->active_parameters));
        add_packed(out, info);
        json_object_set_new(out, "shape", shape_json_new(&i->shape));
        json_object_set_new(out, "bytes_per_token", token_json_new(info));
        json_object_set_new(out, "unknown_tensors", unknown_json_new(i));
        json_object_set_new(out, "placement", plan_json_new(&i->plan));
    } else {
        json_object_set_new(out, "problem", json_string(info->problem));
    }
    json_print_line(out);
    json_decref(out);
}

static mf_status inspect(struct inspection *out, const char *path,
                         const struct common_settings *common, mf_error *why)
{
    mf_plan_options wanted = MF_PLAN_OPTIONS_INIT;
    mf_status status = mf_description_open(&out->description, path, why);

    if (status != MF_OK) return status;
    mf_description_get(&out->info, out->description, NULL);
    mf_description_get_shape(&out->shape, out->description, NULL);
    if (!out->info.supported) return MF_OK;
    wanted.memory_bytes = common->memory_bytes.value;
    wanted.context_length = (uint32_t)common->context.value;
    wanted.chunk_rows = (uint32_t)common->prompt_chunk.value;
    wanted.kv_type = common->kv;
    status = mf_model_plan(&out->plan, path, &wanted, why);
    if (status == MF_OK) out->info.token_state_bytes = out->plan.position_bytes;
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct inspect_settings *settings = settings_;
    const struct common_settings *common = &settings->common;
    const char *model = arguments->count ? arguments->values[0] : common->model;
    struct inspection inspection = { .info = MF_DESCRIPTION_INFO_INIT,
                                     .shape = MF_MODEL_SHAPE_INIT,
                                     .plan = MF_PLAN_INIT };
    char path[PATH_CAPACITY];
    mf_error why = { .text = "" };
    mf_status status;

    if (arguments->count && common->model) {
        return usage_error(&command_inspect, "the model is named twice");
    }
    int code = pulling_offer(common, model, NULL);
    if (code != EXIT_DONE) return code;
    status = model_path_resolve(path, model, &why);
    if (status == MF_OK) status = inspect(&inspection, path, common, &why);
    if (status == MF_OK && settings->json) print_json(&inspection);
    if (status == MF_OK && !settings->json) print_table(&inspection);
    mf_description_close(inspection.description);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "describe a model and what it needs in memory",
    .arguments = "[MODEL]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes = "Reads the headers of the checkpoint, not the weights.",
    .examples = "  moeflux inspect\n"
                "  moeflux inspect Qwen/Qwen3-30B-A3B --memory 8G\n"
                "  moeflux inspect model.gguf --json\n",
    .settings_bytes = sizeof(struct inspect_settings),
    .run = run,
};
