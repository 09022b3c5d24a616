/* Recordings of what happens, and what they say. */
#include "entry.h"

pf_status pf_trace_start(uint64_t max_events, pf_handle *trace, pf_error *err) {
    ZERO(trace);
    ENTER(err);
    NOT_NULL(trace);
    return pfgo_trace_start(max_events, trace, err);
}

pf_status pf_trace_stop(pf_handle trace, pf_error *err) {
    ENTER(err);
    return pfgo_trace_stop(trace, err);
}

pf_status pf_trace_text(pf_handle trace, const char *form, char **text, pf_error *err) {
    ZERO(text);
    ENTER(err);
    NOT_NULL(form);
    NOT_NULL(text);
    return pfgo_trace_text(trace, (char *)form, text, err);
}
