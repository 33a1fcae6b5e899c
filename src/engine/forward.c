#include "engine/forward.h"

#include "base/clock.h"
#include "base/status.h"
#include "model/families.h"

/* ------------------------------------------------------------------- memory */

static struct backend_sizes sizes_of(const struct model_config *c, size_t row_capacity,
                                     size_t context)
{
    bool latent = c->family->mixer == MIXER_LATENT;
    bool window = c->window.positions > 0;
    size_t head_width = max_size(c->head_width, window ? c->window.head_width : 0);
    size_t kv_heads = min_size(c->kv_heads, window ? c->window.kv_heads : c->kv_heads);
    size_t cols = max_size(c->width, max_size(c->expert_width, c->shared_width));
    cols = max_size(cols, max_size(c->dense_width, c->query_rank));
    cols = max_size(cols, (size_t)c->heads * max_size(head_width, c->value_width));
    cols = max_size(cols, (size_t)c->delta_value_heads * c->delta_value_width);
    return (struct backend_sizes){
        .row_count = row_capacity,
        .matrix_cols = cols,
        .context = context,
        .experts = c->experts,
        .experts_per_row = c->experts_per_token,
        .width = c->width,
        .expert_width = c->expert_width,
        .heads = latent ? 0 : c->heads,
        .kv_heads = latent ? 0 : kv_heads,
        .head_width = latent ? 0 : head_width,
        .delta_key_heads = c->delta_key_heads,
        .delta_value_heads = c->delta_value_heads,
        .delta_keys = c->delta_key_width,
        .delta_values = c->delta_value_width,
        .latent = { .heads = latent ? c->heads : 0,
                    .latent = c->latent_width,
                    .nope = c->nope_width,
                    .rope = c->rope.rotary_width,
                    .values = c->value_width },
    };
}

/* No more than the groups that a router keeps have experts. */
static size_t predicted_per_row(const struct model_config *c)
{
    size_t candidates = c->experts;
    if (c->router_groups > 1) candidates = candidates / c->router_groups * c->router_top_groups;
    return min_size((size_t)PREDICTED_SHARE * c->experts_per_token, candidates);
}

/* An array of a forward: where its address goes, and its size. */
struct array {
    void *pointer; /* to a pointer of any type */
    uint64_t count;
    size_t size;
    enum {
        ARRAY_ZEROED,
        ARRAY_RAW,    /* written before it is read: need not be zeroed */
        ARRAY_BUFFER, /* of graphs: raw, and where the backend computes */
    } kind;
};

enum { ARRAYS_MAX = SHARED_COUNT + 20 };

static size_t list_arrays(struct array *out, struct forward *f)
{
    const struct model_config *c = f->config;
    size_t rows = f->row_capacity, pairs = rows * c->experts_per_token, count = 0;
    size_t predicted = EXPERT_DECODE_ROWS_MAX * predicted_per_row(c);
    bool device = backend_is_device(f->backend);
    for (int i = 0; i < SHARED_COUNT; i++)
        out[count++] = (struct array){ &f->shared[i],
                                       (uint64_t)(i == SHARED_LOGITS ? LOGIT_ROWS : rows) *
                                           f->recipes.widths[i],
                                       sizeof(float), ARRAY_BUFFER };
    const struct array others[] = {
        { &f->scratch, rows * f->recipes.scratch_width, sizeof(float), ARRAY_BUFFER },
        { &f->gathered, (uint64_t)LOGIT_ROWS * c->width, sizeof(float), ARRAY_BUFFER },
        { &f->expert_hidden, (uint64_t)pairs * c->expert_width, sizeof(float), ARRAY_BUFFER },
        { &f->layer_spans, device ? (uint64_t)c->layer_count * SPANS_MAX : 0, sizeof(struct span),
          ARRAY_RAW },
        { &f->host_logits, device ? (uint64_t)LOGIT_ROWS * c->vocab_size : 0, sizeof(float),
          ARRAY_RAW },
        { &f->host_x, device ? (uint64_t)rows * c->width : 0, sizeof(float), ARRAY_RAW },
        { &f->routes.experts, pairs, sizeof(uint32_t), ARRAY_ZEROED },
        { &f->routes.weights, pairs, sizeof(float), ARRAY_ZEROED },
        { &f->predicted.experts, predicted, sizeof(uint32_t), ARRAY_ZEROED },
        { &f->predicted.weights, predicted, sizeof(float), ARRAY_ZEROED },
        { &f->rows, rows, sizeof(struct row), ARRAY_ZEROED },
        { &f->tokens, rows, sizeof(int32_t), ARRAY_ZEROED },
        { &f->spans, SPANS_MAX, sizeof(struct span), ARRAY_ZEROED },
        { &f->bucket_ends, (size_t)c->experts + 1, sizeof(uint32_t), ARRAY_ZEROED },
        { &f->pairs, pairs, sizeof(uint32_t), ARRAY_ZEROED },
        { &f->used_experts, c->experts, sizeof(uint32_t), ARRAY_ZEROED },
        { &f->expert_uses, c->experts, sizeof(uint32_t), ARRAY_ZEROED },
        { &f->leases, c->experts, sizeof(struct expert_lease), ARRAY_ZEROED },
        { &f->works, c->experts, sizeof(struct expert_work), ARRAY_ZEROED },
    };
    _Static_assert(SHARED_COUNT + COUNT_OF(others) <= ARRAYS_MAX, "room for all of them");
    memcpy(out + count, others, sizeof others);
    return count + COUNT_OF(others);
}

static uint64_t array_bytes(const struct array *array)
{
    return align_up(array->count * array->size, CACHE_LINE);
}

static bool on_device(const struct forward *f, const struct array *array)
{
    return array->kind == ARRAY_BUFFER && backend_is_device(f->backend);
}

mf_status forward_bytes(struct forward_bytes *out, const struct forward_parts *parts,
                        size_t row_capacity, size_t context, mf_error *why)
{
    struct arena arena;
    struct array arrays[ARRAYS_MAX];
    arena_init(&arena, parts->allocator);
    struct forward *f = ARENA_NEW(&arena, struct forward, 1);
    mf_status status = f ? MF_OK : fail_memory(why, sizeof *f);
    if (status == MF_OK) status = recipes_build(&f->recipes, parts->config, &arena, why);
    if (status == MF_OK) {
        struct backend_sizes sizes = sizes_of(parts->config, row_capacity, context);
        f->config = parts->config;
        f->backend = parts->backend;
        f->row_capacity = row_capacity;
        out->backend = parts->backend->functions->reserve_bytes(parts->backend, &sizes);
        out->arena = align_up(recipes_bytes(parts->config), CACHE_LINE);
        for (size_t i = 0, count = list_arrays(arrays, f); i < count; i++)
            if (!on_device(f, &arrays[i])) out->arena += array_bytes(&arrays[i]);
    }
    arena_free(&arena);
    return status;
}

/* One block of the device's memory for all buffers. */
static mf_status take_device(struct forward *f, const struct array *arrays, size_t count,
                             mf_error *why)
{
    size_t taken = 0;
    f->device_memory = NULL; /* a nested forward begins as a copy of its outer one */
    f->device_bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (on_device(f, &arrays[i])) f->device_bytes += array_bytes(&arrays[i]);
    if (f->device_bytes == 0) return MF_OK;
    f->device_memory = f->backend->functions->allocate(f->backend, f->device_bytes);
    if (!f->device_memory)
        return fail(why, MF_ERR_MEMORY,
                    "the device has no %zu bytes of memory for steps of %zu rows", f->device_bytes,
                    f->row_capacity);
    for (size_t i = 0; i < count; i++) {
        if (!on_device(f, &arrays[i])) continue;
        void *memory = (uint8_t *)f->device_memory + taken;
        taken += array_bytes(&arrays[i]);
        memcpy(arrays[i].pointer, &memory, sizeof memory);
    }
    return MF_OK;
}

static mf_status take_arrays(struct forward *f, const struct array *arrays, size_t count,
                             struct arena *arena, mf_error *why)
{
    mf_status status = take_device(f, arrays, count, why);
    for (size_t i = 0; status == MF_OK && i < count; i++) {
        const struct array *array = &arrays[i];
        if (on_device(f, array)) continue;
        void *memory = array->kind != ARRAY_ZEROED
                           ? arena_take_raw(arena, array->count, array->size)
                           : arena_take(arena, array->count, array->size);
        if (!memory)
            return fail(why, MF_ERR_MEMORY, "out of memory for steps of %zu rows", f->row_capacity);
        memcpy(array->pointer, &memory, sizeof memory);
    }
    return status;
}

mf_status forward_init(struct forward *f, const struct forward_parts *parts, struct arena *arena,
                       size_t row_capacity, size_t context, mf_error *why)
{
    const struct model_config *c = parts->config;
    struct array arrays[ARRAYS_MAX];
    *f = (struct forward){ .config = c,
                           .weights = parts->weights,
                           .experts = parts->experts,
                           .backend = parts->backend,
                           .context = (uint32_t)context,
                           .row_capacity = row_capacity };
    struct backend_sizes sizes = sizes_of(c, row_capacity, context);
    mf_status status = recipes_build(&f->recipes, c, arena, why);
    if (status == MF_OK) status = f->backend->functions->reserve(f->backend, &sizes, why);
    if (status != MF_OK) return status;

    status = take_arrays(f, arrays, list_arrays(arrays, f), arena, why);
    if (status != MF_OK) return status;
    f->routes.per_row = c->experts_per_token;
    f->predicted.per_row = (uint32_t)predicted_per_row(c);
    return MF_OK;
}

void forward_free(struct forward *f)
{
    if (f->device_memory)
        f->backend->functions->release(f->backend, f->device_memory, f->device_bytes);
    f->device_memory = NULL;
}

/* What a nested forward does not share: what a step keeps from layer to layer. */
enum { NESTED_ARRAYS = 7 };

static void list_nested_arrays(struct array out[NESTED_ARRAYS], struct forward *f)
{
    const struct model_config *c = f->config;
    size_t rows = f->row_capacity;
    bool window = c->window.positions > 0;
    const struct array own[] = {
        { &f->shared[SHARED_X], (uint64_t)rows * c->width, sizeof(float), ARRAY_BUFFER },
        { &f->shared[SHARED_ANGLES], (uint64_t)rows * c->rope.rotary_width, sizeof(float),
          ARRAY_BUFFER },
        { &f->shared[SHARED_WINDOW_ANGLES],
          window ? (uint64_t)rows * c->window.rope.rotary_width : 0, sizeof(float), ARRAY_BUFFER },
        { &f->rows, rows, sizeof(struct row), ARRAY_ZEROED },
        { &f->tokens, rows, sizeof(int32_t), ARRAY_ZEROED },
        { &f->spans, SPANS_MAX, sizeof(struct span), ARRAY_ZEROED },
        { &f->layer_spans, backend_is_device(f->backend) ? (uint64_t)c->layer_count * SPANS_MAX : 0,
          sizeof(struct span), ARRAY_RAW },
    };
    _Static_assert(COUNT_OF(own) == NESTED_ARRAYS, "all of them");
    memcpy(out, own, sizeof own);
}

uint64_t forward_nested_bytes(const struct forward_parts *parts, size_t row_capacity)
{
    struct forward f = { .config = parts->config,
                         .backend = parts->backend,
                         .row_capacity = row_capacity };
    struct array arrays[NESTED_ARRAYS];
    uint64_t bytes = align_up(sizeof f, CACHE_LINE);
    list_nested_arrays(arrays, &f);
    for (size_t i = 0; i < NESTED_ARRAYS; i++)
        if (!on_device(&f, &arrays[i])) bytes += array_bytes(&arrays[i]);
    return bytes;
}

mf_status forward_nest(struct forward **out, const struct forward *outer, struct arena *arena,
                       size_t row_capacity, mf_error *why)
{
    struct array arrays[NESTED_ARRAYS];
    struct forward *f = ARENA_NEW(arena, struct forward, 1);
    mf_status status = f ? MF_OK : fail_memory(why, sizeof *f);
    if (status != MF_OK) return status;
    *f = *outer;
    f->row_capacity = row_capacity;
    f->outer = outer;
    list_nested_arrays(arrays, f);
    status = take_arrays(f, arrays, NESTED_ARRAYS, arena, why);
    *out = f;
    return status;
}

/* ------------------------------------------------------------------ a graph */

struct step {
    struct forward *forward;
    struct step_part *parts;
    size_t part_count;
    size_t row_count;
    uint32_t layer; /* the present one */
};

/* `routes` is what the recipe's router writes, or its weighted sum reads. */
static mf_status run_routed(const struct step *step, const struct recipe *recipe,
                            const struct weight *weights, struct routes *routes, mf_error *why)
{
    struct forward *f = step->forward;
    float *buffers[GRAPH_BUFFERS_MAX];
    buffers_place(buffers, &recipe->plan, &recipe->graph, f->shared, f->scratch, f->row_capacity);
    struct frame frame = { .step = f->frame.row_count > 0 ? &f->frame : NULL,
                           .layer = step->layer,
                           .row_count = step->row_count,
                           .tokens = f->tokens,
                           .rows = f->rows,
                           .spans = f->spans,
                           .span_count = step->part_count,
                           .weights = weights,
                           .buffers = buffers,
                           .routes = routes };
    return f->backend->functions->execute(f->backend, &recipe->graph, &frame, why);
}

static mf_status run_recipe(const struct step *step, const struct recipe *recipe,
                            const struct weight *weights, mf_error *why)
{
    return run_routed(step, recipe, weights, &step->forward->routes, why);
}

/* ------------------------------------------------------------------ experts */

/* Sorts the (row, place) pairs by expert: those of expert e become
 * pairs[bucket_ends[e - 1] … bucket_ends[e]).  Returns how many experts have any. */
static size_t bucket_pairs(struct forward *f, size_t row_count)
{
    uint32_t *ends = f->bucket_ends;
    size_t pair_count = row_count * f->routes.per_row, used = 0;
    memset(ends, 0, ((size_t)f->config->experts + 1) * sizeof *ends);
    for (size_t p = 0; p < pair_count; p++) ends[f->routes.experts[p] + 1]++;
    for (uint32_t e = 0; e < f->config->experts; e++) {
        if (ends[e + 1] > 0) f->used_experts[used++] = e;
        f->expert_uses[e] = ends[e + 1];
        ends[e + 1] += ends[e]; /* ends[e] is where expert e begins; filling moves it to its end */
    }
    for (size_t p = 0; p < pair_count; p++) f->pairs[ends[f->routes.experts[p]]++] = (uint32_t)p;
    return used;
}

static struct expert_work work_for(const struct forward *f, const struct expert_lease *lease)
{
    uint32_t e = lease->expert, begin = e > 0 ? f->bucket_ends[e - 1] : 0;
    return (struct expert_work){ .view = &lease->view,
                                 .expert = e,
                                 .pairs = f->pairs + begin,
                                 .pair_count = f->bucket_ends[e] - begin };
}

static bool has_experts(const struct forward *f, uint32_t layer)
{
    return layer < f->config->layer_count && f->config->ffns[layer] == FFN_EXPERTS;
}

/* Lets the store read ahead: a layer's router, applied before its time to the state at
 * hand, finds three quarters of what it will choose; one layer earlier, two thirds. */
static mf_status predict_experts(const struct step *step, uint32_t next, mf_error *why)
{
    struct forward *f = step->forward;
    mf_status status = MF_OK;
    uint32_t ranks;
    for (uint32_t reach = 1; status == MF_OK && has_experts(f, next); reach++, next++) {
        if ((ranks = expert_store_predictable_ranks(f->experts, reach)) == 0) break;
        struct routes routes = f->predicted;
        if (ranks < routes.per_row) routes.per_row = ranks;
        status =
            run_routed(step, &f->recipes.predict, f->weights->layers[next].weights, &routes, why);
        if (status == MF_OK)
            expert_store_predict(f->experts, next, reach, routes.experts, routes.weights,
                                 step->row_count * routes.per_row);
    }
    return status;
}

/* Nothing is known of a token before its first layer: the embedding says a fifth. */
static mf_status expect_experts(const struct step *step, uint32_t next, bool begins, mf_error *why)
{
    struct forward *f = step->forward;
    if (step->row_count <= EXPERT_DECODE_ROWS_MAX)
        return begins ? MF_OK : predict_experts(step, next, why);
    if (has_experts(f, next))
        expert_store_predict_rows(f->experts, next, (uint32_t)step->row_count);
    return MF_OK;
}

/* A batch without its works. */
static struct expert_batch batch_of(const struct step *step, uint32_t layer)
{
    const struct forward *f = step->forward;
    return (struct expert_batch){ .layer = &f->weights->layers[layer],
                                  .works = f->works,
                                  .row_count = step->row_count,
                                  .rows = f->rows,
                                  .spans = f->spans,
                                  .per_row = f->routes.per_row,
                                  .activation = f->config->activation,
                                  .routed = f->shared[SHARED_ROUTED],
                                  .hidden = f->expert_hidden,
                                  .answers = f->shared[SHARED_EXPERTS] };
}

/* Experts come in any order; each writes its own rows, the sum runs in ascending id. */
static mf_status run_experts(const struct step *step, uint32_t layer, mf_error *why)
{
    struct forward *f = step->forward;
    struct expert_visit visit;
    if (f->frame.repeats) {
        struct expert_batch held = batch_of(step, layer);
        return f->backend->functions->run_held_experts(f->backend, &held, why);
    }
    size_t used = bucket_pairs(f, step->row_count), count;
    struct expert_request request = { .layer = layer,
                                      .experts = f->used_experts,
                                      .count = used,
                                      .rows = (uint32_t)step->row_count,
                                      .uses = f->expert_uses };
    expert_visit_begin(&visit, f->experts, &request);
    mf_status status = expect_experts(step, layer + 1, false, why);
    if (status != MF_OK) return status;
    uint64_t time = trace_now(f->backend->tracer);
    while ((count = expert_visit_next(&visit, f->leases, f->config->experts, &status, why)) > 0) {
        time = trace_stage(f->backend->tracer, MF_STAGE_EXPERT_WAIT, time, (uint32_t)count);
        for (size_t i = 0; i < count; i++) f->works[i] = work_for(f, &f->leases[i]);
        struct expert_batch batch = batch_of(step, layer);
        batch.work_count = count;
        status = f->backend->functions->run_experts(f->backend, &batch, why);
        for (size_t i = 0; i < count; i++) expert_lease_end(&f->leases[i]);
        time = trace_stage(f->backend->tracer, MF_STAGE_EXPERTS, time, (uint32_t)count);
        if (status != MF_OK) break;
    }
    return status;
}

/* ------------------------------------------------------------------- a step */

static void lay_out_rows(struct step *step)
{
    struct forward *f = step->forward;
    for (size_t s = 0; s < step->part_count; s++) {
        const struct step_part *part = &step->parts[s];
        uint32_t position = sequence_next_position(part->sequence);
        f->spans[s] = (struct span){ .first_row = (uint32_t)step->row_count,
                                     .row_count = part->count,
                                     .decode = part->decode,
                                     .position = position,
                                     .run_start = part->sequence->pending_run_start };
        for (uint32_t i = 0; i < part->count; i++) {
            f->tokens[step->row_count] = part->tokens[i];
            f->rows[step->row_count++] =
                (struct row){ .span = (uint32_t)s, .position = position + i };
        }
    }
}

static mf_status observe_hidden(const struct step *step, int layer, mf_error *why)
{
    const struct forward *f = step->forward;
    const struct observer *observer = f->observer;
    const float *x = f->shared[SHARED_X];
    mf_status status = MF_OK;
    if (!observer || !observer->hidden) return MF_OK;
    if (backend_is_device(f->backend)) {
        size_t bytes = step->row_count * f->config->width * sizeof *x;
        status = f->backend->functions->copy(f->backend, f->host_x, x, bytes, why);
        x = f->host_x;
    }
    if (status == MF_OK) observer->hidden(observer->user, layer, x, step->row_count);
    return status;
}

/* What follows routing. */
static mf_status run_second_half(const struct step *step, uint32_t layer, mf_error *why)
{
    struct forward *f = step->forward;
    enum ffn_kind ffn = f->config->ffns[layer];
    double waited = expert_store_counters(f->experts).wait_seconds;
    mf_status status = ffn == FFN_EXPERTS ? run_experts(step, layer, why) : MF_OK;
    f->times.wait_seconds += expert_store_counters(f->experts).wait_seconds - waited;
    if (status != MF_OK) return status;
    return run_recipe(step, &f->recipes.after[ffn], f->weights->layers[layer].weights, why);
}

static mf_status run_layer(const struct step *step, uint32_t layer, mf_error *why)
{
    struct forward *f = step->forward;
    const struct observer *observer = f->observer;
    const struct weight *weights = f->weights->layers[layer].weights;
    enum ffn_kind ffn = f->config->ffns[layer];
    uint64_t time = trace_now(f->backend->tracer);
    trace_layer(f->backend->tracer, (int32_t)layer);
    double begin = clock_seconds();
    mf_status status =
        run_recipe(step, &f->recipes.before[f->config->mixers[layer]][ffn], weights, why);
    double routed = clock_seconds();
    if (status == MF_OK && ffn == FFN_EXPERTS && observer && observer->routes)
        observer->routes(observer->user, layer, &f->routes, step->row_count);
    if (status == MF_OK) status = run_second_half(step, layer, why);
    f->times.mixer_seconds += routed - begin;
    f->times.expert_seconds += clock_seconds() - routed;
    trace_span(f->backend->tracer, "layer", time, (uint32_t)step->row_count);
    trace_layer(f->backend->tracer, -1);
    return status;
}

mf_status forward_layer(struct forward *f, uint32_t layer, size_t row_count, size_t span_count,
                        mf_error *why)
{
    struct step step = { .forward = f, .part_count = span_count, .row_count = row_count };
    trace_count_into(f->backend->tracer, NULL);
    return run_layer(&step, layer, why);
}

mf_status forward_experts(struct forward *f, uint32_t layer, size_t row_count, mf_error *why)
{
    struct step step = { .forward = f, .row_count = row_count };
    trace_count_into(f->backend->tracer, NULL);
    return run_second_half(&step, layer, why);
}

/* What the store holds and has done, for a trace. */
static void trace_store(const struct forward *f)
{
    struct tracer *tracer = f->backend->tracer;
    if (!tracer || !tracer->function) return;
    struct expert_counters counters = expert_store_counters(f->experts);
    trace_counter(tracer, "experts in memory", expert_store_sizes(f->experts).present);
    trace_counter(tracer, "bytes read", counters.bytes_read);
    trace_counter(tracer, "experts from memory", counters.hits);
    trace_counter(tracer, "experts missed", counters.misses + counters.ahead_late);
    tracer_flush_full(tracer);
}

/* Before each layer: whether a part still wants the step. */
static mf_status look_at_parts(const struct step *step, uint32_t layer, mf_error *why)
{
    const struct step_watch *watch = step->forward->watch;
    bool wanted = false;
    for (size_t i = 0; i < step->part_count; i++) {
        struct step_part *part = &step->parts[i];
        if (part->cancel && atomic_load_explicit(part->cancel, memory_order_relaxed))
            part->cancelled = true;
        if (!part->cancelled) wanted = true;
    }
    if (!wanted) return fail(why, MF_ERR_CANCELLED, "cancelled before layer %u", layer);
    if (watch) watch->layer(watch->user, layer);
    return MF_OK;
}

/* Between two layers the step may stand still for others; their visits have ended what the store
 * read ahead for this one. */
static mf_status pause_before(const struct step *step, uint32_t layer, mf_error *why)
{
    struct forward *f = step->forward;
    const struct step_watch *watch = f->watch;
    if (!watch || !watch->pause || !watch->pause(watch->user)) return MF_OK;
    trace_count_into(f->backend->tracer, f->times.stage_ticks);
    return expect_experts(step, layer, layer == 0, why);
}

static mf_status run_layers(struct step *step, mf_error *why)
{
    struct forward *f = step->forward;
    mf_status status = MF_OK;
    for (uint32_t layer = 0; layer < f->config->layer_count && status == MF_OK; layer++) {
        step->layer = layer;
        status = pause_before(step, layer, why);
        if (status == MF_OK) status = look_at_parts(step, layer, why);
        if (status != MF_OK) break;
        for (size_t s = 0; s < step->part_count; s++)
            sequence_view(step->parts[s].sequence, layer, &f->spans[s]);
        status = run_layer(step, layer, why);
        if (status == MF_OK) status = observe_hidden(step, (int)layer, why);
    }
    return status;
}

/* A trace shows what the step was for. */
static const char *step_name(const struct step_part *parts, size_t count)
{
    bool decode = false, prompt = false;
    for (size_t i = 0; i < count; i++) {
        decode |= parts[i].decode;
        prompt |= !parts[i].decode;
    }
    return decode && prompt ? "prompt and token" : decode ? "token" : "prompt";
}

/* ---------------------------------------------------------------- on a device */

/* The bytes of all experts, as they lie in the checkpoint. */
static uint64_t all_expert_bytes(const struct forward *f)
{
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < f->config->layer_count; layer++)
        for (int part = 0; has_experts(f, layer) && part < EXPERT_PARTS; part++)
            bytes += f->config->experts *
                     expert_matrix_own_bytes(&f->weights->layers[layer].experts[part]);
    return bytes;
}

/* Hands all experts of a layer to the device, as the store has them ready. */
static mf_status hold_layer(struct forward *f, uint32_t layer, mf_error *why)
{
    struct expert_visit visit;
    mf_status status = MF_OK;
    size_t count;
    for (uint32_t e = 0; e < f->config->experts; e++) {
        f->used_experts[e] = e;
        f->expert_uses[e] = 1;
    }
    struct expert_request request = { .layer = layer,
                                      .experts = f->used_experts,
                                      .count = f->config->experts,
                                      .rows = f->config->experts,
                                      .uses = f->expert_uses };
    expert_visit_begin(&visit, f->experts, &request);
    while ((count = expert_visit_next(&visit, f->leases, f->config->experts, &status, why)) > 0) {
        for (size_t i = 0; i < count; i++)
            f->works[i] = (struct expert_work){ &f->leases[i].view, f->leases[i].expert, NULL, 0 };
        if (status == MF_OK)
            status = f->backend->functions->hold_experts(f->backend, &f->weights->layers[layer],
                                                         f->works, count, f->config->experts, why);
        for (size_t i = 0; i < count; i++) expert_lease_end(&f->leases[i]);
        if (status != MF_OK) break;
    }
    return status;
}

/* Experts are copied as they are wanted. */
static mf_status hold_no_experts(struct forward *f)
{
    f->held = HELD_NOT;
    expert_store_pin(f->experts, f->backend);
    return MF_OK;
}

/* Whether the device has all experts, which it is given before the first step if it has the room. */
static mf_status hold_experts(struct forward *f, mf_error *why)
{
    const uint64_t spare = UINT64_C(512) << 20; /* weights, scratch */
    mf_status status = MF_OK;
    if (f->outer) f->held = f->outer->held; /* whose step has begun */
    if (f->held != HELD_UNKNOWN) return MF_OK;
    uint64_t wanted = all_expert_bytes(f) + f->weights->resident_bytes + spare;
    if (wanted > f->backend->functions->free_bytes(f->backend)) return hold_no_experts(f);
    for (uint32_t layer = 0; layer < f->config->layer_count && status == MF_OK; layer++)
        if (has_experts(f, layer)) status = hold_layer(f, layer, why);
    if (status != MF_OK && status != MF_ERR_MEMORY) return status; /* the next step tries again */
    if (status != MF_OK) return hold_no_experts(f);
    f->held = HELD_ALL;
    return MF_OK;
}

/* Generated rows of which the host wants nothing before the end. */
static bool repeats(const struct step *step)
{
    const struct forward *f = step->forward;
    const struct observer *observer = f->observer;
    if (f->held != HELD_ALL || step->row_count != step->part_count) return false;
    if (observer && (observer->hidden || observer->routes)) return false;
    if (expert_store_is_watched(f->experts)) return false;
    if (f->watch && f->watch->pause) return false; /* between two layers, for another step */
    for (size_t i = 0; i < step->part_count; i++)
        if (!step->parts[i].decode) return false;
    return true;
}

/* Tells the device of the step; *replayed: it has been queued as a whole. */
static mf_status begin_on_device(const struct step *step, bool *replayed, mf_error *why)
{
    struct forward *f = step->forward;
    mf_status status = hold_experts(f, why);
    if (status != MF_OK) return status;
    for (uint32_t layer = 0; layer < f->config->layer_count; layer++) {
        struct span *spans = f->layer_spans + layer * step->part_count;
        memcpy(spans, f->spans, step->part_count * sizeof *spans);
        for (size_t s = 0; s < step->part_count; s++)
            sequence_view(step->parts[s].sequence, layer, &spans[s]);
    }
    f->frame = (struct step_frame){ .owner = f,
                                    .nested = f->outer != NULL,
                                    .repeats = repeats(step),
                                    .row_count = step->row_count,
                                    .span_count = step->part_count,
                                    .layer_count = f->config->layer_count,
                                    .context = f->context,
                                    .tokens = f->tokens,
                                    .rows = f->rows,
                                    .spans = f->layer_spans };
    return f->backend->functions->begin_step(f->backend, &f->frame, replayed, why);
}

/* The state of the parts is complete, or no longer written to, when a step ends. */
static mf_status finish(struct forward *f, mf_status status, mf_error *why)
{
    if (!backend_is_device(f->backend)) return status;
    f->frame.row_count = 0;
    bool whole = status == MF_OK;
    mf_status finished = f->backend->functions->finish(f->backend, whole, whole ? why : NULL);
    return status == MF_OK ? finished : status;
}

static mf_status run_all(struct step *step, mf_error *why)
{
    struct forward *f = step->forward;
    bool replayed = false;
    mf_status status = MF_OK;
    if (backend_is_device(f->backend)) status = begin_on_device(step, &replayed, why);
    if (status == MF_OK && replayed) status = look_at_parts(step, 0, why);
    if (status != MF_OK || replayed) return status;
    status = run_recipe(step, &f->recipes.start, f->weights->weights, why);
    if (status == MF_OK) status = observe_hidden(step, -1, why);
    if (status == MF_OK) status = expect_experts(step, 0, true, why);
    return status == MF_OK ? run_layers(step, why) : status;
}

mf_status forward_step(struct forward *f, struct step_part *parts, size_t part_count, mf_error *why)
{
    size_t rows = 0;
    for (size_t i = 0; i < part_count; i++) rows += parts[i].count;
    if (part_count > SPANS_MAX || rows > f->row_capacity)
        return fail(why, MF_ERR_ARGUMENT,
                    "a step of %zu rows in %zu sequences, at most %zu in %d are possible", rows,
                    part_count, f->row_capacity, SPANS_MAX);
    struct step step = { .forward = f, .parts = parts, .part_count = part_count };
    lay_out_rows(&step);
    uint64_t time = trace_now(f->backend->tracer);
    trace_count_into(f->backend->tracer, f->times.stage_ticks);

    mf_status status = run_all(&step, why);
    status = finish(f, status, why);
    trace_span(f->backend->tracer, step_name(parts, part_count), time, (uint32_t)rows);
    trace_store(f);
    if (status != MF_OK) return status;
    for (size_t i = 0; i < part_count; i++)
        if (!parts[i].cancelled)
            sequence_step_done(parts[i].sequence, parts[i].tokens, parts[i].count, parts[i].decode);
    return MF_OK;
}

/* The rows as they lie in x, or side by side in a copy where they lie apart. */
static mf_status gather_rows(float **out, struct forward *f, const uint32_t *rows, size_t count,
                             mf_error *why)
{
    size_t width = f->config->width, bytes = width * sizeof(float);
    const struct backend_functions *functions = f->backend->functions;
    mf_status status = MF_OK;
    float *x = f->shared[SHARED_X];
    bool together = rows[count - 1] - rows[0] == count - 1;
    *out = together ? x + rows[0] * width : f->gathered;
    for (size_t i = 0; !together && i < count && status == MF_OK; i++) {
        if (backend_is_device(f->backend))
            status = functions->copy(f->backend, f->gathered + i * width, x + rows[i] * width,
                                     bytes, why);
        else
            memcpy(f->gathered + i * width, x + rows[i] * width, bytes);
    }
    return status;
}

mf_status forward_logits(const float **out, struct forward *f, const uint32_t *rows, size_t count,
                         mf_error *why)
{
    const struct recipe *head = &f->recipes.head;
    float *buffers[GRAPH_BUFFERS_MAX];
    double begin = clock_seconds();
    buffers_place(buffers, &head->plan, &head->graph, f->shared, f->scratch, f->row_capacity);
    mf_status status = gather_rows(&buffers[SHARED_X], f, rows, count, why);
    struct frame frame = { .row_count = count, .weights = f->weights->weights, .buffers = buffers };
    if (status == MF_OK)
        status = f->backend->functions->execute(f->backend, &head->graph, &frame, why);
    *out = f->shared[SHARED_LOGITS];
    if (status == MF_OK && backend_is_device(f->backend)) {
        size_t bytes = count * f->config->vocab_size * sizeof(float);
        status = f->backend->functions->copy(f->backend, f->host_logits, *out, bytes, why);
        *out = f->host_logits;
    }
    f->times.head_seconds += clock_seconds() - begin;
    return status;
}
