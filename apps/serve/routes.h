/* routes.h: which handler answers which method and path. */
#ifndef SERVE_ROUTES_H
#define SERVE_ROUTES_H

#include "serve/failure.h"
#include "serve/serve.h"

enum route_flags {
    ROUTE_OPEN = 1,   /* needs no key */
    ROUTE_UPLOAD = 2, /* the body is multipart/form-data */
    ROUTE_PREFIX = 4, /* the path goes on behind `path`; exchange_path has all of it */
    ROUTE_PLAIN = 8   /* "/v1" before the path is not accepted */
};

struct route {
    const char *method, *path; /* without "/v1" */
    void (*handle)(struct serve *serve, struct exchange *exchange);
    enum dialect dialect; /* of its errors */
    unsigned flags;
};

/* NULL with *failure filled: there is no such path, or not with this method. */
const struct route *route_find(const char *method, const char *path, struct failure *failure);

/* "/v1/models/x" → "/models/x": what stands behind "/v1". */
const char *route_path(const char *path);

/* Of an exchange whose route is not known: by its headers. */
enum dialect route_dialect(const struct route *route, const struct exchange *exchange);

#endif
