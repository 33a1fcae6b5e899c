/* no_transport.c: instead of transport.c where libcurl was missing at build time. */
#include "hub/transport.h"

bool transport_is_there(void)
{
    return false;
}

mf_status transport_open(struct transport **out, const struct hub_settings *settings,
                         unsigned idle_seconds, mf_error *why)
{
    (void)settings, (void)idle_seconds;
    *out = NULL;
    return fail(why, MF_ERR_UNSUPPORTED,
                "this moeflux was built without libcurl, so it cannot download");
}

void transport_close(struct transport *transport)
{
    (void)transport;
}

mf_status transfer_begin(struct transfer *transfer, struct transport *transport,
                         const char *address, uint64_t first, uint64_t end, mf_error *why)
{
    (void)transfer, (void)transport, (void)address, (void)first, (void)end;
    return fail(why, MF_ERR_UNSUPPORTED, "there is no libcurl");
}

mf_status transfer_next_page(char *out, size_t capacity, const struct transfer *transfer,
                             mf_error *why)
{
    (void)out, (void)capacity, (void)transfer;
    return fail(why, MF_ERR_UNSUPPORTED, "there is no libcurl");
}

void transfer_cancel(struct transfer *transfer)
{
    (void)transfer;
}

const char *transfer_address(const struct transfer *transfer)
{
    return transfer->address;
}

bool transport_is_hub(const struct transport *transport, const char *address)
{
    (void)transport, (void)address;
    return false;
}

mf_status transport_step(struct transport *transport, int wait_ms, mf_error *why)
{
    (void)transport, (void)wait_ms;
    return fail(why, MF_ERR_UNSUPPORTED, "there is no libcurl");
}
