/* kv_pages.c: the numbers of a key/value cache in its formats (backend.h: struct kv_view). */
#include "backend/cpu/cpu.h"

static struct q8_tile q8_of(const struct kv_head *head)
{
    return (struct q8_tile){ head->page, head->width, head->by_channel };
}

void cpu_kv_store(const struct kernels *kernels, const struct kv_head *head, size_t index,
                  const float *x)
{
    size_t width = head->width;
    struct q8_tile q8 = q8_of(head);
    if (head->format == KV_F32)
        memcpy((float *)head->page + index * width, x, width * sizeof *x);
    else if (head->format == KV_Q8)
        kernels->attend->store_q8(&q8, index, x);
    else if (head->by_channel)
        kernels->attend->store_f16((uint16_t *)head->page + index, KV_PAGE_TOKENS, x, width);
    else
        kernels->attend->store_f16((uint16_t *)head->page + index * width, 1, x, width);
}

const float *cpu_kv_row(const struct kv_head *head, size_t index, float *memory)
{
    size_t width = head->width;
    struct q8_tile q8 = q8_of(head);
    if (head->format == KV_F32) return (const float *)head->page + index * width;
    for (size_t c = 0; c < width; c++) {
        size_t at = head->by_channel ? c * KV_PAGE_TOKENS + index : index * width + c;
        if (head->format == KV_F16)
            memory[c] = f32_from_f16(((const uint16_t *)head->page)[at]);
        else
            memory[c] = (float)q8.numbers[at] *
                        f32_from_f16(q8_scales(&q8)[c / Q8_GROUP * KV_PAGE_TOKENS + index]);
    }
    return memory;
}

const uint16_t *cpu_kv_tile(const struct kernels *kernels, const struct kv_head *head,
                            uint16_t *memory)
{
    size_t width = head->width;
    const float *rows = head->page;
    struct q8_tile q8 = q8_of(head);
    if (head->format == KV_F16) return head->page;
    if (head->format == KV_Q8)
        kernels->attend->widen_q8(memory, &q8);
    else if (!head->by_channel)
        kernels->attend->store_f16(memory, 1, rows, KV_PAGE_TOKENS * width);
    else
        kernels->attend->turn_rows(memory, rows, width, width);
    return memory;
}
