#include "connect.h"

#include "common/basics.h"
#include "common/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void add(struct byte_list *out, const char *format, ...) MF_PRINTF(2, 3);
static void add(struct byte_list *out, const char *format, ...)
{
    char line[2048];
    va_list list;

    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    byte_list_append(out, line, min_size((size_t)length, sizeof line - 1), NULL);
}

/* Takes `value` over. */
static void add_json(struct byte_list *out, json_t *value)
{
    char *text = json_dumps(value, JSON_INDENT(2));

    if (text) byte_list_append(out, text, strlen(text), NULL);
    byte_list_append(out, "\n", 1, NULL);
    free(text);
    json_decref(value);
}

static const char *key_of(const struct connect_target *target)
{
    return target->key[0] ? target->key : "none";
}

/* -------------------------------------------------------------------- clients */

/* A profile of its own, which Codex lays over config.toml.  Strings of TOML and JSON are quoted
 * alike, as far as names and addresses go. */
static void write_codex(struct byte_list *out, const struct connect_target *target)
{
    add(out,
        "model = \"%s\"\n"
        "model_provider = \"moeflux\"\n"
        "model_context_window = %u\n"
        "\n[model_providers.moeflux]\n"
        "name = \"moeflux\"\n"
        "base_url = \"%s/v1\"\n"
        "wire_api = \"responses\"\n",
        target->model, target->context, target->url);
    if (target->key[0]) add(out, "env_key = \"MOEFLUX_API_KEY\"\n");
}

static void write_claude(struct byte_list *out, const struct connect_target *target)
{
    char context[16];

    snprintf(context, sizeof context, "%u", target->context);
    add_json(out, json_pack("{s:{s:s, s:s, s:s, s:s, s:s}}", "env", "ANTHROPIC_BASE_URL",
                            target->url, "ANTHROPIC_AUTH_TOKEN", key_of(target), "ANTHROPIC_MODEL",
                            target->model, "CLAUDE_CODE_MAX_CONTEXT_TOKENS", context,
                            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"));
}

static void write_opencode(struct byte_list *out, const struct connect_target *target)
{
    char base[320], model[300];

    snprintf(base, sizeof base, "%s/v1", target->url);
    snprintf(model, sizeof model, "moeflux/%s", target->model);
    json_t *limit = json_pack("{s:i, s:i}", "context", (int)target->context, "output",
                              (int)min_size(32000, target->context / 2));
    json_t *provider =
        json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:{s:s, s:o}}}", "npm", "@ai-sdk/openai-compatible",
                  "name", "moeflux", "options", "baseURL", base, "apiKey", key_of(target), "models",
                  target->model, "name", target->model, "limit", limit);
    add_json(out, json_pack("{s:s, s:{s:o}, s:s}", "$schema", "https://opencode.ai/config.json",
                            "provider", "moeflux", provider, "model", model));
}

static void write_qwen(struct byte_list *out, const struct connect_target *target)
{
    add(out, "OPENAI_BASE_URL=\"%s/v1\"\nOPENAI_API_KEY=\"%s\"\nOPENAI_MODEL=\"%s\"\n", target->url,
        key_of(target), target->model);
}

static const char *const codex_own[] = { "model = ", "[model_providers.moeflux]", NULL };
static const char *const qwen_own[] = { "OPENAI_BASE_URL=", "OPENAI_API_KEY=", "OPENAI_MODEL=",
                                        NULL };

static const struct connect_client clients[] = {
    { .name = "claude",
      .directory_variable = "CLAUDE_CONFIG_DIR",
      .directory = ".claude",
      .file = "settings.json",
      .start = "claude",
      .first_tokens = 12000,
      .json = true,
      .write = write_claude },
    { .name = "codex",
      .directory_variable = "CODEX_HOME",
      .directory = ".codex",
      .file = "moeflux.config.toml",
      .start = "codex --profile moeflux",
      .first_tokens = 10000,
      .key_in_environment = true,
      .own = codex_own,
      .write = write_codex },
    { .name = "opencode",
      .directory = ".config/opencode",
      .file = "opencode.json",
      .start = "opencode",
      .first_tokens = 8000,
      .json = true,
      .write = write_opencode },
    { .name = "qwen",
      .directory = ".qwen",
      .file = ".env",
      .start = "qwen --auth-type openai",
      .first_tokens = 16000,
      .own = qwen_own,
      .write = write_qwen },
};

const struct connect_client *connect_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(clients); i++)
        if (strcmp(clients[i].name, name) == 0) return &clients[i];
    return NULL;
}

/* --------------------------------------------------------------------- joining */

/* Members of `from` replace those of `into`, objects member by member. */
static void merge(json_t *into, json_t *from)
{
    const char *key;
    json_t *value;

    json_object_foreach(from, key, value)
    {
        json_t *old = json_object_get(into, key);
        if (json_is_object(old) && json_is_object(value))
            merge(old, value);
        else
            json_object_set(into, key, value);
    }
}

static mf_status join_json(struct byte_list *out, const struct byte_list *own, const char *old,
                           const char *path, mf_error *why)
{
    json_t *into = NULL, *from = NULL;
    const char *text = old[strspn(old, " \t\r\n")] ? old : "{}";
    mf_status status = json_text_read_new(&into, text, strlen(text), path, why);

    if (status == MF_OK && !json_is_object(into))
        status = fail(why, MF_ERR_FORMAT, "%.256s holds %s, expected an object", path,
                      json_type_name(into));
    if (status == MF_OK) status = json_text_read_new(&from, own->bytes, own->count, "it", why);
    if (status == MF_OK) {
        merge(into, from);
        add_json(out, json_incref(into));
    }
    json_decref(into);
    json_decref(from);
    return status;
}

static const char begin_mark[] = "# moeflux connect: begin\n",
                  end_mark[] = "# moeflux connect: end\n";

/* A line of the user's that begins with `start`; NULL: there is none. */
static const char *find_line(const char *text, const char *start)
{
    const char *line = text;

    while (line && strncmp(line, start, strlen(start)) != 0) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    return line;
}

static mf_status join_lines(struct byte_list *out, const struct connect_client *client,
                            const struct byte_list *own, const char *old, const char *path,
                            mf_error *why)
{
    const char *begin = find_line(old, begin_mark);
    const char *end = begin ? find_line(begin, end_mark) : NULL;

    if (begin && !end)
        return fail(why, MF_ERR_FORMAT, "%.256s has the line \"%.24s\" without one that ends it",
                    path, begin_mark);
    size_t head = begin ? (size_t)(begin - old) : strlen(old);
    byte_list_append(out, old, head, why);
    if (begin) byte_list_append(out, end + strlen(end_mark), strlen(end + strlen(end_mark)), why);
    const char *kept = out->bytes ? out->bytes : "";
    size_t length = strlen(kept);
    for (const char *const *line = client->own; *line; line++)
        if (find_line(kept, *line))
            return fail(why, MF_ERR_FORMAT, "%.256s has %s already: remove it first", path, *line);
    bool ends = length == 0 || kept[length - 1] == '\n';
    if (!ends) add(out, "\n");
    if (length > 0 && !begin) add(out, "\n");
    add(out, "%s", begin_mark);
    byte_list_append(out, own->bytes, own->count, why);
    add(out, "%s", end_mark);
    return MF_OK;
}

mf_status connect_join(struct byte_list *out, const struct connect_client *client,
                       const struct connect_target *target, const char *old, const char *path,
                       mf_error *why)
{
    struct byte_list own = { 0 };

    client->write(&own, target);
    mf_status status = own.count == 0 ? fail_memory(why, 1)
                       : client->json ? join_json(out, &own, old, path, why)
                                      : join_lines(out, client, &own, old, path, why);
    byte_list_free(&own);
    return status;
}
