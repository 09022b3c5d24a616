/* Recordings for the trace, and their export. */
#include "guard.h"

pf_status pf_trace_start(uint64_t max_events, pf_handle *trace, pf_error *err) {
    ZERO(trace);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(trace, err);
    return pfgo_trace_start(max_events, trace, err);
}

pf_status pf_trace_stop(pf_handle trace, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_trace_stop(trace, err);
}

pf_status pf_trace_export(pf_handle trace, const char *form, char **text, pf_error *err) {
    ZERO(text);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(form, err);
    REQUIRE_POINTER(text, err);
    return pfgo_trace_export(trace, (char *)form, text, err);
}
