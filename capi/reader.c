/* Readers. */
#include "guard.h"

pf_status pf_reader_create(pf_handle scope, const char *op, const char *out, const char *const *ins,
                           uint32_t num_ins, const char *attributes, const pf_wait *wait, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(op, err);
    REQUIRE_POINTER(out, err);
    if (num_ins > 0) REQUIRE_POINTER(ins, err);
    for (uint32_t i = 0; i < num_ins; i++) REQUIRE_POINTER(ins[i], err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err,
                 pfgo_reader_create(scope, (char *)op, (char *)out, (char **)ins, num_ins, (char *)attributes,
                                    &call, err));
    return status;
}

pf_status pf_reader_next(pf_handle reader, const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_KEEP_LOAN(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_reader_next(reader, &call, out, err));
    return status;
}

pf_status pf_reader_next_in_loop(pf_handle reader, uint64_t loop, const pf_wait *wait, pf_tuple *out,
                                 pf_error *err) {
    ZERO_KEEP_LOAN(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pfi_call call = {.loop = loop};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_reader_next(reader, &call, out, err));
    return status;
}

pf_status pf_reader_has_next(pf_handle reader, const pf_wait *wait, uint8_t *out, pf_error *err) {
    ZERO(out);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(out, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_reader_has_next(reader, &call, out, err));
    return status;
}

pf_status pf_reader_at(pf_handle reader, int64_t index, pf_tuple *out, pf_error *err) {
    ZERO_KEEP_LOAN(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    return pfgo_reader_at(reader, index, out, err);
}

pf_status pf_reader_reset(pf_handle reader, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_reader_reset(reader, err);
}

pf_status pf_reader_begin_loop(pf_handle reader, uint8_t current, uint64_t *loop, pf_error *err) {
    ZERO(loop);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(loop, err);
    return pfgo_reader_begin_loop(reader, current, loop, err);
}

pf_status pf_reader_get_state(pf_handle reader, char **state, pf_error *err) {
    ZERO(state);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(state, err);
    return pfgo_reader_get_state(reader, state, err);
}

pf_status pf_reader_set_state(pf_handle reader, const char *state, uint8_t strict, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(state, err);
    return pfgo_reader_set_state(reader, (char *)state, strict, err);
}

pf_status pf_reader_stats(pf_handle reader, char **json, pf_error *err) {
    ZERO(json);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(json, err);
    return pfgo_reader_stats(reader, json, err);
}
