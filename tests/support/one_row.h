/* one_row.h: a visit of one row that uses each of the given experts. */
#ifndef SUPPORT_ONE_ROW_H
#define SUPPORT_ONE_ROW_H

#include "experts/store.h"

#include <assert.h>

static inline void visit_one_row(struct expert_visit *visit, struct expert_store *store,
                                 uint32_t layer, const uint32_t *experts, size_t count)
{
    uint32_t uses[1024] = { 0 };
    for (size_t i = 0; i < count; i++) {
        assert(experts[i] < COUNT_OF(uses));
        uses[experts[i]] = 1;
    }
    struct expert_request request = {
        .layer = layer, .experts = experts, .count = count, .rows = 1, .uses = uses
    };
    expert_visit_begin(visit, store, &request);
}

#endif
