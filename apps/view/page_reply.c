/* page_reply.c: GET / and GET /assets/…: the files of the page. */
#include "serve/failure.h"
#include "serve/handlers.h"
#include "view/page.h"

#include <string.h>

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void page_reply(struct serve *serve, struct exchange *exchange)
{
    const char *path = exchange_path(exchange), *known = exchange_header(exchange, "If-None-Match");
    const struct page_file *file = page_find(path);
    struct failure failure;

    (void)serve;
    if (!file) {
        refuse(&failure, FAILURE_NOT_FOUND, NULL, "the page has no file %.200s", path);
        failure_reply(exchange, DIALECT_OPENAI, &failure);
        return;
    }
    exchange_add_header(exchange, "Content-Security-Policy", policy);
    exchange_add_header(exchange, "Referrer-Policy", "no-referrer");
    exchange_add_header(exchange, "ETag", file->etag);
    /* Names under /assets/ change with the contents; the licences' name does not. */
    bool named_by_content =
        path[1] != '\0' && strcmp(file->content_type, "text/plain; charset=utf-8") != 0;
    exchange_add_header(exchange, "Cache-Control",
                        named_by_content ? "max-age=31536000, immutable" : "no-cache");
    if (known && strcmp(known, file->etag) == 0) {
        exchange_reply_static(exchange, 304, file->content_type, "", 0);
        return;
    }
    if (file->gzip) exchange_add_header(exchange, "Content-Encoding", "gzip");
    exchange_reply_static(exchange, 200, file->content_type, file->bytes, file->length);
}
