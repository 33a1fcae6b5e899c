#include "view/page.h"

#include <string.h>

const struct page_file *page_find(const char *path)
{
    for (size_t i = 0; i < page_file_count; i++) {
        if (strcmp(page_files[i].path, path) == 0) return &page_files[i];
    }
    return NULL;
}
