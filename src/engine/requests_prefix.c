/* requests_prefix.c: what requests take from the prefix cache, and leave there. */
#include "engine/requests_loop.h"

/* Less than this is computed again rather than waited for. */
enum { WORTH_WAITING = 64 };

mf_status request_resume(struct request *request, struct prefix_tree *prefixes, mf_error *why)
{
    const struct request_wishes *wishes = &request->wishes;
    if (!prefixes || wishes->calls.each) return MF_OK;
    /* The last token is computed in any case, for its logits. */
    mf_status status = prefix_tree_resume(&request->cached, prefixes, &request->sequence.state,
                                          wishes->prompt, wishes->prompt_count - 1, why);
    if (status == MF_OK) request->junction = request->cached.junction;
    return status;
}

/* The place of a position: those that the caller named, then what the cache itself wants. */
static enum prefix_place place_of(const struct request *request, uint32_t position)
{
    const struct request_wishes *wishes = &request->wishes;
    for (size_t i = 0; i < wishes->place_count; i++)
        if (wishes->places[i].position == position) return wishes->places[i].place;
    if (position == request->junction) return PREFIX_JUNCTION;
    return position % PREFIX_NET_PROMPT == 0 ? PREFIX_NET : PREFIX_NO_PLACE;
}

uint32_t request_next_stop(const struct request *request, const struct prefix_tree *prefixes)
{
    const struct request_wishes *wishes = &request->wishes;
    uint32_t position = request->sequence.state.position, stop = wishes->prompt_count;
    if (!prefixes) return stop;
    uint32_t net = (position / PREFIX_NET_PROMPT + 1) * PREFIX_NET_PROMPT;
    if (net < stop) stop = net;
    if (request->junction > position && request->junction < stop) stop = request->junction;
    for (size_t i = 0; i < wishes->place_count; i++)
        if (wishes->places[i].position > position && wishes->places[i].position < stop)
            stop = wishes->places[i].position;
    return stop;
}

/* A state that cannot be kept, for lack of memory, is computed again when it is asked for. */
void request_keep(const struct request *request, struct prefix_tree *prefixes)
{
    const struct sequence *state = &request->sequence.state;
    if (!prefixes) return;
    if (request->answering) {
        if (state->position % PREFIX_NET_GENERATED == 0)
            prefix_tree_keep(prefixes, state, PREFIX_NET, NULL);
        return;
    }
    enum prefix_place place = place_of(request, state->position);
    if (place != PREFIX_NO_PLACE || state->position == request->wishes.prompt_count)
        prefix_tree_keep(prefixes, state, place, NULL);
}

void request_keep_answer(const struct request *request, struct prefix_tree *prefixes)
{
    if (prefixes && request->answering)
        prefix_tree_keep(prefixes, &request->sequence.state, PREFIX_ANSWER_END, NULL);
}

/* The same text may be asked for again: after a restart, or when a user has stopped the answer to
 * change something behind it. */
void request_keep_cut(const struct request *request, struct prefix_tree *prefixes)
{
    const struct sequence *state = &request->sequence.state;
    if (!prefixes || state->position == 0) return;
    prefix_tree_keep(prefixes, state, request->answering ? PREFIX_ANSWER_END : PREFIX_NET, NULL);
}

static uint32_t common_length(const struct request_wishes *a, const struct request_wishes *b)
{
    uint32_t most = (uint32_t)min_size(a->prompt_count, b->prompt_count), i = 0;
    while (i < most && a->prompt[i] == b->prompt[i]) i++;
    return i;
}

bool request_waits_for_prefix(const struct requests *requests, const struct request *request)
{
    if (!requests->options.prefixes || request->parked.count > 0) return false;
    if (request->wishes.calls.each) return false;
    for (size_t i = 0; i < requests->active_count; i++) {
        struct request *other = requests->active[i];
        uint32_t position = other->sequence.state.position;
        if (other->answering || other == request) continue;
        uint32_t common = common_length(&other->wishes, &request->wishes);
        if (common < position + WORTH_WAITING) continue;
        if (other->junction <= position || other->junction > common) other->junction = common;
        return true;
    }
    return false;
}
