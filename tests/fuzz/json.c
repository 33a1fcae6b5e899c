/* Any bytes as JSON through base/json: parsed or refused, every typed getter tried on it. */
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *value;
    mf_error why;
    if (json_parse_new(&value, (const char *)data, size, "input", &why) != MF_OK) return 0;
    const char *key;
    json_t *member;
    json_object_foreach(value, key, member)
    {
        uint64_t count;
        double real;
        bool flag;
        const char *text;
        json_need_count(&count, value, key, 1, 1000, "input", &why);
        json_maybe_real(&real, value, key, "input", &why);
        json_maybe_flag(&flag, value, key, "input", &why);
        json_maybe_text(&text, value, key, "input", &why);
    }
    json_decref(value);
    return 0;
}
