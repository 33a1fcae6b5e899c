#include "experts/placement.h"

#include "base/status.h"
#include "experts/eviction.h"
#include "experts/layout.h"
#include "io/async_read.h"
#include "io/read_stage.h"

/* Direct reads are rounded out to whole blocks.  If that adds more than 1/8 to the slots, reads
 * go through the page cache instead. */
enum { PADDING_SHARE = 8 };

/* The staging buffers of reads (io/read_stage.h) take at most 1/64 of the budget. */
enum { STAGE_SHARE = 64 };

/* ------------------------------------------------------------------- slots */

static uint64_t longest_read(const struct expert_layout *layout)
{
    uint64_t longest = 0;
    for (size_t i = 0; i < layout->piece_count; i++)
        longest = max_size(longest, layout->pieces[i].count);
    return longest;
}

struct measures {
    uint64_t slot_bytes;  /* one slot of each layer */
    uint64_t array_bytes; /* one expert of each layer, without padding */
    uint64_t read_bytes;  /* the longest read */
};

/* Sets layer_bytes[layer] to the size of a slot for the layer's largest expert. */
static struct measures measure_layers(struct expert_placement *p)
{
    const struct model_config *config = p->needs.config;
    struct expert_layout layout = { 0 };
    struct measures found = { 0 };
    for (uint32_t layer = 0; layer < config->layer_count; layer++) {
        uint64_t largest = 0;
        for (uint32_t expert = 0; expert < config->experts; expert++) {
            expert_layout_make(&layout, &p->needs.layers[layer], expert, p->alignments);
            if (layout.bytes > largest) largest = layout.bytes;
            found.read_bytes = max_size(found.read_bytes, longest_read(&layout));
        }
        p->layer_bytes[layer] = align_up(largest, SLOT_ALIGNMENT);
        found.slot_bytes += p->layer_bytes[layer];
        found.array_bytes += layout.array_bytes;
    }
    return found;
}

/* The budget without the staging buffers. */
static uint64_t budget_of_slots(const struct expert_placement *p, uint64_t budget_bytes)
{
    return budget_bytes - min_size(p->stage_count * p->stage_bytes, budget_bytes);
}

/* Plans the slots for a way of reading.  *padded: rounding adds more than PADDING_SHARE allows.
 * Staging buffers only make reads faster: a budget too small for both goes to slots. */
static mf_status make_plan(struct expert_placement *p, enum expert_reading reading, bool *padded,
                           mf_error *why)
{
    bool mapped = reading == READING_MAPPED; /* slots without memory: no budget needed */
    uint64_t budget_bytes = mapped ? UINT64_MAX : p->needs.budget_bytes;
    p->reading = reading;
    p->alignments = reading == READING_DIRECT ? p->direct_alignments : NULL;
    p->stage_count = 0;
    struct measures found = measure_layers(p);
    *padded = found.slot_bytes > found.array_bytes + found.array_bytes / PADDING_SHARE;
    if (reading == READING_DIRECT && found.read_bytes > 0) {
        p->stage_bytes = found.read_bytes;
        p->stage_count = min_size(budget_bytes / STAGE_SHARE / found.read_bytes, STAGE_BUFFERS_MAX);
    }
    struct slot_needs needs = { .bytes = p->layer_bytes,
                                .layers = p->needs.config->layer_count,
                                .experts = p->needs.config->experts,
                                .per_token = p->needs.config->experts_per_token,
                                .budget_bytes = budget_of_slots(p, budget_bytes) };
    mf_status status = slot_plan_make(&p->plan, &needs, why);
    if (status == MF_OK || p->stage_count == 0) return status;
    p->stage_count = 0;
    needs.budget_bytes = budget_bytes;
    return slot_plan_make(&p->plan, &needs, why);
}

/* Direct reads where they fit, else reads through the page cache. */
static mf_status plan_streamed(struct expert_placement *p, mf_error *why)
{
    bool padded;
    mf_status status = make_plan(p, READING_DIRECT, &padded, NULL);
    if (status == MF_OK && !padded) return MF_OK;
    return make_plan(p, READING_UNCACHED, &padded, why);
}

/* -------------------------------------------------------------------- mode */

static bool all_can_be_mapped(const struct tensor_directory *directory)
{
    for (size_t i = 0; i < directory->file_count; i++)
        if (!file_can_be_mapped(&directory->files[i])) return false;
    return true;
}

static uint64_t bytes_of_files(const struct tensor_directory *directory)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < directory->file_count; i++) bytes += directory->files[i].size;
    return bytes;
}

static uint64_t bytes_of_all_slots(const struct slot_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t c = 0; c < plan->class_count; c++)
        bytes += plan->classes[c].experts * plan->classes[c].bytes;
    return bytes;
}

/* Sets the mode, the way of reading and the plan.  The plan of a resident store comes first,
 * because the choice depends on its sizes. */
static mf_status choose_mode(struct expert_placement *p, mf_error *why)
{
    const struct expert_needs *needs = &p->needs;
    bool padded;
    mf_status status = make_plan(p, READING_KEPT, &padded, why);
    if (status != MF_OK) return status;
    struct expert_mode_sizes sizes = { .slot_bytes = bytes_of_all_slots(&p->plan),
                                       .file_bytes = bytes_of_files(needs->directory),
                                       .budget_bytes = needs->budget_bytes,
                                       .hard_limit = needs->hard_limit,
                                       .mappable = all_can_be_mapped(needs->directory) };
    p->mode = expert_mode_choose(&sizes);
    double mebibyte = 1 << 20;
    if (needs->mode == MODE_RESIDENT && p->mode == EXPERTS_STREAMED)
        return fail(why, MF_ERR_MEMORY,
                    "%.2f MiB are left for experts; to hold them all takes %.2f MiB",
                    (double)sizes.budget_bytes / mebibyte, (double)sizes.slot_bytes / mebibyte);
    if (needs->mode == MODE_MAPPED && sizes.file_bytes > sizes.budget_bytes)
        return fail(why, MF_ERR_MEMORY, "%.2f MiB are left; the files to be mapped have %.2f MiB",
                    (double)sizes.budget_bytes / mebibyte, (double)sizes.file_bytes / mebibyte);
    if (needs->mode == MODE_RESIDENT) p->mode = EXPERTS_RESIDENT;
    if (needs->mode == MODE_MAPPED) p->mode = EXPERTS_MAPPED;
    if (p->mode == EXPERTS_STREAMED) return plan_streamed(p, why);
    if (p->mode == EXPERTS_MAPPED) return make_plan(p, READING_MAPPED, &padded, why);
    return MF_OK;
}

mf_status expert_placement_make(struct expert_placement *out, const struct expert_needs *needs,
                                struct arena *arena, mf_error *why)
{
    uint32_t layers = needs->config->layer_count;
    size_t files = needs->directory->file_count;
    *out =
        (struct expert_placement){ .needs = *needs,
                                   .direct_alignments = ARENA_NEW(arena, size_t, files),
                                   .layer_bytes = ARENA_NEW(arena, uint64_t, layers),
                                   .plan = { .classes = ARENA_NEW(arena, struct slot_class, layers),
                                             .class_of = ARENA_NEW(arena, uint32_t, layers) } };
    if (!out->direct_alignments || !out->layer_bytes || !out->plan.classes || !out->plan.class_of)
        return fail_memory(why, layers * sizeof *out->plan.classes);
    for (size_t i = 0; i < files; i++)
        out->direct_alignments[i] = async_read_alignment(&needs->directory->files[i]);
    mf_status status = choose_mode(out, why);
    out->memory_bytes = out->mode == EXPERTS_MAPPED ? 0 : out->plan.memory_bytes;
    return status;
}

/* ------------------------------------------------------------------ budget */

mf_status expert_placement_limit(struct expert_placement *p, uint64_t budget_bytes, mf_error *why)
{
    uint32_t per_token = p->needs.config->experts_per_token;
    uint64_t left = budget_of_slots(p, budget_bytes);
    if (p->mode == EXPERTS_MAPPED) return MF_OK; /* the page cache makes room by itself */
    if (left < budget_bytes && slot_plan_limit(&p->plan, per_token, left, NULL) == MF_OK)
        return MF_OK;
    mf_status status = slot_plan_limit(&p->plan, per_token, budget_bytes, why);
    if (status == MF_OK) p->stage_count = 0;
    return status;
}

bool expert_placement_must_stream(const struct expert_placement *p)
{
    bool limited = p->needs.hard_limit && p->needs.mode == MODE_BY_SIZE;
    return limited && p->memory_bytes > 0 && p->mode == EXPERTS_RESIDENT && !p->plan.resident;
}

mf_status expert_placement_stream(struct expert_placement *p, uint64_t budget_bytes, mf_error *why)
{
    p->needs.budget_bytes = p->memory_bytes;
    mf_status status = plan_streamed(p, why);
    if (status != MF_OK) return status;
    p->mode = EXPERTS_STREAMED;
    status = expert_placement_limit(p, budget_bytes, NULL);
    if (status == MF_OK) return MF_OK;
    return expert_placement_avoid_direct(p, budget_bytes, why); /* padded slots do not fit */
}

mf_status expert_placement_avoid_direct(struct expert_placement *p, uint64_t budget_bytes,
                                        mf_error *why)
{
    bool padded;
    mf_status status = make_plan(p, READING_UNCACHED, &padded, why);
    return status == MF_OK ? expert_placement_limit(p, budget_bytes, why) : status;
}

/* -------------------------------------------------------------- statistics */

const char *expert_placement_mode_name(const struct expert_placement *p)
{
    bool limited = p->mode == EXPERTS_RESIDENT && !p->plan.resident;
    return expert_mode_name(limited ? EXPERTS_STREAMED : p->mode);
}

uint64_t expert_placement_policy_bytes(const struct expert_placement *p)
{
    if (p->plan.resident || p->mode == EXPERTS_MAPPED) return 0;
    return eviction_arena_bytes(p->needs.config->layer_count, p->needs.config->experts);
}
