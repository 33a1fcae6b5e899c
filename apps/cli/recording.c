#include "recording.h"

const struct option recording_options[RECORDING_OPTION_COUNT] = {
    { 0, "routes", OPTION_TEXT, offsetof(struct recording_settings, routes), "FILE",
      .help = "record the experts of every token, for `moeflux simulate`" },
};

static bool write_bytes(void *user, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, user) == count;
}

mf_status recording_begin(struct recording *out, const struct recording_settings *settings,
                          const struct opened *opened, mf_error *why)
{
    mf_status status;

    *out = (struct recording){ 0 };
    if (!settings->routes) return MF_OK;
    status = output_file_open(&out->file, settings->routes, why);
    if (status != MF_OK) return status;
    status = mf_route_recorder_open(&out->recorder, opened->sequence, write_bytes, out->file.stream,
                                    why);
    if (status != MF_OK) output_file_abandon(&out->file);
    return status;
}

int recording_end(struct recording *recording, int code)
{
    mf_error why = { .text = "" };
    mf_status status = MF_OK;

    if (!recording->recorder) return code;
    if (code != EXIT_FAILED) {
        status = mf_route_recorder_finish(recording->recorder, &why);
        if (status == MF_OK) status = output_file_commit(&recording->file, &why);
    }
    mf_route_recorder_close(recording->recorder);
    output_file_abandon(&recording->file);
    *recording = (struct recording){ 0 };
    return status == MF_OK ? code : report(&why);
}
