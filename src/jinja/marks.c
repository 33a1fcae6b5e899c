#include "jinja/marks.h"

#include "base/arena.h"
#include "base/array.h"
#include "jinja/run.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ regions */

/* How many regions begin at or before `address`; they stand in ascending order. */
static size_t count_before(const struct jinja_run *run, uintptr_t address)
{
    size_t low = 0, high = run->region_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)run->regions[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool jinja_marks_add_region(struct jinja_run *run, char *start, size_t bytes, uint8_t *markup)
{
    if (ARRAY_RESERVE(run->regions, run->region_capacity, run->region_count + 1, NULL, NULL) !=
        MF_OK) {
        jinja_raise(run, JINJA_ERROR_MEMORY, "out of memory");
        return false;
    }
    size_t at = count_before(run, (uintptr_t)start);
    memmove(run->regions + at + 1, run->regions + at,
            (run->region_count - at) * sizeof *run->regions);
    run->regions[at] = (struct jinja_region){ start, start + bytes, markup };
    run->region_count++;
    return true;
}

void jinja_marks_free(struct jinja_run *run)
{
    free(run->regions);
    run->regions = NULL;
    run->region_count = run->region_capacity = 0;
}

/* NULL: not a part of the heap. */
static const struct jinja_region *find_region(const struct jinja_run *run, const char *pointer)
{
    size_t count = count_before(run, (uintptr_t)pointer);
    if (count == 0) return NULL;
    const struct jinja_region *region = &run->regions[count - 1];
    return (uintptr_t)pointer < (uintptr_t)region->end ? region : NULL;
}

/* ------------------------------------------------------------------ bits */

static bool is_set(const struct jinja_region *region, const char *pointer)
{
    size_t at = (size_t)(pointer - region->start);
    return region->markup[at / 8] >> (at % 8) & 1;
}

static void set(const struct jinja_region *region, const char *pointer)
{
    size_t at = (size_t)(pointer - region->start);
    region->markup[at / 8] = (uint8_t)(region->markup[at / 8] | 1u << (at % 8));
}

void jinja_marks_set(struct jinja_run *run, const char *to, size_t length)
{
    const struct jinja_region *region = length ? find_region(run, to) : NULL;
    for (size_t i = 0; region && i < length; i++) set(region, to + i);
}

void jinja_marks_copy(struct jinja_run *run, const char *to, const char *from, size_t length)
{
    if (length == 0) return;
    const struct jinja_region *source = find_region(run, from);
    if (!source) {
        if (arena_owns(run->literals, from)) jinja_marks_set(run, to, length);
        return;
    }
    const struct jinja_region *region = find_region(run, to);
    for (size_t i = 0; i < length; i++) {
        size_t at = (size_t)(from + i - source->start);
        if (at % 8 == 0 && source->markup[at / 8] == 0) {
            i += 7; /* eight bytes of content */
            continue;
        }
        if (is_set(source, from + i)) set(region, to + i);
    }
}

size_t jinja_marks_stretch(struct jinja_run *run, bool *markup, const char *text, size_t length)
{
    const struct jinja_region *region = length ? find_region(run, text) : NULL;
    size_t count = 1;
    if (!region) {
        *markup = length > 0 && arena_owns(run->literals, text);
        return length;
    }
    *markup = is_set(region, text);
    while (count < length && is_set(region, text + count) == *markup) count++;
    return count;
}

bool jinja_marks_cover(struct jinja_run *run, const struct jinja_string *string)
{
    bool markup = true;
    size_t count =
        string->length ? jinja_marks_stretch(run, &markup, string->data, string->length) : 0;
    return markup && count == string->length;
}
