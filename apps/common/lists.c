#include "common/lists.h"

#include "common/basics.h"

#include <stdlib.h>

mf_status list_reserve(void **array, size_t *capacity, size_t size, size_t wanted, mf_error *why)
{
    size_t larger = *capacity ? *capacity : 16;
    uint64_t bytes;
    void *moved;

    if (wanted <= *capacity) return MF_OK;
    while (larger < wanted && larger <= SIZE_MAX / 2) larger *= 2;
    if (larger < wanted) larger = wanted;
    if (!checked_multiply(&bytes, larger, size)) return fail_memory(why, SIZE_MAX);
    moved = realloc(*array, (size_t)bytes);
    if (!moved) return fail_memory(why, bytes);
    *array = moved;
    *capacity = larger;
    return MF_OK;
}

mf_status byte_list_append(struct byte_list *list, const void *bytes, size_t count, mf_error *why)
{
    void *array = list->bytes;
    mf_status status = list_reserve(&array, &list->capacity, 1, list->count + count + 1, why);

    list->bytes = array;
    if (status != MF_OK) return status;
    if (count > 0) memcpy(list->bytes + list->count, bytes, count);
    list->count += count;
    list->bytes[list->count] = '\0';
    return MF_OK;
}

void byte_list_free(struct byte_list *list)
{
    free(list->bytes);
    *list = (struct byte_list){ 0 };
}

mf_status id_list_append(struct id_list *list, int32_t id, mf_error *why)
{
    void *array = list->ids;
    mf_status status =
        list_reserve(&array, &list->capacity, sizeof *list->ids, list->count + 1, why);

    list->ids = array;
    if (status == MF_OK) list->ids[list->count++] = id;
    return status;
}

void id_list_free(struct id_list *list)
{
    free(list->ids);
    *list = (struct id_list){ 0 };
}
