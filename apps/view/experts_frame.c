#include "view/experts_internal.h"

#include "common/clock.h"
#include "dialects/base64.h"
#include "serve/reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[EXPERT_KINDS] = {
    [MF_EXPERT_HIT] = "hit",       [MF_EXPERT_AHEAD] = "ahead",     [MF_EXPERT_LATE] = "late",
    [MF_EXPERT_DEMAND] = "demand", [MF_EXPERT_EVICTED] = "evicted", [MF_EXPERT_WASTED] = "wasted",
};

struct expert_sums sums_between(const struct expert_sums *from, const struct expert_sums *to)
{
    struct expert_sums grown = *to;

    for (int k = 0; k < EXPERT_KINDS; k++) grown.events[k] -= from->events[k];
    grown.bytes_read -= from->bytes_read;
    grown.bytes_ahead -= from->bytes_ahead;
    grown.bytes_wasted -= from->bytes_wasted;
    grown.steps -= from->steps;
    grown.prompt_rows -= from->prompt_rows;
    grown.decode_rows -= from->decode_rows;
    for (int i = 0; i < MF_STAGE_COUNT; i++) grown.stages[i] -= from->stages[i];
    return grown;
}

/* --------------------------------------------------------------------- pieces */

static bool add(struct byte_list *out, const char *format, ...) MF_PRINTF(2, 3);
static bool add(struct byte_list *out, const char *format, ...)
{
    char text[256];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text_add(out, text);
}

static bool add_count(struct byte_list *out, const char *name, uint64_t value)
{
    return add(out, "\"%s\":%llu", name, (unsigned long long)value);
}

static bool add_kinds(struct byte_list *out, const char *name, const uint64_t events[EXPERT_KINDS])
{
    bool done = add(out, ",\"%s\":{", name);

    for (int k = 0; k < EXPERT_KINDS; k++)
        done = done && (k == 0 || add(out, ",")) && add_count(out, kind_names[k], events[k]);
    return done && add(out, "}");
}

/* What was wasted is a part of what was read ahead. */
static bool add_bytes(struct byte_list *out, const struct expert_sums *grown)
{
    return add(out, ",\"bytes\":{") &&
           add_count(out, "demand", grown->bytes_read - grown->bytes_ahead) && add(out, ",") &&
           add_count(out, "ahead", grown->bytes_ahead) && add(out, ",") &&
           add_count(out, "wasted", grown->bytes_wasted) && add(out, "}");
}

static bool add_stages(struct byte_list *out, const double *seconds)
{
    bool done = add(out, ",\"stages\":{"), follows = false;

    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        if (!(seconds[i] > 0)) continue;
        done = done && add(out, "%s\"%s\":%.6g", follows ? "," : "", mf_stage_name((mf_stage)i),
                           seconds[i]);
        follows = true;
    }
    return done && add(out, "}");
}

/* --------------------------------------------------------------------- frames */

/* Records of six bytes: row, expert, kind, count. */
static bool add_events(struct byte_list *out, const struct experts *experts,
                       const struct gathering *gathering)
{
    size_t bytes = gathering->touched_count * 6;
    uint8_t *records = malloc(bytes + 1);

    if (!records) return false;
    for (size_t i = 0; i < gathering->touched_count; i++) {
        uint32_t at = gathering->touched[i], cell = at / EXPERT_KINDS;
        uint32_t row = cell / experts->layout.expert_count;
        uint32_t expert = cell % experts->layout.expert_count;
        const uint8_t record[6] = {
            (uint8_t)row,           (uint8_t)(row >> 8),          (uint8_t)expert,
            (uint8_t)(expert >> 8), (uint8_t)(at % EXPERT_KINDS), gathering->counts[at]
        };
        memcpy(records + 6 * i, record, sizeof record);
    }
    bool done = add(out, ",\"events\":\"") && base64_add(out, records, bytes) && add(out, "\"");
    free(records);
    return done;
}

static bool add_tokens(struct frame *out, const struct experts *experts,
                       const struct gathering *gathering)
{
    size_t choices = experts->choice_count;
    uint8_t *ids = malloc(2 * choices + 1);
    bool done = ids != NULL;

    for (size_t i = 0; done && i < gathering->token_count; i++) {
        const struct shown_token *token = &gathering->tokens[i];
        const uint16_t *chosen = gathering->token_experts + i * choices;
        for (size_t k = 0; k < choices; k++) {
            ids[2 * k] = (uint8_t)chosen[k];
            ids[2 * k + 1] = (uint8_t)(chosen[k] >> 8);
        }
        done = add(&out->tokens, ",{\"request\":\"%s\",\"index\":%u,\"experts\":\"", token->request,
                   token->index) &&
               base64_add(&out->tokens, ids, 2 * choices) && add(&out->tokens, "\"}");
        out->owners[out->token_count++] = (struct frame_token){ token->owner, out->tokens.count };
    }
    free(ids);
    return done;
}

bool frame_add(struct byte_list *out, const struct frame *frame, uint32_t owner)
{
    bool done = byte_list_append(out, frame->text.bytes, frame->text.count, NULL) == MF_OK;
    bool follows = false;
    size_t at = 0;

    for (size_t i = 0; done && i < frame->token_count; i++) {
        size_t end = frame->owners[i].end, from = at + !follows; /* the first has no comma */
        at = end;
        if (frame->owners[i].owner != owner) continue;
        done = byte_list_append(out, frame->tokens.bytes + from, end - from, NULL) == MF_OK;
        follows = true;
    }
    return done && add(out, "]}\n\n");
}

void frame_free(struct frame *frame)
{
    byte_list_free(&frame->text);
    byte_list_free(&frame->tokens);
    frame->token_count = 0;
}

/* Whether the events are all that the counters have grown by: in the first frame some may be older
 * than the watcher. */
static bool is_complete(const struct gathering *gathering, const struct expert_sums *grown)
{
    uint64_t events = 0;

    for (int k = 0; k < EXPERT_KINDS; k++) events += grown->events[k];
    return events == gathering->event_count;
}

bool frame_encode(struct frame *frame, const struct experts *experts, const struct frame_head *head,
                  const struct expert_sums *grown, const struct gathering *gathering)
{
    struct byte_list *out = &frame->text;
    bool has_events = gathering && is_complete(gathering, grown);
    bool done = add(out, "event: frame\ndata: {\"time\":%.0f,", head->seconds * 1e3) &&
                add_count(out, "seq", head->number) && add(out, ",") &&
                add_count(out, "steps", grown->steps) && add(out, ",") &&
                add_count(out, "prompt_rows", grown->prompt_rows) && add(out, ",") &&
                add_count(out, "decode_rows", grown->decode_rows);

    done =
        done && (has_events ? add_events(out, experts, gathering) : add(out, ",\"dropped\":true"));
    done = done && add_kinds(out, "sums", grown->events) && add_bytes(out, grown) &&
           add_stages(out, grown->stages) && add(out, ",") &&
           add_count(out, "present", head->present) && add(out, ",\"tokens\":[");
    return done && (!gathering || add_tokens(frame, experts, gathering));
}

bool map_encode(struct byte_list *out, const struct experts *experts,
                const struct expert_sums *totals)
{
    const mf_experts *layout = &experts->layout;
    mf_model_statistics model = MF_MODEL_STATISTICS_INIT;
    uint8_t *present = malloc(layout->map_bytes + 1);
    bool done =
        present && mf_model_stats(experts->serve->model, &model, NULL) == MF_OK &&
        mf_model_experts_present(experts->serve->model, present, layout->map_bytes, NULL) == MF_OK;

    done = done && add(out, "event: map\ndata: {\"time\":%.0f,\"rows\":[",
                       (clock_seconds() - experts->serve->started) * 1e3);
    for (uint32_t i = 0; done && i < layout->row_count; i++)
        done = add(out, "%s%u", i > 0 ? "," : "", layout->rows[i]);
    done = done && add(out, "],\"columns\":%u,\"present\":\"", layout->expert_count) &&
           base64_add(out, present, layout->map_bytes) && add(out, "\",") &&
           add_count(out, "slots", model.expert_slots) &&
           add_kinds(out, "totals", totals->events) && add(out, "}\n\n");
    free(present);
    return done;
}
